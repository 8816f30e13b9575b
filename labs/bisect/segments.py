"""Outcomes that change more than once: the stretches of an axis that explain noisy counts best."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from labs.bisect.plan import Tally

PRICE = 100.0  # odds against one more change, times the places it could be at: noise alone rarely pays it


def changes(seen: Tally) -> list[tuple[int, int]]:
    """Every change as (last judged candidate before it, first judged candidate after it), in order.

    The cheapest assignment of old or new to the judged candidates (Viterbi's algorithm), each side at the rate that
    its end showed.
    """
    places = np.flatnonzero(seen.judged)
    rates = (seen.new[[0, -1]] + 0.5) / (seen.judged[[0, -1]] + 1.0)
    new, old = seen.new[places][:, None], seen.old[places][:, None]
    cost = -(new * np.log(rates)[None, :] + old * np.log(1 - rates)[None, :])  # (judged, side)
    side = _cheapest(cost, float(np.log(PRICE * len(seen.old))))
    at = np.flatnonzero(np.diff(side))
    return [(int(places[i]), int(places[i + 1])) for i in at]


def _cheapest(cost: NDArray[np.float64], price: float) -> NDArray[np.int64]:
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
