"""Outcomes that change more than once: the stretches of an axis that explain noisy counts best."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from labs.bisect.plan import Floats, Tally
from labs.bisect.posterior import JEFFREYS

DOUBT = 2.0  # nats: odds of 7 against its side, from which a candidate is asked again
PRICE = 100.0  # odds against one more change, times the places it could be at: noise alone rarely pays it


def changes(seen: Tally, prior: Floats = JEFFREYS) -> list[tuple[int, int]]:
    """Every change as (last judged candidate before it, first judged candidate after it), in order.

    The cheapest assignment of old or new to the judged candidates (Viterbi's algorithm), each side at the rate that
    its end showed.
    """
    places = np.flatnonzero(seen.judged)
    side = _cheapest(_costs(seen, prior)[places], _price(seen))
    at = np.flatnonzero(np.diff(side))
    return [(int(places[i]), int(places[i + 1])) for i in at]


def doubtful(seen: Tally, change: int, prior: Floats = JEFFREYS) -> int | None:
    """The usable candidate whose runs speak loudest for the other side of `change`, and not yet loud enough.

    Asked again it either joins its side or is a stretch of its own, which pays for two more changes; None when no
    candidate is in doubt.
    """
    costs = _costs(seen, prior)
    own = (np.arange(len(costs)) >= change).astype(int)
    against = costs[np.arange(len(costs)), own] - costs[np.arange(len(costs)), 1 - own]
    against = np.where(seen.usable & (against < 2 * _price(seen)), against, 0.0)
    return int(against.argmax()) if against.max() > DOUBT else None


def _costs(seen: Tally, prior: Floats) -> Floats:
    """Minus the log likelihood of each candidate's runs on either side, of shape (candidates, 2)."""
    rates = (seen.new[[0, -1]] + prior[:, 0]) / (seen.judged[[0, -1]] + prior.sum(axis=1))
    made: Floats = -(seen.new[:, None] * np.log(rates)[None, :] + seen.old[:, None] * np.log(1 - rates)[None, :])
    return made


def _price(seen: Tally) -> float:
    return float(np.log(PRICE * len(seen.old)))


def _cheapest(cost: Floats, price: float) -> NDArray[np.int64]:
    """Side (0 old, 1 new) of each judged candidate; the first is old and the last is new."""
    total = np.array([cost[0, 0], np.inf])
    came = np.zeros(cost.shape, dtype=np.int64)
    for row in range(1, len(cost)):
        stay, switch = total, total[::-1] + price
        came[row] = np.where(stay <= switch, [0, 1], [1, 0])
        total = np.minimum(stay, switch) + cost[row]
    side = np.ones(len(cost), dtype=np.int64)
    for row in range(len(cost) - 1, 0, -1):
        side[row - 1] = came[row, side[row]]
    return side
