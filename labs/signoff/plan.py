"""What a sign-off looks at: plan.json, written before each session, read by all that follows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from labs import prepare
from labs.errors import BadInput
from labs.matrix import PATCHES, Cell, series_of
from labs.report.record import replace_file
from labs.report.session import source_digest
from labs.series import Series, read
from labs.source.debian import Archive

FILE = "plan.json"
BASE, PATCHED, CONTROL, EXTRA = "base", "patched", "control", "extra"
SUITES = ("suites/cgroup_atomicity",)
LIMIT = 16 << 20  # bytes of a plan


@dataclass(frozen=True)
class Planned:
    """One session. `purpose`: base and patched are compared; control, a planted defect that must break `breaks`, with
    its switch on (role patched) or off; extra, a variant in which the patched kernel must be quiet."""

    id: str  # of the cell; whoever only has the folder cannot ask its series for it
    cell: Cell
    purpose: str
    tests: tuple[str, ...]  # suites, or pytest ids
    breaks: tuple[str, ...] = ()

    @property
    def kernel(self) -> str:
        return self.cell.kernel


@dataclass(frozen=True)
class PatchFile:
    """One patch, as it was given: its bytes are `file` of the folder."""

    kernel: str
    series: str
    subject: str
    patch_id: str
    sha256: str
    file: str


@dataclass(frozen=True)
class Plan:
    folder: str  # its own name
    series: str  # as it was asked for
    name: str
    title: str
    intent: str
    components: tuple[str, ...]
    mends: tuple[str, ...]
    suites: tuple[str, ...]
    seed: int
    started: str
    command: tuple[str, ...]
    test_code: str
    tester: str  # as git knows the user; '' when it does not
    full: bool  # the large sizes
    bound: float  # a slowdown that is not minded: 0.05 is 5 %
    patches: tuple[PatchFile, ...] = ()
    cells: tuple[Planned, ...] = ()

    def save(self, folder: Path) -> None:
        replace_file(folder / FILE, json.dumps(asdict(self), indent=1).encode())

    @classmethod
    def load(cls, folder: Path) -> Plan:
        """BadInput where there is none, or it is malformed."""
        path = folder / FILE
        try:
            if path.stat().st_size > LIMIT:
                raise ValueError(f"larger than {LIMIT >> 20} MiB")
            row: dict[str, Any] = json.loads(path.read_bytes())
            row |= {name: tuple(row[name]) for name in ("components", "mends", "suites", "command")}
            row["patches"] = tuple(PatchFile(**patch) for patch in row["patches"])
            row["cells"] = tuple(
                Planned(one["id"], Cell(**one["cell"]), one["purpose"], tuple(one["tests"]), tuple(one["breaks"]))
                for one in row["cells"]
            )
            return cls(**row)
        except OSError as error:
            raise BadInput(f"{path}: {error.strerror}", mend="name the folder that labs signoff has made") from None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadInput(f"{path} is malformed: {error!r}") from None

    def add(self, cells: Sequence[Planned]) -> Plan:
        return replace(self, cells=(*self.cells, *cells))


def planned(
    folder: str,
    spec: str,
    cells: Sequence[Cell],
    suites: Sequence[str],
    seed: int,
    command: Sequence[str],
    tester: str,
    full: bool,
    bound: float,
) -> Plan:
    """The plan for the base and patched cells of a series; BadInput when one of them names nothing."""
    series = series_of(spec)
    roles = {"base": BASE, "patched": PATCHED}
    chosen = [Planned(cell.id, cell, roles[cell.role], tuple(suites)) for cell in cells if cell.role in roles]
    return Plan(
        folder=folder,
        series=spec,
        name="+".join(one.name for one in series),
        title="; ".join(one.title for one in series),
        intent="defect" if any(one.intent == "defect" for one in series) else series[0].intent,
        components=tuple(dict.fromkeys(one.component for one in series)),
        mends=tuple(dict.fromkeys(name for one in series if one.intent != "defect" for name in one.mends)),
        suites=tuple(suites),
        seed=seed,
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        command=tuple(command),
        test_code=source_digest(),
        tester=tester,
        full=full,
        bound=bound,
        cells=tuple(chosen),
    )


def copy_patches(plan: Plan, folder: Path, archive: Archive) -> Plan:
    """The plan with the bytes of each patch, for each kernel, kept in the folder."""
    kept: list[PatchFile] = []
    for one in plan.cells:
        if one.purpose == PATCHED and one.kernel not in {patch.kernel for patch in kept}:
            for series in prepare.find(one.cell, archive).series:
                kept += _kept(series, one.kernel, len(kept), folder)
    return replace(plan, patches=tuple(kept))


def _kept(series: Series, kernel: str, first: int, folder: Path) -> list[PatchFile]:
    made = []
    for number, patch in enumerate(series.patches, first + 1):
        name = f"patches/{number:04}.patch"
        replace_file(folder / name, patch.raw)
        sha256 = hashlib.sha256(patch.raw).hexdigest()
        made.append(PatchFile(kernel, series.name, patch.subject, patch.id, sha256, name))
    return made


def patch_id(path: Path) -> str:
    """The patch-id of a file that `copy_patches` has kept."""
    (series,) = read(str(path))
    return series.id


def defects(kernel: str, components: Sequence[str], folder: Path = PATCHES) -> list[tuple[str, Series]]:
    """The planted defects that the lab has for a version of these components, by their path."""
    found = []
    for path in sorted(path.parent for component in components for path in folder.glob(f"{component}/*/series.toml")):
        (series,) = read(str(path))
        if series.intent == "defect" and series.breaks:
            try:
                found.append((str(path), series.for_version(kernel)))
            except BadInput:
                continue
    return found
