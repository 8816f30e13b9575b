"""Quantiles that are real samples, and latency that is never judged where it cannot be measured."""

from __future__ import annotations

import numpy as np
import pytest

from labs.invariant.latency import latency
from labs.stats import quantile


@pytest.mark.parametrize(
    ("samples", "q", "expected"),
    [
        ([5], 0.5, 5),
        ([5], 0.99, 5),
        ([1, 2], 0.5, 1),
        ([1, 2], 0.51, 2),
        ([3, 1, 2], 0, 1),
        ([3, 1, 2], 1, 3),
        (range(1, 101), 0.99, 99),
        (range(1, 102), 0.99, 100),
        (range(1, 101), 0.07, 7),  # 0.07 * 100 is 7.000000000000001 in binary
        (range(1, 1001), 0.999, 999),
    ],
)
def test_nearest_rank(samples: list[int], q: float, expected: float) -> None:
    assert quantile(list(samples), q) == expected


def test_a_quantile_is_a_sample_that_enough_do_not_exceed() -> None:
    rng = np.random.default_rng(1)
    for _ in range(300):
        samples = rng.integers(0, 50, rng.integers(1, 40))
        percent = int(rng.integers(0, 101))
        found = quantile(samples, percent / 100)
        assert found in samples
        assert np.count_nonzero(samples <= found) * 100 >= percent * len(samples)
        assert np.count_nonzero(samples < found) * 100 < max(percent * len(samples), 1)


@pytest.mark.parametrize(("samples", "q"), [([], 0.5), ([1], 1.01), ([1], -0.1)])
def test_refused_quantiles(samples: list[int], q: float) -> None:
    with pytest.raises(ValueError, match="quantile"):
        quantile(samples, q)


HUNDRED = np.arange(1, 101) * 1000  # 1 to 100 us


@pytest.mark.parametrize(
    ("samples", "accelerator", "bound", "outcome", "word"),
    [
        (HUNDRED, "kvm", 99, "pass", "within"),
        (HUNDRED, "kvm", 98.9, "fail", "exceeds"),
        (HUNDRED, "tcg", 1_000_000, "inconclusive", "emulation"),
        (HUNDRED, "tcg", 1, "inconclusive", "emulation"),
        (HUNDRED[:99], "kvm", 1000, "inconclusive", "99 samples"),
        ([], "kvm", 1000, "inconclusive", "0 samples"),
    ],
)
def test_latency_outcome(samples: list[int], accelerator: str, bound: float, outcome: str, word: str) -> None:
    verdict = latency("attach", samples, accelerator, bound)
    assert (verdict.invariant, verdict.outcome) == ("attach latency", outcome)
    assert word in verdict.reason


def test_figures_are_given_even_where_nothing_is_judged() -> None:
    assert latency("attach", HUNDRED, "tcg", 1).figures == {"p50 us": 50, "p99 us": 99, "max us": 100}
    assert latency("attach", HUNDRED[:99], "kvm", 1).figures == {"p50 us": 50, "max us": 99}
    assert latency("attach", [], "kvm", 1).figures == {}
