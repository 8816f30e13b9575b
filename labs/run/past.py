"""How long cases and cells took before: from the runs on record."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from labs.report.record import read_lines

TASKS_FILE = "tasks.jsonl"  # of a run: one line a task that has ended, with its seconds of wall time
RUNS = 20  # the newest that are read
GUESS = 2.0  # seconds of a case that never ran
START = 20.0  # seconds of a cell beside its cases: pytest's start, the boot
DISK_MB = 50.0  # of a cell's record


@dataclass(frozen=True)
class Past:
    """Seconds of cases, by cell and case and by case alone; seconds of a cell beside its cases; MB of its record."""

    cases: Mapping[tuple[str, str], float] = field(default_factory=dict)
    anywhere: Mapping[str, float] = field(default_factory=dict)
    start: float = START
    disk_mb: float = DISK_MB

    def seconds(self, cell: str, cases: Sequence[str]) -> float:
        """What the cases of a cell are expected to take, with the boot."""
        return self.start + sum(self.cases.get((cell, case), self.anywhere.get(case, GUESS)) for case in cases)


def past(records: Path) -> Past:
    """From the newest runs in a folder of records; guesses where there is none."""
    cases: dict[tuple[str, str], float] = {}
    by_case: dict[str, list[float]] = {}
    starts, sizes = [], []
    for run in sorted(records.glob("2*/"))[-RUNS:]:  # names begin with the time
        wall = {row["task"]: row["seconds"] for row in read_lines(run / TASKS_FILE) if row["ended"] == 0}
        for path in run.glob("*/verdicts.jsonl"):
            took = {row["case"]: row["seconds"] for row in read_lines(path) if row["outcome"] != "error"}
            cell = path.parent.name
            cases |= {(cell, case): seconds for case, seconds in took.items()}
            for case, seconds in took.items():
                by_case.setdefault(case, []).append(seconds)
            if cell in wall:
                starts.append(wall[cell] - sum(took.values()))
                sizes.append(sum(file.lstat().st_size for file in path.parent.rglob("*")) / 2**20)
    return Past(
        cases,
        {case: statistics.median(seconds) for case, seconds in by_case.items()},
        max(1.0, statistics.median(starts)) if starts else START,
        max(1.0, statistics.quantiles(sizes, n=10)[-1]) if len(sizes) > 1 else DISK_MB,
    )
