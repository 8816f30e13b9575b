"""Bandwidth: what windows tell, as measured on real kernels and with each promise broken; without a guest."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from labs.command import run
from labs.deadline import Deadline
from labs.errors import LabError
from labs.invariant.bandwidth import in_force, within_quota, yields
from labs.prepare import AGENT
from labs.probe.bandwidth import Race, Window, run_yield, windows_of
from labs.probe.script import Outcome, op


def shared(yielder: float, *, count: int = 900, windows: int = 3) -> list[Window]:
    """Seconds of which the thread that yields had this part."""
    used = {"cpu 1": 1e6 * yielder, "cpu 2": 1e6 * (1 - yielder), "count 1": float(count)}
    return [Window(1e6, used)] * windows


@pytest.mark.parametrize(
    "windows, outcome, reason",
    [
        (shared(0.500), "fail", "the thread that yields has 50.0 % of the CPU"),  # 6.12.57
        (shared(0.017), "pass", "has 1.7 % of the CPU, the one that spins 98.3 %"),  # 6.12.69
        (shared(0.072), "pass", ""),  # 7.3.4
        (shared(0.5, count=9), "inconclusive", "27 yields in 3 windows"),
        (shared(0.5, windows=2), "inconclusive", "in 2 windows"),
        ([Window(4e6, one.grew) for one in shared(0.5)], "inconclusive", "3000 of 12000 ms used"),
        ([], "inconclusive", "0 yields"),
    ],
)
def test_what_a_yield_leaves(windows: list[Window], outcome: str, reason: str) -> None:
    verdict = yields(windows)
    assert (verdict.outcome, reason in verdict.reason) == (outcome, True), verdict.reason


def test_one_odd_window_decides_nothing() -> None:
    assert yields([*shared(0.02, windows=2), *shared(0.9, windows=1)]).outcome == "pass"


def busy(*used_ms: float, wall_ms: float = 1_100, throttled: int = 10) -> list[Window]:
    return [Window(1000 * wall_ms, {"usage_usec": 1000 * used, "nr_throttled": throttled}) for used in used_ms]


LIMIT = {"quota_us": 20_000, "period_us": 100_000, "cpus": 2}


@pytest.mark.parametrize(
    "windows, more, outcome, reason",
    [
        (busy(220, 220, 225), {}, "pass", "20.2 % of a CPU was used in 33 periods, the quota is 20.0 %"),
        (busy(251, 251, 251), {}, "fail", "too much in 3 of 3 windows"),
        (busy(251, 251, 251), {"burst_us": 20_000}, "pass", "and a burst of 20000 us"),
        (busy(271, 271, 220), {"burst_us": 20_000}, "fail", "too much in 2 of 3"),
        (busy(2200, 220, 200), {}, "pass", ""),  # one late tick
        (busy(20, 20, 20, throttled=0), {}, "inconclusive", "it was never throttled"),
        (busy(2200, 2200, 2200, throttled=0), {}, "fail", "200.0 % of a CPU"),
        (busy(220, 220), {}, "inconclusive", "too little was seen"),
        (busy(2200, 2200, 2200, wall_ms=900), {}, "inconclusive", "too little was seen"),
    ],
)
def test_what_a_quota_leaves(windows: list[Window], more: dict[str, int], outcome: str, reason: str) -> None:
    verdict = within_quota(windows, **LIMIT, **more)
    assert (verdict.outcome, reason in verdict.reason) == (outcome, True), verdict.reason


def races(*, said: str, used: float, throttled: int) -> list[Race]:
    return [Race(said, Window(450e3, {"usage_usec": 450e3 * used, "nr_throttled": throttled}))] * 6


HELD = races(said="20000 100000", used=0.2, throttled=4)
FREE = races(said="max 100000", used=2.0, throttled=0)


@pytest.mark.parametrize(
    "more, outcome, reason",
    [
        ([], "pass", "in each of 12 rounds"),
        (races(said="20000 100000", used=1.9, throttled=0)[:1], "fail", "in 1 of 13 rounds, as: cpu.max says 20000"),
        (races(said="max 100000", used=0.2, throttled=4)[:2], "fail", "in 2 of 14 rounds, as: cpu.max says max"),
        (races(said="max 100000", used=0.2, throttled=1)[:1], "pass", ""),
    ],
)
def test_what_is_left_of_racing_writes(more: list[Race], outcome: str, reason: str) -> None:
    verdict = in_force([*HELD, *FREE, *more], cpus=2)
    assert (verdict.outcome, reason in verdict.reason) == (outcome, True), verdict.reason
    assert in_force(HELD, cpus=2).outcome == "inconclusive"


def test_readings_make_windows() -> None:
    stat = "17 (a) b) R 1 2 3 4 5 6 7 8 9 10 {} {} 0 0"
    rows = [
        [
            Outcome(op("proc", 1, "stat"), 0, stat.format(*times), start, start),
            Outcome(op("count", 1), 0, count, start, start),
            Outcome(op("read", "cpu.stat"), 0, f"usage_usec {used}\nnr_throttled 1\n", start, start),
        ]
        for start, times, count, used in [(5_000, (1, 2), "7", 10), (9_000, (3, 5), "9", 15)]
    ]
    grew = {"cpu 1": 50_000.0, "count 1": 2.0, "usage_usec": 5.0, "nr_throttled": 0.0}
    assert windows_of(rows) == (Window(4.0, grew),)
    rows[1][0] = replace(rows[1][0], text="17 (a) R 1")
    with pytest.raises(LabError, match="could not look at proc 1 'stat'"):
        windows_of(rows)


def test_the_probe_measures_this_very_host(program: Path, tmp_path: Path) -> None:
    """The agent as it runs in guests, on a folder that stands for a group."""

    def here(command: str, seconds: float, stdin: bytes = b"") -> Any:
        done = run(["sh", "-c", command.replace(AGENT, str(program))], Deadline(60, "agent"), stdin=stdin)
        return SimpleNamespace(code=done.code, out=done.out, err=done.err)

    (tmp_path / "cgroup.procs").touch()
    windows = run_yield(SimpleNamespace(run=here), str(tmp_path), 0, count=2, window_ms=100)  # type: ignore[arg-type]
    assert len(windows) == 2 and all(window["count 1"] > 10 and window.wall_us >= 100_000 for window in windows)
    with pytest.raises(LabError, match="was stopped"):
        run_yield(SimpleNamespace(run=here), str(tmp_path / "none"), 0, count=1, window_ms=1)  # type: ignore[arg-type]
