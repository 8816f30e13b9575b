"""The processes of a run: a pytest a cell, a maker a build; each dies with `labs run`, however that ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from labs.child import BYE_SECONDS, PYTEST
from labs.command import end_group, spawn
from labs.deadline import Deadline
from labs.invariant.verdict import Verdict
from labs.report.record import CaseResult, CellRecord, Run
from labs.run.leftovers import MARK, PARENT
from labs.run.plan import todo
from labs.run.schedule import Task

LEAST_SECONDS, TIMES = 3600.0, 10.0  # a task may take so long, or so many times what is expected of it


@dataclass
class Child:
    """A task that runs. Its output is in `log`, from `at` on; `cases` are a cell's that it must give an outcome, with
    the attempts that each had before."""

    task: Task
    process: subprocess.Popen[bytes]
    log: Path
    at: int
    deadline: Deadline
    cases: dict[str, int]
    began: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    def ended(self) -> int | None:
        """Exit code, or None while it runs; one that is over its time is killed."""
        if self.process.poll() is None and self.deadline.expired:
            end_group(self.process)
        return self.process.poll()

    def last_words(self) -> str:
        """The line of its output that tells most of why it ended."""
        if self.deadline.expired:
            return f"not done after {self.deadline.seconds:.0f} s"
        with self.log.open("rb") as log:
            log.seek(self.at)
            lines = [line.strip() for line in log.read().decode(errors="replace").splitlines() if line.strip()]
        told = [line for line in lines if "lab error:" in line or line.startswith(("E ", "ERROR", "labs: "))]
        return (told or lines or ["it said nothing"])[-1]


def start_cell(run: Run, task: Task, suites: Sequence[str], scratch: Path) -> Child:
    argv = [*PYTEST, "--join", str(run.path), "--cell", task.id, f"--basetemp={scratch / task.id}", *suites]
    record = run.cell(task.id)
    return _start(run, task, argv, record.path / "pytest.log", scratch, attempts(record))


def attempts(record: CellRecord) -> dict[str, int]:
    """The cases that are to be done, with how often each was tried."""
    cases = set(todo(record))
    return {result.case: result.attempts for result in record.results() if result.case in cases}


def start_build(run: Run, task: Task, cell: str, scratch: Path) -> Child:
    argv = [sys.executable, "-m", "labs.run.builds", str(run.path), cell]
    return _start(run, task, argv, run.cell(cell).path / "build.log", scratch, {})


def _start(run: Run, task: Task, argv: list[str], log: Path, scratch: Path, cases: dict[str, int]) -> Child:
    env = {MARK: str(run.path.resolve()), PARENT: str(os.getpid()), "TMPDIR": str(scratch)}
    at = log.stat().st_size if log.exists() else 0
    deadline = Deadline(max(LEAST_SECONDS, TIMES * task.seconds), task.id)
    return Child(task, spawn(argv, log=log, env=env), log, at, deadline, cases)


def stop(children: Sequence[Child]) -> None:
    """Let them end their guests, as on Ctrl-C; kill those that do not."""
    for child in children:
        if child.process.poll() is None:
            os.killpg(child.process.pid, signal.SIGINT)
    deadline = Deadline(BYE_SECONDS, "children end")
    while any(child.process.poll() is None for child in children) and not deadline.expired:
        time.sleep(0.05)
    for child in children:
        end_group(child.process)


def settle(run: Run, child: Child, code: int) -> None:
    """A case that its cell's pytest has left without a word met infrastructure trouble; the record says so."""
    record = run.cell(child.task.id)
    silent = [one.case for one in record.results() if one.attempts == child.cases.get(one.case)]
    why = f"killed by signal {-code}" if code < 0 else f"ended with {code}"
    reason = f"the cell's pytest {why}: {child.last_words()}" if silent else ""
    for case in silent:
        verdict = Verdict("infrastructure", "error", reason)
        record.add(CaseResult(case, "error", verdict, reason=reason))
