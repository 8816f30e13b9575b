"""Step: what came of one run of one candidate. Log: steps on disk, one line each, whole or absent."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from labs.errors import BadInput
from labs.report.record import append_line, read_lines

OUTCOMES = ("good", "bad", "skip")


@dataclass(frozen=True)
class Step:
    """One run. `signature` tells failures of different kinds apart: one that is not the bad end's is no `bad`.

    `evidence` is the folder of the raw record, seen from the folder of all records; `key` names all that went
    in, so that the step serves a later search too.
    """

    candidate: str
    outcome: str
    reason: str = ""
    signature: str = ""
    evidence: str = ""
    seconds: float = 0.0
    key: str = ""
    cached: bool = False

    def __post_init__(self) -> None:
        if self.outcome not in OUTCOMES:
            raise ValueError(f"a step is one of {', '.join(OUTCOMES)}, not {self.outcome}")

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass
class Log:
    """The steps of one search. Every step is on disk before the next is asked for; a torn line was no step."""

    path: Path
    steps: list[Step] = field(default_factory=list)

    @classmethod
    def open(cls, path: Path) -> Log:
        """The log as far as it goes; empty when there is none yet. BadInput for lines that are no steps."""
        return cls(path, read_steps(path))

    def add(self, step: Step) -> None:
        append_line(self.path, json.dumps(step.to_json()).encode() + b"\n")
        self.steps.append(step)


def read_steps(path: Path) -> list[Step]:
    """Steps in the order in which they were made; BadInput for a line that is JSON and no step."""
    steps = []
    for row in read_lines(path):
        try:
            steps.append(Step(**row))
        except (TypeError, ValueError) as error:
            raise BadInput(f"{path} is no log of a search: {error}") from None
    return steps
