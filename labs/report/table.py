"""The verdict table for the terminal."""

from __future__ import annotations

from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from labs.report.record import Run
from labs.report.text import clean, reason

STYLE = {
    "fail": "bold red",
    "error": "bold magenta",
    "not-run": "magenta",
    "inconclusive": "yellow",
    "unproven": "yellow",
    "known": "cyan",
    "pass": "green",
    "skip": "dim",
}


@dataclass(frozen=True)
class Row:
    cell: str
    case: str
    outcome: str
    reason: str


def verdict_rows(run: Run) -> list[Row]:
    """One row a case, in the order of the plan; fit for any terminal."""
    return [
        Row(clean(cell), clean(result.case), result.outcome, reason(result))
        for cell, results in run.results().items()
        for result in results
    ]


def table(run: Run) -> Table:
    """The rows as a table; words carry the meaning, colour only repeats it."""
    made = Table()
    made.add_column("cell", no_wrap=True, overflow="fold")  # a name cut off with an ellipsis cannot be copied
    made.add_column("case", max_width=40, overflow="fold")
    made.add_column("outcome", no_wrap=True)
    made.add_column("reason", min_width=30, overflow="fold")
    for row in verdict_rows(run):
        made.add_row(Text(row.cell), Text(row.case), Text(row.outcome, STYLE[row.outcome]), Text(row.reason))
    return made
