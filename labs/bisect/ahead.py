"""Ahead: the artifacts of the next candidates are fetched or built while one is judged, in a process of its own."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from labs.bisect.axis import Axis
from labs.bisect.plan import Plan
from labs.bisect.search import Ask, decide
from labs.bisect.step import Step
from labs.command import end_group, spawn


def next_names(plan: Plan, steps: Sequence[Step], asked: str) -> list[str]:
    """Candidates that the search asks for after `asked`, whatever comes of that; none that was judged before."""
    moves = [decide(plan, [*steps, Step(asked, outcome)]) for outcome in ("good", "bad")]
    names = [plan.names[move.index] for move in moves if isinstance(move, Ask)]
    met = {asked, *(step.candidate for step in steps)}
    return [name for name in dict.fromkeys(names) if name not in met]


class Ahead:
    """One process at a time; what it makes is in the store, and the session that needs it waits for it there."""

    def __init__(self, axis: Axis, log: Path) -> None:
        self.axis = axis
        self.log = log
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Ahead:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process:
            end_group(self.process)

    def make(self, names: Sequence[str]) -> None:
        """Begin with these, one after the other, unless the last ones are still being made. What fails is told by the
        session that needs it."""
        if (self.process and self.process.poll() is None) or not names:
            return
        builds = [shlex.join([sys.executable, "-m", "labs", "build", *_options(self.axis, name)]) for name in names]
        self.process = spawn(["nice", "-n", "10", "sh", "-c", "; ".join(builds)], log=self.log)


def _options(axis: Axis, name: str) -> list[str]:
    cell = axis.cell(name)
    return [*cell.options, "--cell", cell.id]
