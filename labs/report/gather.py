"""From the runs on record to the cells that were planned: what is missing is not-run, never left out."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from labs.matrixfile import Matrix, Set
from labs.report.record import RUN_FILE, CaseResult, CellRecord, Run
from labs.report.text import identity

NARROWING = ("--lf", "--last-failed", "--sw", "--stepwise", "--ignore")  # whole files go without being deselected
NO_RUN = CaseResult("the whole cell", "not-run", reason="planned, no run has it", attempts=0)


@dataclass(frozen=True)
class CellOutcome:
    """What a run says of one cell; `run` is None when none has it, and `results` then is one case that is not-run."""

    cell: str
    run: Run | None
    results: tuple[CaseResult, ...]


def runs_in(paths: Sequence[Path]) -> list[Run]:
    """The runs there, oldest first; a path is a run, or a folder of runs. BadInput when a run's record is malformed."""
    found = [run for path in paths for run in ([path] if (path / RUN_FILE).exists() else sorted(path.glob("*/")))]
    runs = {path.resolve(): Run.open(path) for path in found if (path / RUN_FILE).exists() and not path.is_symlink()}
    return sorted(runs.values(), key=lambda run: (run.started, run.path.name))


def gather(
    runs: Sequence[Run], matrix: Matrix | None = None, name: str = "", globs: Sequence[str] = ()
) -> list[CellOutcome]:
    """The newest run that has a cell tells of it, whole: results of different runs may be of different kernels.
    What older ones got from the same kernel and runtime is told with it.

    With a matrix (and a set of it, and patterns of ids) there is one row for each of its cells, in that order. All of
    them get the same cases, so a case that only some have planned is not-run in the others; and so is the rest of a
    suite that a run has narrowed down.
    """
    having: dict[str, list[Run]] = {}
    for run in runs:
        for record in run.cells():
            having.setdefault(record.id, []).append(run)
    if matrix is None:
        return [_of(cell, found, []) for cell, found in having.items()]
    cells = [row.cell.id for row in matrix.chosen(name, globs)]
    cases = list(
        dict.fromkeys(case for cell in cells if cell in having for case in having[cell][-1].plan.get(cell, ()))
    )
    chosen = matrix.set(name) if name else None
    return [_of(cell, having.get(cell, []), cases, name, chosen) for cell in cells]


def _of(cell: str, runs: Sequence[Run], cases: Sequence[str], name: str = "", chosen: Set | None = None) -> CellOutcome:
    if not runs:
        return CellOutcome(cell, None, (NO_RUN,))
    *older, run = runs
    record = CellRecord(run, cell)
    same = [CellRecord(one, cell) for one in older if _same(CellRecord(one, cell), record)]
    before = [result for one in same for result in one.results() if result.attempts]
    results = [_with_earlier(result, before) for result in record.results()] or [NO_RUN]
    there = {result.case for result in results}
    why = "other cells ran it, this one did not plan it"
    missing = [CaseResult(case, "not-run", reason=why, attempts=0) for case in cases if case not in there]
    if cases and (why := _narrowed(run, name, chosen)):
        missing.append(CaseResult("the rest", "not-run", reason=why, attempts=0))
    return CellOutcome(cell, run, (*results, *missing))


def _with_earlier(result: CaseResult, before: Sequence[CaseResult]) -> CaseResult:
    """What older runs got from the very same kernel and runtime stays visible: a pass after a fail is no plain pass."""
    mine = [one for one in before if one.case == result.case]
    outcomes = [outcome for one in mine for outcome in (*one.earlier, one.outcome)]
    attempts = result.attempts + sum(one.attempts for one in mine)
    return replace(result, earlier=(*outcomes, *result.earlier), attempts=attempts)


def _same(one: CellRecord, other: CellRecord) -> bool:
    names = ("build-id", "runtime-digest", "series-patch-id")
    first, second = ({name: identity(record.facts()).get(name) for name in names} for record in (one, other))
    return first == second and first["build-id"] is not None


def _narrowed(run: Run, name: str, chosen: Set | None) -> str:
    """What a run left out of what its set asks for; empty when that is nothing."""
    if run.deselected:
        return f"the run left out {run.deselected} tests: {shlex.join(run.command)}"
    words = [word.rstrip("/") for word in run.command]
    if any(word.startswith(NARROWING) for word in words):
        return f"the run was narrowed: {shlex.join(run.command)}"
    if chosen is None:
        return ""
    for suite in chosen.suites:
        if not any(f"{suite.rstrip('/')}/".startswith(f"{word}/") for word in words):
            return f"the run did not ask for the whole of {suite}: {shlex.join(run.command)}"
    if chosen.full and not {"--full", f"--set={name}"} & set(words) and ("--set", name) not in pairwise(words):
        return f"the run had not the large sizes, which set {name} asks for: {shlex.join(run.command)}"
    return ""
