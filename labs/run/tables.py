"""What `labs run` prints before and after: what it would take, and what came of it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from labs.commandline import show
from labs.invariant.verdict import EXIT_CODE, worst
from labs.report.record import Run
from labs.report.table import STYLE
from labs.report.text import reason
from labs.run.begin import FAILED, Tasks
from labs.run.schedule import Need, expected_seconds
from labs.run.show import span, tally

SHOWN = 40  # rows of cases that did not go well


def foretell(tasks: Tasks, cells: Mapping[str, Sequence[str]], capacity: Need, jobs: int) -> None:
    """Print what the cells, and what must be built for them, are expected to take."""
    listed = tasks.listed(cells, tasks.builds(list(cells)), int(capacity.cores))
    rows = [
        {
            "what": task.id,
            "cases": "" if task.build else str(len(cells[task.id])),
            "expected": span(task.seconds),
            "memory": f"{task.need.memory_mb:.0f} MB",
            "cores": f"{task.need.cores:g}",
            "disk": f"{task.need.disk_mb:.0f} MB",
        }
        for task in listed
    ]
    show(rows, False)
    together = span(expected_seconds(capacity, jobs, listed))
    alone, disk = (span(sum(task.seconds for task in listed)), sum(task.need.disk_mb for task in listed))
    print(
        f"{len(cells)} cells, {sum(map(len, cells.values()))} cases, {sum(task.build for task in listed)} builds: "
        f"expected {together} with at most {jobs} at once ({alone} one after the other), {disk:.0f} MB of disk"
    )
    for task in listed:
        if lack := capacity.lacks(Need(task.need.memory_mb, 0, task.need.disk_mb)):
            print(f"{task.id} would wait for {lack}")


def tell(run: Run, report: Path, passed: float, took: float) -> int:
    """Print the cells, what did not go well, and where to read more; the exit code. Seconds: in all, of all tasks."""
    results = run.results()
    console = Console(width=None if sys.stdout.isatty() else 120, no_color="NO_COLOR" in os.environ)
    table = Table()
    for column in ("cell", "outcome", "cases"):
        table.add_column(column, overflow="fold", no_wrap=column == "cell")
    for cell, cases in results.items():
        outcome = worst([result.outcome for result in cases])
        table.add_row(Text(cell), Text(outcome, STYLE[outcome]), tally([result.outcome for result in cases]))
    console.print(table)
    bad = [(cell, one) for cell, cases in results.items() for one in cases if one.outcome in FAILED or one.attempts > 1]
    for cell, one in bad[:SHOWN]:
        console.print(Text(f"{one.outcome}: {cell} {one.case}: {reason(one)}", STYLE[one.outcome]))
    if len(bad) > SHOWN:
        print(f"and {len(bad) - SHOWN} more")
    print(f"{span(passed)} in all; what ran took {span(took)} one after the other")
    for path in (report / "index.html", report / "junit.xml", run.path):
        print(path)
    return EXIT_CODE[worst([one.outcome for cases in results.values() for one in cases])]
