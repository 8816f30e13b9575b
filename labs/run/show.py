"""What a run shows while it goes on: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Sequence

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from labs.invariant.verdict import SEVERITY
from labs.report.record import CaseResult, Run
from labs.run.children import Child
from labs.run.schedule import Need, Queue, Task, expected_seconds

log = logging.getLogger("labs")

REFRESH = 0.5  # seconds between two looks at the records of what runs
REVISE = 5.0  # seconds between two estimates of the time left


def span(seconds: float) -> str:
    """A time for people.

    >>> span(41.3), span(150), span(7500)
    ('41 s', '2 min 30 s', '2 h 5 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s" if whole < 600 and whole % 60 else f"{round(whole / 60)} min"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def tally(outcomes: Sequence[str]) -> str:
    """As '2 fail, 7 pass', the worst first."""
    counts = Counter(outcomes)
    return ", ".join(f"{counts[outcome]} {outcome}" for outcome in SEVERITY if counts[outcome])


class View:
    """Plain lines, as things happen."""

    def __init__(self, run: Run, cells: int, capacity: Need, jobs: int) -> None:
        self.run, self.cells, self.capacity, self.jobs = run, cells, capacity, jobs
        self.done = 0
        self.took = self.expected = 0.0  # seconds of the tasks that have ended, and what was expected of them
        self.began = time.monotonic()
        self.left = 0.0
        self._revised = 0.0

    @property
    def passed(self) -> float:
        """Seconds since the run, or its resumption, began."""
        return time.monotonic() - self.began

    def __enter__(self) -> View:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def said(self, line: str) -> None:
        log.info("%s", line)

    def started(self, task: Task) -> None:
        self.said(f"{task.id}: started, expected {span(task.seconds)}")

    def built(self, child: Child, code: int) -> None:
        end = f"done in {span(child.seconds)}" if code == 0 else f"failed: {child.last_words()}"
        self.took += child.seconds
        self.expected += child.seconds  # a guess that says nothing about cells
        self.said(f"{child.task.id}: {end}")

    def ended(
        self, child: Child, results: Sequence[CaseResult], again: Sequence[str], children: Sequence[Child], queue: Queue
    ) -> None:
        """A cell's pytest has ended; `again` are its cases that are tried again, the last two are what is left."""
        self.took += child.seconds
        self.expected += child.task.seconds
        self.done += not again
        self.revise(children, queue)
        told = f"{child.task.id}: {tally([result.outcome for result in results])} in {span(child.seconds)}"
        more = f"; {len(again)} again, on a fresh guest" if again else ""
        self.said(f"{told}{more}; {self.done} of {self.cells} cells, about {span(self.left)} left")

    def show(self, children: Sequence[Child], queue: Queue) -> None:
        """How it stands; called often."""

    def revise(self, children: Sequence[Child], queue: Queue) -> None:
        """Reckon the time left anew, by how the expectations have come true so far."""
        self._revised = time.monotonic()
        factor = self.took / self.expected if self.expected else 1.0
        rest = [Task(c.task.id, c.task.need, max(1.0, c.task.seconds * factor - c.seconds)) for c in children]
        waiting = [Task(t.id, t.need, t.seconds * factor, build=t.build) for t in queue.waiting]
        self.left = expected_seconds(self.capacity, self.jobs, [*rest, *waiting])


class LiveView(View):
    """A table that is drawn again and again, the lines above it."""

    def __init__(self, run: Run, cells: int, capacity: Need, jobs: int, console: Console) -> None:
        super().__init__(run, cells, capacity, jobs)
        self.console = console
        self.live = Live(console=console, auto_refresh=False, transient=True)
        self._shown = 0.0

    def __enter__(self) -> View:
        self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.live.stop()

    def said(self, line: str) -> None:
        self.console.print(Text(f"labs: {line}"))

    def started(self, task: Task) -> None:
        pass  # the table has it

    def show(self, children: Sequence[Child], queue: Queue) -> None:
        if time.monotonic() - self._shown < REFRESH:
            return
        self._shown = time.monotonic()
        if time.monotonic() - self._revised > REVISE:
            self.revise(children, queue)
        table = Table()
        for column in ("runs now", "cases", "so far", "expected"):
            table.add_column(column, overflow="fold")
        for child in children:
            times = span(child.seconds), span(child.task.seconds)
            table.add_row(Text(child.task.id), self._cases(child.task), *times)
        counts = f"{self.done} of {self.cells} cells, {len(queue.waiting)} wait"
        so_far = Text(f"{counts}, {span(self.passed)} so far, about {span(self.left)} left")
        self.live.update(Group(table, so_far), refresh=True)

    def _cases(self, task: Task) -> str:
        if task.build:
            return ""
        record = self.run.cell(task.id)
        planned = self.run.plan[task.id]
        done = sum(result.outcome != "not-run" for result in record.results() if result.case in planned)
        return f"{done} of {len(planned)}"
