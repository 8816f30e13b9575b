"""Statistics of pairs: one number a boot and side, paired by round. The unit is a boot, never a sample."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, sqrt
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import bootstrap, permutation_test
from scipy.stats import t as t_distribution

EXACT = 13  # pairs whose sign flips are all tried


def sign_flip(differences: ArrayLike, shift: float, alternative: str) -> list[float]:
    """p-values of "the mean is `shift`" against `alternative` (greater, less, two-sided), one a row of `differences`.

    The permutation test of paired data: where nothing but chance tells the sides apart, each difference from `shift`
    may as well have the other sign. Exact up to EXACT pairs, so never below 2**-n; drawn with a fixed seed beyond.
    """
    values = np.atleast_2d(np.asarray(differences, dtype=float)) - shift
    rows, pairs = values.shape
    if pairs < 2 or not rows:
        return [1.0] * rows
    drawn = 2**pairs if pairs <= EXACT else 2**EXACT - 1
    done = permutation_test(
        (values,), _mean, permutation_type="samples", alternative=alternative, vectorized=True, axis=-1,
        n_resamples=drawn, rng=np.random.default_rng(1),
    )  # fmt: skip
    return [float(p) for p in done.pvalue]


def _mean(values: NDArray[Any], axis: int = -1) -> NDArray[Any]:
    """Rounded: differences that are equal but for their sign must not differ by how a sum was rounded."""
    return np.asarray(np.round(np.mean(values, axis=axis), 12))


def bootstrap_interval(values: ArrayLike, confidence: float) -> tuple[float, float]:
    """Interval of the mean of `values` by the bootstrap (BCa), with a fixed seed; equal values give one point."""
    column = np.asarray(values, dtype=float)
    if len(column) < 2 or np.ptp(column) < 1e-12:
        return float(column.mean()), float(column.mean())
    done = bootstrap((column,), np.mean, confidence_level=confidence, n_resamples=4999, rng=np.random.default_rng(1))
    low, high = done.confidence_interval
    return float(low), float(high)


def holm(p_values: Sequence[float], alpha: float) -> list[bool]:
    """Which hypotheses are rejected at a family-wise error rate of `alpha` (Holm's step-down method).

    >>> holm([0.01, 0.04, 0.03], 0.05)
    [True, False, False]
    """
    order = sorted(range(len(p_values)), key=lambda at: p_values[at])
    rejected = [False] * len(p_values)
    for step, at in enumerate(order):
        if p_values[at] > alpha / (len(p_values) - step):
            break
        rejected[at] = True
    return rejected


def detectable(differences: ArrayLike, pairs: int, alpha: float, power: float = 0.8) -> float:
    """How far a mean must be from the one tested for `pairs` of this spread to find it with `power` at level `alpha`.

    By the t distribution; infinite with so few pairs that no sign flip reaches `alpha`.
    """
    values = np.asarray(differences, dtype=float)
    if len(values) < 2 or 2.0**-pairs > alpha:
        return inf
    needed = float(t_distribution.ppf(1 - alpha, pairs - 1) + t_distribution.ppf(power, pairs - 1))
    return needed * float(values.std(ddof=1)) / sqrt(pairs)
