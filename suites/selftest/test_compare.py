"""The judge of comparisons: right about samples whose truth is known, at the error rates that it states."""

from __future__ import annotations

import json
from math import inf, log

import numpy as np
import pytest

from labs.compare import Round, compared
from labs.compare.looks import looks
from labs.compare.paired import bootstrap_interval, detectable, holm, sign_flip


def boots(slower: float, rounds: int = 10, spread: float = 0.003, seed: int = 1, names: str = "wm") -> list[Round]:
    """Rounds in which B takes (1 + slower) times as long; `spread` from boot to boot (a part)."""
    rng = np.random.default_rng(seed)

    def side(factor: float) -> dict[str, np.ndarray]:
        return {name: 1000 * factor * np.exp(rng.normal(0, spread)) * np.arange(0.9, 1.1, 0.001) for name in names}

    return [Round(side(1.0), side(1.0 + slower)) for _ in range(rounds)]


@pytest.mark.parametrize("slower, code", [(0.0, 0), (0.02, 0), (-0.3, 0), (0.05, 4), (0.08, 1), (0.5, 1)])
def test_the_bound_decides(slower: float, code: int) -> None:
    assert compared(boots(slower), 0.05).code == code


def test_a_planted_slowdown_is_measured_rightly() -> None:
    result = compared(boots(0.2), 0.05)
    for row in result.rows:
        assert row.effect == pytest.approx(0.2, abs=0.01) and row.low <= row.effect <= row.high
        assert (row.outcome, row.differs) == ("regression", True)
        assert row.a_ns < row.b_ns
    assert result.reason.startswith(("w p", "m p")) and "% longer in B" in result.reason


def test_one_slow_measure_among_many_is_named() -> None:
    slow, rest = boots(0.1, names="x"), boots(0.0, names="abcdef")
    rounds = [Round({**r.a, **s.a}, {**r.b, **s.b}) for r, s in zip(rest, slow, strict=True)]
    result = compared(rounds, 0.05)
    assert [row.name for row in result.rows if row.outcome == "regression"] == ["x p50", "x p99"]
    assert result.code == 1 and "x p" in result.reason and "and 1 more" in result.reason


def test_equal_boots_differ_in_nothing_and_need_six_rounds() -> None:
    one = Round({"w": np.arange(1000.0, 2000)}, {"w": np.arange(1000.0, 2000)})
    result = compared([one] * 10, 0.05)
    assert (result.code, result.rounds) == (0, 6)
    assert [(row.effect, row.differs) for row in result.rows] == [(0.0, None)] * 2


@pytest.mark.parametrize("rounds", [0, 1, 2, 4])
def test_too_few_rounds_are_inconclusive_whatever_they_show(rounds: int) -> None:
    for slower in (0.0, 3.0):
        result = compared(boots(slower, rounds), 0.05)
        assert result.code == 4 and result.done
        assert all(row.smallest == inf for row in result.rows)


def test_noise_is_inconclusive_and_tells_what_it_could_have_seen() -> None:
    result = compared(boots(0.04, spread=0.1), 0.05)
    assert result.code == 4
    assert all(0.1 < row.smallest < 1 for row in result.rows)


def test_a_run_that_is_not_over_goes_on_unless_a_look_decides() -> None:
    assert not compared(boots(0.05, 7), 0.05, planned=10).done
    assert compared(boots(0.0, 7), 0.05, planned=10).done
    again = compared(boots(0.0, 10), 0.05, planned=10)
    assert again.to_json() == compared(boots(0.0, 10)[:7], 0.05, planned=10).to_json()  # later rounds change nothing


def test_a_measure_that_one_side_lacks_is_no_pass() -> None:
    rounds = [Round(one.a, {"w": one.b["w"]}) for one in boots(0.0)]
    result = compared(rounds, 0.05)
    assert result.code == 4 and result.missing == {"m": "0 samples in a boot of B; 100 are needed"}
    slow = [Round(one.a, {"w": one.b["w"]}) for one in boots(0.5)]
    assert compared(slow, 0.05).code == 1


def test_json_is_plain() -> None:
    told = json.loads(json.dumps(compared(boots(0.0, 3), 0.05).to_json()))
    assert told["result"] == "inconclusive" and told["rows"][0]["smallest"] is None


def test_false_alarms_are_as_rare_as_stated() -> None:
    """B as slow as the bound allows, the hardest case: 5 % of runs may be called a regression."""
    runs = [compared(boots(0.05, spread=0.02, seed=seed, names="w"), 0.05) for seed in range(100)]
    assert sum(run.code == 1 for run in runs) <= 11
    assert sum(run.code == 0 for run in runs) <= 11


def test_looks_share_the_level() -> None:
    for rounds in (2, 5, 6, 10, 20, 40):
        for rows in (1, 4, 16):
            plan = looks(rounds, rows, 0.05)
            for family in ("slower", "within", "differs"):
                assert sum(getattr(look, family) for look in plan) <= 0.05 + 1e-12
            assert all(look.slower == 0 or rows * 2.0**-look.rounds <= look.slower for look in plan)


def test_the_sign_flip_test_counts_flips() -> None:
    assert sign_flip([[1, 2, 3, 4, 5], [-1, 2, 3, 4, 5]], 0, "greater") == pytest.approx([1 / 32, 2 / 32])
    assert sign_flip([1, 2, 3, 4, 5], 0, "less") == [1.0]
    assert sign_flip([0.1] * 10, 0.1, "greater") == [1.0]
    assert sign_flip([1.0], 0, "greater") == [1.0]
    assert sign_flip(np.full(30, 1.0), 0, "greater")[0] < 0.001


def test_holm_steps_down() -> None:
    assert holm([0.001, 0.02, 0.03, 0.4], 0.05) == [True, False, False, False]
    assert holm([0.01, 0.02], 0.05) == [True, True]
    assert holm([0.01], 0.0) == [False]


def test_the_interval_covers_and_the_detectable_effect_is_detected() -> None:
    rng = np.random.default_rng(3)
    covered = [low <= 0 <= high for low, high in (bootstrap_interval(rng.normal(size=12), 0.95) for _ in range(200))]
    assert 0.85 <= np.mean(covered) <= 0.99
    effect = detectable(rng.normal(size=10_000), 10, 0.01)
    found = np.mean(np.array(sign_flip(rng.normal(effect, 1, (200, 10)), 0, "greater")) <= 0.01)
    assert 0.65 <= found <= 0.92
    assert detectable([1.0, 2.0], 3, 0.01) == inf


def test_an_effect_is_a_ratio() -> None:
    (row,) = (r for r in compared(boots(1.0, spread=0, names="w"), 0.05).rows if r.quantile == "p50")
    assert row.effect == pytest.approx(1.0) and log(row.b_ns / row.a_ns) == pytest.approx(log(2))
