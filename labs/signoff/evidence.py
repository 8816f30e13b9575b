"""What the cells of a sign-off have left, read from its folder and from nothing else."""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from labs import executed
from labs.errors import BadInput
from labs.executed import Function
from labs.invariant.verdict import NO_VERDICT
from labs.report.record import SAFE_NAME, CaseResult, CellRecord, Run
from labs.signoff.plan import BASE, CONTROL, EXTRA, FILE, PATCHED, Plan, Planned
from labs.untrusted import LINES, read, reading

VIOLATED = ("fail", "known")
LARGEST = 1 << 30  # bytes of a file: a kernel may say much
# What CellRecord.link_console makes, the second if it is cut short, and what that stands for.
CONSOLE = re.compile(r"(console\.log|\.console\.[0-9a-f]{8}) -> boot-[0-9]+/console\.log")


@dataclass(frozen=True)
class CellEvidence:
    """One session's record. `record` is None where it left none, `trouble` then says why."""

    planned: Planned
    folder: str  # of the session, relative to the sign-off's
    record: CellRecord | None
    results: tuple[CaseResult, ...]
    functions: tuple[Function, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)
    artifacts: dict[str, Any] = field(default_factory=dict)
    trouble: str = ""

    @property
    def id(self) -> str:
        return self.planned.id

    @property
    def run(self) -> str:
        """Where the cell's record is, relative to the sign-off's folder."""
        return f"{self.folder}/{self.record.run.path.name}" if self.record else ""

    @property
    def unsettled(self) -> list[CaseResult]:
        """The cases that infrastructure has kept from an outcome; that a series does not build is one."""
        return [one for one in self.results if one.outcome in NO_VERDICT and not of_build(one)]

    def result(self, case: str) -> CaseResult | None:
        return next((result for result in self.results if result.case == case), None)

    def judging(self, invariant: str) -> list[CaseResult]:
        return [result for result in self.results if result.verdict and result.verdict.invariant == invariant]


@dataclass(frozen=True)
class Evidence:
    folder: Path
    plan: Plan
    cells: tuple[CellEvidence, ...]

    def having(self, purpose: str) -> list[CellEvidence]:
        return [cell for cell in self.cells if cell.planned.purpose == purpose]

    @property
    def pairs(self) -> list[tuple[CellEvidence, CellEvidence]]:
        """Base and patched of the same kernel, runtime and variant."""
        bases = {_axes(cell): cell for cell in self.having(BASE)}
        return [(bases[_axes(cell)], cell) for cell in self.having(PATCHED) if _axes(cell) in bases]

    def base_of(self, cell: CellEvidence) -> CellEvidence | None:
        """The base of the same kernel and runtime, whatever the variant and the series."""
        same = (one for one in self.having(BASE) if one is not cell and _machine(one) == _machine(cell))
        return next(same, None)

    @property
    def extras(self) -> list[CellEvidence]:
        return self.having(EXTRA)

    @property
    def controls(self) -> list[CellEvidence]:
        return self.having(CONTROL)


def _axes(cell: CellEvidence) -> tuple[str, ...]:
    return *_machine(cell), cell.planned.cell.variant


def _machine(cell: CellEvidence) -> tuple[str, ...]:
    asked = cell.planned.cell
    return asked.kernel, asked.runtime, asked.provider


def place(number: int, planned: Planned) -> str:
    """The folder of a session, relative to the sign-off's."""
    return f"cells/{number:02}-{planned.id}"


def gather(folder: Path) -> Evidence:
    """Read a sign-off's folder; BadInput when its plan, or a run's record in it, is malformed or leads elsewhere."""
    if away := astray(folder):
        raise BadInput(away[0])
    with reading(FILE):
        plan = Plan.load(folder)
        if bad := [one.id for one in plan.cells if not SAFE_NAME.fullmatch(one.id)]:
            raise BadInput(f"{FILE}: cell {bad[0]!r} leads out of the record")
    cells = tuple(left(folder, place(number, one), one) for number, one in enumerate(plan.cells, 1))
    return Evidence(folder, plan, cells)


def astray(folder: Path) -> list[str]:
    """What is no file or folder of the record itself, and why; a cell's console.log is that of one of its boots."""
    return [f"{path.relative_to(folder)}: {why}" for path in sorted(folder.rglob("*")) if (why := _unfit(path))]


def _unfit(path: Path) -> str:
    status = path.lstat()
    if stat.S_ISREG(status.st_mode):
        return f"larger than {LARGEST >> 20} MiB, and is not read" if status.st_size > LARGEST else ""
    if stat.S_ISDIR(status.st_mode) or (path.is_symlink() and CONSOLE.fullmatch(f"{path.name} -> {path.readlink()}")):
        return ""
    return "a link, pipe or device may lead out of the record, and is not read"


def left(folder: Path, name: str, planned: Planned) -> CellEvidence:
    """What one session has left in its place; BadInput when that is malformed."""
    with reading(f"{name}: the cell's record is malformed"):
        runs = sorted((folder / name).glob("*/run.json"))
        if not runs:
            return CellEvidence(planned, name, None, (), trouble=_last_words(folder / name))
        record = CellRecord(Run.open(runs[-1].parent), planned.id)
        results, functions = tuple(record.results()), _functions(record.path)
        return CellEvidence(planned, name, record, results, functions, record.facts(), record.artifacts())


def _functions(cell: Path) -> tuple[Function, ...]:
    """What the boots of the cell have seen of each function: that it ran in one of them is enough."""
    found: dict[tuple[int, str, str], Function] = {}
    for path in sorted(cell.glob(f"boot-*/{executed.FILE}")):
        for row in json.loads(read(path)):
            one = Function(**row)
            key = (one.patch, one.path, one.function)
            if key not in found or found[key].state != executed.RUN:
                found[key] = one
    return tuple(found.values())


def _last_words(folder: Path) -> str:
    for name in ("trouble.txt", "pytest.log"):
        path = folder / name
        if path.exists() and (lines := read(path, LINES).decode(errors="replace").strip().splitlines()):
            return lines[-1]
    return "it was never started"


def of_build(result: CaseResult) -> bool:
    """Whether the outcome is that of building the series, and not of anything that ran."""
    return bool(result.verdict and result.verdict.invariant == "series")


def violated(results: Sequence[CaseResult]) -> list[CaseResult]:
    return [result for result in results if result.outcome in VIOLATED]
