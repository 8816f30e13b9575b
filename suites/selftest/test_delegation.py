"""Delegation judged on made-up evidence: what holds passes, planted faults are caught, too little decides nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from labs.invariant.delegation import (
    LEAST_ROUNDS,
    bounded,
    every_start,
    kept,
    no_faster,
    no_reload,
    ratio,
    same,
    slower,
    transient_units,
)
from labs.probe.delegation import Start, Starts, Storm, Traffic, tally


def times(factor: float, seed: int, rounds: int = 12) -> list[int]:
    return [int(us) for us in 100_000 * factor * np.random.default_rng(seed).lognormal(0, 0.05, rounds)]


def start(us: int = 1000, code: int = 0, said: str = "") -> Start:
    return Start("systemd", "no", us, code, said)


def test_ratio_finds_what_was_put_in() -> None:
    middle, low, high = ratio(times(1.5, 1, 40), times(1, 2, 40))
    assert 1.4 < low < middle < high < 1.6
    assert low < 1.5 < high


@pytest.mark.parametrize(("factor", "outcome"), [(1.5, "pass"), (1.0, "inconclusive"), (0.7, "fail")])
def test_slower(factor: float, outcome: str) -> None:
    assert slower(times(factor, 3), times(1, 4)).outcome == outcome


@pytest.mark.parametrize(
    ("factor", "outcome"), [(1.0, "pass"), (1.1, "pass"), (1.25, "inconclusive"), (0.57, "fail"), (1.6, "fail")]
)
def test_same(factor: float, outcome: str) -> None:
    assert same(times(factor, 5), times(1, 6)).outcome == outcome


@pytest.mark.parametrize(("factor", "outcome"), [(3.0, "pass"), (1.08, "pass"), (0.8, "inconclusive"), (0.5, "fail")])
def test_no_faster(factor: float, outcome: str) -> None:
    assert no_faster(times(factor, 7), times(1, 8)).outcome == outcome


def test_starts_of_each_hierarchy_are_kept_apart() -> None:
    found = Starts((start(7), replace(start(9), hierarchy="v1")), ({}, {}))
    assert (found.of("systemd", "no"), found.of("systemd", "no", "v1")) == ([7], [9])


@pytest.mark.parametrize("judge", [slower, same, no_faster])
def test_too_few_rounds(judge) -> None:
    few = times(3, 1, LEAST_ROUNDS - 1)
    assert judge(few, few).outcome == "inconclusive"
    assert judge([], []).outcome == "inconclusive"
    assert judge(times(1, 1, 8), times(1, 1, 9)).outcome == "inconclusive"


def test_every_start() -> None:
    assert every_start([start()] * 4, 4).outcome == "pass"
    assert every_start([start()] * 3, 4).outcome == "inconclusive"
    failed = every_start([start(), start(code=1, said="no such unit")], 2)
    assert failed.outcome == "fail"
    assert "no such unit" in failed.reason


@pytest.mark.parametrize(
    ("driver", "asked", "outcome"), [("systemd", 3, "pass"), ("systemd", 2, "fail"), ("systemd", 4, "fail"),
                                     ("cgroupfs", 0, "pass"), ("cgroupfs", 1, "fail")]
)  # fmt: skip
def test_transient_units(driver: str, asked: int, outcome: str) -> None:
    assert transient_units(driver, Traffic(3, {"StartTransientUnit": asked, "StopUnit": 1})).outcome == outcome


@pytest.mark.parametrize(("calls", "outcome"), [({}, "pass"), ({"Reload": 1}, "fail"), ({"Reexecute": 1}, "fail")])
def test_no_reload(calls: Mapping[str, int], outcome: str) -> None:
    assert no_reload(Traffic(3, calls)).outcome == outcome


@pytest.mark.parametrize("judge", [no_reload, lambda traffic: transient_units("systemd", traffic)])
def test_nothing_was_watched(judge) -> None:
    assert judge(Traffic(0, {})).outcome == "inconclusive"


def storm(quiet: list[Start], stormed: list[Start], answered: int) -> Storm:
    return Storm(tuple(quiet), tuple(stormed), answered)


def test_storm() -> None:
    quiet = [start(1000), start(1100)]
    assert bounded(storm(quiet, [start(15_000)], 50)).outcome == "pass"
    assert bounded(storm(quiet, [start(25_000)], 50)).outcome == "fail"
    assert bounded(storm(quiet, [start(1000, 1, "timed out")], 50)).outcome == "fail"
    assert bounded(storm(quiet, [start(1000)], 0)).outcome == "inconclusive"
    assert bounded(storm(quiet, [], 50)).outcome == "inconclusive"


WHOLE = {"controllers": "memory pids", "groups": "payload\nchild", "moved": "77", "left": ""}


def test_subtree_is_kept() -> None:
    assert kept(WHOLE).outcome == "pass"


@pytest.mark.parametrize(
    "fault",
    [{"controllers": "pids"}, {"groups": "payload"}, {"moved": ""}, {"left": "/sys/fs/cgroup/x"}, {"groups": ""}],
)
def test_subtree_that_was_touched(fault: dict[str, str]) -> None:
    assert kept({**WHOLE, **fault}).outcome == "fail"


def test_calls_are_counted_past_whatever_else_is_printed() -> None:
    def line(**fields: object) -> str:
        return json.dumps({"type": "method_call", "destination": "org.freedesktop.systemd1", **fields})

    text = "\n".join([
        "Monitoring bus message stream.", "", "{broken", "[1, 2]", "null",
        line(member="StartTransientUnit"), line(member="StopUnit"), line(member="StartTransientUnit"),
        line(member="Hello", destination="org.freedesktop.DBus"), line(member="JobRemoved", type="signal"),
        line(member=7), line(),
    ])  # fmt: skip
    assert tally(text) == {"StartTransientUnit": 2, "StopUnit": 1}


def test_evidence_is_saved_whole(tmp_path: Path) -> None:
    Starts((start(7), start(8, 1)), ({}, {})).save(tmp_path / "starts.npz")
    Traffic(3, {"StopUnit": 3}).save(tmp_path / "bus.npz")
    storm([start(1)], [start(2), start(3)], 9).save(tmp_path / "storm.npz")
    with np.load(tmp_path / "starts.npz") as saved:
        assert (saved["us"].tolist(), saved["code"].tolist(), saved["driver"].tolist()) == (
            [7, 8],
            [0, 1],
            ["systemd"] * 2,
        )
    with np.load(tmp_path / "bus.npz") as saved:
        assert (int(saved["containers"]), saved["member"].tolist(), saved["calls"].tolist()) == (3, ["StopUnit"], [3])
    with np.load(tmp_path / "storm.npz") as saved:
        assert (int(saved["quiet"]), int(saved["answered"]), saved["us"].tolist()) == (1, 9, [1, 2, 3])
