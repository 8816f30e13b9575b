"""Simulated searches: how often they end right, and in how many runs, beside the fewest that anybody could need."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import log2
from pathlib import Path
from statistics import mean

from labs.bisect.drive import bisect
from labs.bisect.plan import FLAKY_RUNS, Plan
from labs.bisect.step import Log, Step

SIZES = (9, 17, 34, 65, 129)  # candidates, both ends included
MEASURED = FLAKY_RUNS


@dataclass
class Memory(Log):
    """A log that is on no disk."""

    path: Path = Path("nowhere")

    def add(self, step: Step) -> None:
        self.steps.append(step)


@dataclass(frozen=True)
class Figures:
    """Of `searches` with so many candidates: those that named the culprit, mean runs, and the limit on that mean.

    `told`: whether the search was told how often the test is right, or had to measure it at the ends.
    """

    candidates: int
    told: bool
    searches: int
    right: int
    runs: float
    limit: float

    @property
    def ratio(self) -> float:
        return self.runs / self.limit


@dataclass
class Coin:
    """Judges candidates `0`, `1`, ... of which those from `culprit` on are bad; right so often."""

    culprit: int
    right: float
    dice: random.Random
    steps: Memory = field(default_factory=Memory)

    def __call__(self, name: str) -> Step:
        bad = (int(name) >= self.culprit) == (self.dice.random() < self.right)
        return Step(name, "bad" if bad else "good", "simulated", "it" if bad else "")


def limit(candidates: int, right: float, confidence: float) -> float:
    """The fewest runs, on average, that name one culprit among the candidates with this confidence: log2(n) at the
    capacity of one run, and the last doubt at the largest divergence of its two outcomes.

    M. V. Burnashev, "Data transmission over a discrete channel with feedback. Random transmission time", Problems of
    Information Transmission 12 (1976); a test that is right with probability p is a binary symmetric channel.

    >>> round(limit(17, 0.8, 0.95), 1)
    17.3
    """
    wrong = 1 - right
    capacity = 1 + right * log2(right) + wrong * log2(wrong)
    divergence = (right - wrong) * log2(right / wrong)
    error = 1 - confidence
    return (1 - error) * log2(candidates - 1) / capacity + log2(1 / error) / divergence


def simulate(right: float, confidence: float, searches: int) -> Iterator[Figures]:
    """Figures for axes of SIZES, with the culprit at random places: told how often the test is right, and not."""
    for told in (True, False):
        for size in SIZES:
            yield simulated(size, right, confidence, searches, told)


def simulated(size: int, right: float, confidence: float, searches: int, told: bool) -> Figures:
    """Searches of one kind; the same seed every time."""
    dice = random.Random(f"{size} {told}")
    plan = Plan(
        tuple(map(str, range(size))), confidence=confidence, runs=1 if told else MEASURED, right=right if told else 0
    )
    hits, runs = 0, []
    for _ in range(searches):
        coin = Coin(dice.randrange(1, size), right, dice)
        answer = bisect(plan, coin, coin.steps)
        hits += answer.kind == "found" and answer.boundaries[0].high == coin.culprit
        runs.append(len(coin.steps.steps))
    return Figures(size, told, searches, hits, mean(runs), limit(size, right, confidence))
