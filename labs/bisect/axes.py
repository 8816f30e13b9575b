"""Axes: kernels and runtimes of the archive, patches of a series; candidates in order, and the cell of each."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from labs.bisect.subset import ONLY
from labs.errors import BadInput
from labs.matrix import DEFAULT_KERNEL, DEFAULT_RUNTIME, Cell, series_of
from labs.series import Patch, Series, read
from labs.series.manifest import NAME
from labs.source.debian import Archive
from labs.source.kernels import archive_kernels, find_kernel
from labs.source.runtimes import archive_runtimes, find_runtime
from labs.source.trees import find_source
from labs.store import digest

AXES = ("kernel", "runtime", "series")
BASE = "base"  # on the series axis: the tree without any patch


@dataclass(frozen=True)
class Axis:
    """Candidates in order, both ends included, the cell of each, and what to call each in a report.

    `pick` makes the cell of some patches of a series by their numbers; None on the other axes.
    """

    cells: dict[str, Cell]
    low: str  # outcome that is claimed of the first candidate
    titles: dict[str, str] = dataclasses.field(default_factory=dict)
    pick: Callable[[Sequence[int]], Cell] | None = None

    def cell(self, name: str) -> Cell:
        """The cell of a candidate, or of patches by their numbers as `only:1+4`."""
        if name in self.cells or not self.pick:
            return self.cells[name]
        return self.pick([int(number) for number in name.removeprefix(ONLY).split("+")])

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.cells)


@dataclass(frozen=True)
class Wish:
    """What was asked: the axis, its ends, the outcome whose first candidate is looked for, the rest of the cell."""

    axis: str
    good: str = ""
    bad: str = ""
    first: str = ""
    kernel: str = DEFAULT_KERNEL
    runtime: str = DEFAULT_RUNTIME
    variant: str = ""
    series: str = ""


def axis_of(wish: Wish, archive: Archive, folder: Path) -> Axis:
    """The axis between the ends that `wish` names. `folder` takes what must be written, as prefixes of a series.

    BadInput when an end is not on the axis, the ends are one, or their order contradicts `wish.first`.
    """
    if wish.axis == "series":
        return _series_axis(wish, archive, folder)
    if not wish.good or not wish.bad:
        raise BadInput(f"--axis {wish.axis} needs both ends", mend="give --good and --bad")
    if wish.series:
        raise BadInput(f"--axis {wish.axis} compares what is packaged, without a series", mend="leave --series out")
    names = kernel_names(archive) if wish.axis == "kernel" else runtime_names(archive, wish)
    find = find_kernel if wish.axis == "kernel" else find_runtime
    ends = [getattr(find(end, archive), "version", "") for end in (wish.good, wish.bad)]
    between, low = cut(list(names), ends[0], ends[1], wish.first)
    cells = {
        version: Cell(version, wish.runtime) if wish.axis == "kernel" else Cell(wish.kernel, names[version])
        for version in between
    }
    return Axis({version: dataclasses.replace(cell, variant=wish.variant) for version, cell in cells.items()}, low)


def kernel_names(archive: Archive) -> dict[str, str]:
    """Package version -> kernel name, in kernel order: each that can be booted, once."""
    return {kernel.version: kernel.version for kernel in archive_kernels(archive) if not kernel.missing}


def runtime_names(archive: Archive, wish: Wish) -> dict[str, str]:
    """Package version -> runtime name, oldest first: those of the runtime that both ends name."""
    kinds = {find_runtime(end, archive).name for end in (wish.good, wish.bad)}
    if len(kinds) > 1:
        raise BadInput("the ends are versions of different runtimes", mend="name two of runc, or two of crun")
    return {each.version: f"{each.name}@{each.version}" for each in archive_runtimes(archive) if each.name in kinds}


def cut(names: Sequence[str], good: str, bad: str, first: str = "") -> tuple[list[str], str]:
    """The names from one end to the other, and the outcome of the first of them; BadInput as for `axis_of`.

    >>> cut(["1", "2", "3", "4"], good="4", bad="2")
    (['2', '3', '4'], 'bad')
    """
    for end in (good, bad):
        if end not in names:
            raise BadInput(f"{end or 'a file'} is not on the axis", mend=f"it goes from {names[0]} to {names[-1]}")
    if good == bad:
        raise BadInput(f"both ends are {good}", mend="name two")
    ends = sorted((names.index(good), names.index(bad)))
    low = "good" if names[ends[0]] == good else "bad"
    if first and first == low:
        raise BadInput(
            f"--first {first}: {names[ends[0]]}, the older end, is said to be {low} already",
            mend="leave --first out, or exchange --good and --bad",
        )
    return list(names[ends[0] : ends[1] + 1]), low


def _series_axis(wish: Wish, archive: Archive, folder: Path) -> Axis:
    """Prefixes of one series: `base`, then each patch on those before it; by default from the base to the whole."""
    if not wish.series:
        raise BadInput("--axis series needs a series", mend="give --series")
    named = series_of(wish.series)
    if len(named) != 1:
        raise BadInput(f"{wish.series} names {len(named)} series", mend="name one")
    version = (
        find_source(wish.kernel, archive).version
        if named[0].component == "kernel"
        else find_runtime(wish.runtime, archive).version.lstrip("v")
    )
    series = named[0].for_version(version)
    names = [BASE, *(str(number) for number in range(1, len(series.patches) + 1))]
    first = wish.first or "bad"
    ends = (BASE, names[-1]) if first == "bad" else (names[-1], BASE)
    between, low = cut(names, wish.good or ends[0], wish.bad or ends[1], wish.first)

    def pick(numbers: Sequence[int], role: str = "patched") -> Cell:
        patches = [series.patches[number - 1] for number in numbers]
        prefix = list(numbers) == list(range(1, len(numbers) + 1))
        label = f"{role}-{len(numbers)}" if prefix else f"only-{'.'.join(map(str, numbers))}"
        label = label if len(label) < 40 else f"only-{len(numbers)}-{digest(list(numbers))}"  # fit for a file name
        path = write_series(folder / f"{series.name}-{label}", series, patches)
        return Cell(wish.kernel, wish.runtime, "qemu", wish.variant, str(path), role)

    cells = {name: pick([1], "base") if name == BASE else pick(range(1, int(name) + 1)) for name in between}
    titles = {str(number): patch.subject for number, patch in enumerate(series.patches, 1)}
    return Axis(cells, low, titles, pick)


def write_series(path: Path, series: Series, patches: Sequence[Patch]) -> Path:
    """A folder with these patches of the series and its manifest; parameters stay, so that a defect is switched on."""
    path.mkdir(parents=True, exist_ok=True)
    files = []
    for number, patch in enumerate(patches, 1):
        files.append(f"{number:04}.patch")
        (path / files[-1]).write_bytes(patch.raw)
    lines = [f"{key} = {json.dumps(getattr(series, key))}" for key in ("title", "intent", "component", "line_endings")]
    lines += [f"files = {json.dumps(files)}", "[parameters]"]
    lines += [f"{json.dumps(key)} = {json.dumps(value)}" for key, value in series.parameters.items()]
    (path / NAME).write_text("\n".join(lines) + "\n")
    if [patch.id for patch in read(str(path))[0].patches] != [patch.id for patch in patches]:
        raise BadInput(f"{series.name} cannot be cut into its patches", mend="give it as one file a patch")
    return path
