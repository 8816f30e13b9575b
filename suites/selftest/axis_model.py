"""Simulated axes for the search: what each candidate shows is given, and what it was asked is counted."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from labs.bisect.drive import bisect
from labs.bisect.plan import Plan
from labs.bisect.search import Answer
from labs.bisect.step import Log, Step


@dataclass
class Memory(Log):
    """A log that is on no disk."""

    path: Path = Path("nowhere")

    def add(self, step: Step) -> None:
        self.steps.append(step)


@dataclass
class Axis:
    """`shown[i]` is what candidate i shows: a side (0 old, 1 new), None for a skip, or the rate of the new side."""

    shown: Sequence[float | None]
    low: str = "good"
    seed: int = 0
    signatures: Mapping[int, str] = field(default_factory=dict)
    asked: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)

    def plan(self, **more: object) -> Plan:
        return Plan(tuple(f"v{index}" for index in range(len(self.shown))), self.low, **more)  # type: ignore[arg-type]

    def judge(self, name: str) -> Step:
        self.asked[name] += 1
        shown = self.shown[int(name[1:])]
        if shown is None:
            return Step(name, "skip", "it does not boot")
        new = self.dice.random() < shown
        outcome = ("bad" if self.low == "good" else "good") if new else self.low
        signature = self.signatures.get(int(name[1:]), "lost update") if outcome == "bad" else ""
        return Step(name, outcome, "seen", signature)

    def search(self, log: Log | None = None, **more: object) -> Answer:
        return bisect(self.plan(**more), self.judge, log if log is not None else Memory())


def step_at(size: int, culprit: int, low: float = 0, high: float = 1) -> list[float | None]:
    """What the candidates of a monotone axis show: `high` from `culprit` on."""
    return [low] * culprit + [high] * (size - culprit)
