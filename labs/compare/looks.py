"""When a comparison may stop early: looks at fixed numbers of rounds, each with its share of the error rate.

The level is spent in proportion to the rounds that are done (Kim and DeMets 1987, with power 1). A look whose share no
sign flip of so few pairs can reach is left out, and keeps its share for later ones. The shares add up to the level, so
the chance of any wrong rejection in a whole run is at most that, by the union bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

PARTS = (0.6, 0.8, 1.0)


@dataclass(frozen=True)
class Look:
    """After `rounds`, three families of tests, each at its level: that something is slower than the bound allows (Holm
    over all rows), that all rows are within it (each row), that sides differ at all (Holm, two-sided). 0: not here."""

    rounds: int
    slower: float
    within: float
    differs: float


def looks(rounds: int, rows: int, alpha: float) -> list[Look]:
    """The looks of a run of at most `rounds`, over `rows` invariants.

    >>> [(look.rounds, look.slower > 0, look.within > 0) for look in looks(10, 14, 0.05)]
    [(6, False, True), (8, False, True), (10, True, True)]
    """
    numbers = sorted({ceil(part * rounds) for part in PARTS}) if rounds else []
    families = [list(_shares(numbers, tests, alpha)) for tests in (rows, 1, 2 * rows)]
    return [Look(number, *shares) for number, *shares in zip(numbers, *families, strict=True)]


def _shares(numbers: list[int], tests: int, alpha: float) -> Iterator[float]:
    spent = 0.0
    for number in numbers:
        share = alpha * number / numbers[-1] - spent
        if tests * 2.0**-number > share:
            share = 0.0
        spent += share
        yield share
