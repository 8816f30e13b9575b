"""Suites asked from the outside: a pytest session of its own, with a record of its own, read when it has ended."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from labs.casebook import named
from labs.command import run
from labs.deadline import Deadline
from labs.errors import BadInput, LabError
from labs.matrix import Cell
from labs.report.record import CaseResult, Run

PYTEST = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q")
CODE = "pytest.code"
COLLECT_SECONDS = 120.0
BYE_SECONDS = 15.0  # for a pytest that is interrupted to end its guest


@dataclass(frozen=True)
class Case:
    """One case of a suite, whatever the cell. `node` is its pytest id in the cell `cell`."""

    node: str
    cell: str
    name: str  # in records

    def node_in(self, cell: str) -> str:
        path, _, test = self.node.partition("::")
        return f"{path}::{test.replace(self.cell, cell, 1)}"


def collect(suites: Sequence[str], cell: Cell) -> list[Case]:
    """The cases of `suites` (folders, files or pytest ids) in a cell, in order; BadInput when there are none."""
    options = [*cell.options, "--cell", cell.id]
    done = run([*PYTEST, "--collect-only", *suites, *options], Deadline(COLLECT_SECONDS, "collecting"), expect=None)
    cases = list(_cases(done.out.splitlines(), cell.id))
    if not cases:
        said = (done.err or done.out).strip().splitlines() or ["pytest said nothing"]
        raise BadInput(f"{' '.join(suites)}: no test in cell {cell.id}: {said[-1]}", mend="name a folder of suites/")
    return cases


def _cases(lines: Sequence[str], cell: str) -> Iterator[Case]:
    for line in lines:
        with contextlib.suppress(ValueError):  # of no cell, as a selftest with an id among its parameters
            yield Case(line, cell, named(line, [cell])[1])


def session(tests: Sequence[str], cell: Cell, folder: Path, seconds: float, options: Sequence[str] = ()) -> Run:
    """Run `tests` in one cell, as `recorded`."""
    return recorded([*tests, *cell.options, "--cell", cell.id, *options], folder, seconds, f"the session of {cell.id}")


def recorded(words: Sequence[str], folder: Path, seconds: float, what: str) -> Run:
    """Run pytest with these words; its record, pytest.log and pytest.code are in `folder`, which is fresh.

    DeadlineExpired after `seconds`; LabError with pytest's last words when it left no record.
    """
    kept = ["--record", str(folder), "--report", str(folder / "report")]
    done = run([*PYTEST, *words, *kept], Deadline(seconds, what), expect=None, grace=BYE_SECONDS)
    (folder / "pytest.log").write_text(done.out + done.err)
    (folder / CODE).write_text(f"{done.code}\n")
    runs = sorted(folder.glob("*/run.json"))
    if not runs:
        lines = [line for line in (done.out + done.err).splitlines() if line.strip()] or ["pytest said nothing"]
        raise LabError(f"no record: {lines[-1].strip()}", evidence=done.out[-2000:])
    return Run.open(runs[0].parent)


def results(run: Run, cell: Cell) -> list[CaseResult]:
    """What came of each case of the cell that a session ran."""
    return run.cell(cell.id).results()
