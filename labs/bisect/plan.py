"""Plan: candidates in order and what is asked of them. Tally: the steps so far, counted by candidate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from labs.bisect.step import Step

Counts = NDArray[np.int64]
Floats = NDArray[np.float64]
PLACE_ERROR = 0.6  # of the error allowed; simulated, 1.0 left 947 of 1000 searches among 129 candidates right at 0.95
TRIES = 2  # skips after which an end counts as one that cannot be judged
SURE_OF_RATE = 1e5  # runs that a rate given by the user counts as
FLAKY_RUNS = 10  # of each end, once a candidate was seen to be good and bad


@dataclass(frozen=True)
class Plan:
    """A search. `names` are the candidates in order, both ends included; `low` is the outcome of the first of them.

    `low="good"` looks for the first bad candidate, `low="bad"` for the first good one. `runs` of each end come first:
    with 1 the predicate is held to be deterministic until it contradicts itself. `right` is how often it is right where
    that is known before, as 0.8; with 0 it is measured. `skips` are never run, `start` are run before the search
    chooses; the search gives up after `most` runs.
    """

    names: tuple[str, ...]
    low: str = "good"
    confidence: float = 0.95
    runs: int = 1
    skips: frozenset[str] = frozenset()
    start: tuple[str, ...] = ()
    most: int = 1000
    right: float = 0.0

    def __post_init__(self) -> None:
        if len(self.names) < 2 or len(set(self.names)) != len(self.names):
            raise ValueError("a search needs two candidates or more, each with a name of its own")

    @property
    def high(self) -> str:
        return "bad" if self.low == "good" else "good"

    @property
    def aim(self) -> float:
        """What the likeliest place must reach: a part of the error allowed is left for ends that are refused, and for
        several changes seen where there is one, by chance."""
        return 1 - PLACE_ERROR * (1 - self.confidence)

    @property
    def bad_end(self) -> int:
        return 0 if self.low == "bad" else len(self.names) - 1


def effective(plan: Plan, steps: Sequence[Step]) -> list[Step]:
    """The steps as the search reads them: a failure of another kind than that of the bad end is a skip."""
    end = plan.names[plan.bad_end]
    meant = next((step.signature for step in steps if step.candidate == end and step.outcome == "bad"), "")
    return [
        replace(step, outcome="skip", reason=f"unrelated failure ({step.signature}): {step.reason}")
        if step.outcome == "bad" and meant and step.signature not in ("", meant)
        else step
        for step in steps
    ]


@dataclass(frozen=True)
class Tally:
    """Runs by candidate, each array of shape (candidates,): with the low end's outcome, with the high end's, skipped.

    `usable` marks candidates between the ends that may be asked. `again` and `lost`, of shape (2,), count the runs of
    the low and the high end after the first candidate between them: those judged, and those skipped.
    """

    old: Counts
    new: Counts
    skip: Counts
    usable: NDArray[np.bool_]
    again: Counts
    lost: Counts

    @property
    def verified(self) -> NDArray[np.bool_]:
        made: NDArray[np.bool_] = self.again > 0
        return made

    @property
    def judged(self) -> Counts:
        return self.old + self.new

    @property
    def contradicted(self) -> bool:
        """Whether a candidate was seen both good and bad."""
        return bool(((self.old > 0) & (self.new > 0)).any())


def tally(plan: Plan, steps: Sequence[Step]) -> Tally:
    """Count the steps; those of candidates that the plan does not have are left out."""
    size = len(plan.names)
    at = {name: index for index, name in enumerate(plan.names)}
    counts = {outcome: np.zeros(size, dtype=np.int64) for outcome in ("good", "bad", "skip")}
    again, lost = np.zeros(2, dtype=np.int64), np.zeros(2, dtype=np.int64)
    met: set[int] = set()
    ends, late = {0, size - 1}, False
    for step in effective(plan, steps):
        index = at.get(step.candidate, -1)
        if index < 0:
            continue
        if late and index in ends:
            (lost if step.outcome == "skip" else again)[min(index, 1)] += 1
        counts[step.outcome][index] += 1
        met.add(index)
        late = late or (bool(met - ends) if size > 2 else met == ends)
    old, new, skip = counts[plan.low], counts[plan.high], counts["skip"]
    usable = np.array([name not in plan.skips for name in plan.names]) & ((skip == 0) | (old + new > skip))
    usable[[0, -1]] = False
    return Tally(old, new, skip, usable, again, lost)


def wanted(plan: Plan, seen: Tally) -> int:
    """Runs that each end must have before anything between them is asked."""
    return plan.runs if plan.runs > 1 else FLAKY_RUNS if seen.contradicted and not plan.right else 1


def noisy(plan: Plan, seen: Tally) -> bool:
    return plan.runs > 1 or plan.right > 0 or seen.contradicted


def before_runs(plan: Plan) -> Floats:
    """What is held to have been seen before any run: rows old side, new side; columns new outcome, old outcome.

    Jeffreys' prior, Beta(1/2, 1/2), on both rates; where they are known, as many runs as leave nothing to learn.
    """
    if not plan.right:
        return np.full((2, 2), 0.5)
    return SURE_OF_RATE * np.array([[1 - plan.right, plan.right], [plan.right, 1 - plan.right]])
