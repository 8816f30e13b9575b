"""Noise: how likely each place of the change is, and which run is expected to tell most.

A change at `b` means that candidates before `b` show the new outcome at one unknown rate, those from `b` on at another.
Both rates carry a prior (`plan.before_runs`) and are integrated out, so that a change is judged by the counts on either
side of it, the ends' runs among them (a beta-binomial marginal likelihood).
"""

from __future__ import annotations

import functools

import numpy as np
from scipy.special import betaln, entr
from scipy.stats import beta

from labs.bisect.plan import Floats, Tally

JEFFREYS = np.full((2, 2), 0.5)


def _sides(seen: Tally) -> tuple[Floats, ...]:
    """Counts (new before, old before, new after, old after) for a change at 1..n-1, each of shape (n-1,)."""
    new, old = np.cumsum(seen.new).astype(float), np.cumsum(seen.old).astype(float)
    return new[:-1], old[:-1], new[-1] - new[:-1], old[-1] - old[:-1]


def posterior(seen: Tally, prior: Floats = JEFFREYS) -> Floats:
    """Probability that the change is at 1..n-1, of shape (n-1,)."""
    new_before, old_before, new_after, old_after = _sides(seen)
    before = betaln(prior[0, 0] + new_before, prior[0, 1] + old_before)
    told = before + betaln(prior[1, 0] + new_after, prior[1, 1] + old_after)
    weight = np.exp(told - told.max())
    made: Floats = weight / weight.sum()
    return made


def information(seen: Tally, weight: Floats, prior: Floats = JEFFREYS) -> Floats:
    """Expected information of one more run of each usable candidate on the place of the change, in nats; shape (n,).

    `weight` is the posterior of the place.
    """
    new_before, old_before, new_after, old_after = _sides(seen)
    before = (prior[0, 0] + new_before) / (prior[0].sum() + new_before + old_before)
    after = (prior[1, 0] + new_after) / (prior[1].sum() + new_after + old_after)
    size = len(seen.old)
    is_before = np.arange(size)[:, None] < np.arange(1, size)[None, :]
    rate = np.where(is_before, before, after)  # of the new outcome: (candidate, change)
    mean = rate @ weight
    gain: Floats = entr(mean) + entr(1 - mean) - (entr(rate) + entr(1 - rate)) @ weight
    return np.where(seen.usable, gain, 0.0)


def reluctance(seen: Tally) -> Floats:
    """Factor on a candidate's worth, shape (n,): what skips mostly has neighbours that skip too."""
    skipped = np.flatnonzero((seen.skip > 0) & (seen.judged == 0))
    places = np.arange(len(seen.skip))
    if not skipped.size:
        return np.ones(len(places))
    distance = np.abs(places[:, None] - skipped[None, :]).min(axis=1)
    made: Floats = 1 - 0.5**distance
    return made


def groups(seen: Tally, weight: Floats) -> tuple[int, int, float]:
    """The likeliest set of changes that no usable candidate tells apart: first, last (1..n-1), probability."""
    group = np.cumsum(seen.usable)[:-1]  # a change at b is told from one at b+1 by candidate b
    mass = np.bincount(group, weights=weight)
    members = np.flatnonzero(group == mass.argmax()) + 1
    return int(members[0]), int(members[-1]), float(mass.max())


def smallest(weight: Floats, confidence: float) -> tuple[int, int, float]:
    """First and last change of the narrowest run of neighbours that holds `confidence`, and what it holds."""
    total = np.concatenate([[0.0], np.cumsum(weight)])
    size = len(weight)
    ends = [(int(np.searchsorted(total, total[at] + confidence - 1e-9)), at) for at in range(size)]
    last, first = min(((end, at) for end, at in ends if end <= size), key=lambda pair: pair[0] - pair[1])
    return first + 1, last, float(total[last] - total[first])


@functools.lru_cache(maxsize=64)
def differ(low: tuple[int, int], high: tuple[int, int]) -> float:
    """Probability that the high end shows the new outcome more often than the low end; each as (new, old) runs."""
    rate = (np.arange(2000) + 0.5) / 2000
    above = beta.pdf(rate, 0.5 + high[0], 0.5 + high[1])
    below = beta.cdf(rate, 0.5 + low[0], 0.5 + low[1])
    return float((above * below).sum() / above.sum())
