"""Axes of changes that add up: patches of a series, options between two configs, what two cells differ in.

Candidates are prefixes: `base`, then each change upon those before it. Any set of them can be picked, too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from labs.bisect.axis import BASE, Axis, Wish, cut
from labs.build.kconfig import MUST, find_config, options
from labs.errors import BadInput
from labs.matrix import Cell, axes_of, cells, series_of
from labs.series import Patch, Series, read
from labs.series.manifest import NAME
from labs.source.debian import Archive
from labs.source.runtimes import find_runtime
from labs.source.trees import find_source
from labs.store import digest


def added_up(wish: Wish, titles: Sequence[str], pick: Callable[[Sequence[int]], Cell], ends: tuple[str, str]) -> Axis:
    """The axis of changes called `titles`, of which `pick` makes cells by number; `ends` are the good and the bad one,
    as BASE or the number of the last change of a prefix."""
    names = [BASE, *(str(number) for number in range(1, len(titles) + 1))]
    between, low = cut(names, *ends, wish.first)
    cells = {name: pick(range(1, 1 if name == BASE else int(name) + 1)) for name in between}
    return Axis(cells, low, dict(zip(names[1:], titles, strict=True)), pick)


def series_axis(wish: Wish, archive: Archive, folder: Path) -> Axis:
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

    def pick(numbers: Sequence[int]) -> Cell:
        role = "patched" if numbers else "base"
        patches = [series.patches[number - 1] for number in numbers or [1]]
        path = write_series(folder / f"{series.name}-{_label(numbers or [1], role)}", series, patches)
        return Cell(wish.kernel, wish.runtime, "qemu", wish.variant, str(path), role)

    last = str(len(series.patches))
    ends = (BASE, last) if wish.first != "good" else (last, BASE)
    given = (wish.good or ends[0], wish.bad or ends[1])
    return added_up(wish, [patch.subject for patch in series.patches], pick, given)


def _label(numbers: Sequence[int], prefix: str) -> str:
    """Fit for a file name, and the same for the same changes: `patched-4` for the first four, `only-1.4` for two."""
    if list(numbers) == list(range(1, len(numbers) + 1)):
        return f"{prefix}-{len(numbers)}"
    label = f"only-{'.'.join(map(str, numbers))}"
    return label if len(label) < 40 else f"only-{len(numbers)}-{digest(list(numbers))}"


def config_axis(wish: Wish, folder: Path) -> Axis:
    """Options in which two kernel configs differ, in the order of the second: Kconfig writes what others need first.

    The first candidate is the good config, or with `--first good` the bad one. Each must survive Kconfig in a
    candidate's build; one that needs an option that comes later makes that candidate a skip.
    """
    good, bad = (find_config(f"config:{name.removeprefix('config:')}") for name in (wish.good, wish.bad))
    old, new = (good, bad) if wish.first != "good" else (bad, good)
    changes = differing(old.text, new.text)
    if not changes:
        raise BadInput(f"{wish.good} and {wish.bad} do not differ in any option")
    lines = list(changes.values())

    def pick(numbers: Sequence[int]) -> Cell:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder.absolute() / f"{_label(numbers, 'first')}.config"
        path.write_text("\n".join([old.text, MUST, *(lines[number - 1] for number in numbers), ""]))
        return Cell(wish.kernel, wish.runtime, variant=f"config:{path}")

    last = str(len(lines))
    return added_up(wish, lines, pick, (BASE, last) if old is good else (last, BASE))


def differing(old: str, new: str) -> dict[str, str]:
    """Option -> its line in `new`, of those that differ; absent is off.

    >>> differing("CONFIG_A=y\\nCONFIG_B=y", "CONFIG_C=m\\nCONFIG_A=y")
    {'CONFIG_C': 'CONFIG_C=m', 'CONFIG_B': '# CONFIG_B is not set'}
    """
    before, after = ({name: value for name, value, _ in options(text)} for text in (old, new))
    names = [name for name in dict.fromkeys([*after, *before]) if before.get(name, "n") != after.get(name, "n")]
    off = "# {} is not set"
    return {name: off.format(name) if after.get(name, "n") == "n" else f"{name}={after[name]}" for name in names}


def cell_axis(wish: Wish) -> Axis:
    """What two cells, named by their ids, differ in: kernel, runtime, variant, series."""
    if not wish.good or not wish.bad:
        raise BadInput("--axis cell needs both ends", mend="give --good CELL --bad CELL, as 6.12.117_runc")
    good, bad = (_cell(name) for name in (wish.good, wish.bad))
    old, new = (good, bad) if wish.first != "good" else (bad, good)
    changes = [part for part in PARTS if _part(old, part) != _part(new, part)]
    if not changes:
        raise BadInput(f"{wish.good} and {wish.bad} are one cell", mend="name two")

    def pick(numbers: Sequence[int]) -> Cell:
        fields = [name for number in numbers for name in PARTS[changes[number - 1]]]
        return replace(old, **{name: getattr(new, name) for name in fields})

    titles = [f"{part} {_part(old, part)} -> {_part(new, part)}" for part in changes]
    last = str(len(changes))
    return added_up(wish, titles, pick, (BASE, last) if old is good else (last, BASE))


# What a cell consists of, and the fields of each.
PARTS = {"kernel": ("kernel",), "runtime": ("runtime",), "variant": ("variant",), "series": ("series", "role")}


def _part(cell: Cell, part: str) -> str:
    return " ".join(str(getattr(cell, name)) for name in PARTS[part] if getattr(cell, name)) or "none"


def _cell(name: str) -> Cell:
    found = cells(**axes_of(name))
    if len(found) != 1:
        raise BadInput(f"{name} names {len(found)} cells", mend="give an id that labs cells prints")
    return found[0]


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
