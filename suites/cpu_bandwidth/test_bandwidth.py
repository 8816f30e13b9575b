"""Who gets the CPU: beside a thread that yields, with a quota, and after writers of the quota have raced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from labs.casebook import Bench
from labs.invariant.bandwidth import in_force, within_quota, yields
from labs.probe.bandwidth import run_busy, run_race, run_yield
from labs.probe.promises import absent, root_group, run_promises
from labs.probe.register import Absent, group
from labs.promise import Promise
from labs.promise import judge as judged
from labs.promise.families import FAMILIES

WINDOWS, FULL_WINDOWS = 3, 15
YIELD_MS, QUOTA_MS, RACE_MS = 1_000, 1_100, 300  # of a window; of the second, eleven periods
QUOTA_US, PERIOD_US, BURST_US = 20_000, 100_000, 20_000
MAX, QUOTA = ("cpu.max", f"max {PERIOD_US}"), ("cpu.max", f"{QUOTA_US} {PERIOD_US}")
ROUNDS, FULL_ROUNDS, WRITES = 40, 400, 2
# Promises on single operations that this suite answers for, too.
NAMED = ("cpu.max and cpu.max.burst leave each other alone when nobody", "cpu.stat only grows", "two busy groups share")
PROMISES = [one for family in FAMILIES.values() for one in family if one.name.startswith(NAMED)]


@dataclass(frozen=True)
class Busy:
    """A group that is kept busy by `order` on every CPU, what is written to its files, and to its child's."""

    order: str
    writes: Sequence[tuple[str, str]] = (QUOTA,)
    burst_us: int = 0
    inner: Sequence[tuple[str, str]] = ()


KINDS = {
    "spin": Busy("spin"),
    "yield": Busy("yield"),
    "storm": Busy("storm"),
    "burst": Busy("spin", (QUOTA, ("cpu.max.burst", str(BURST_US))), BURST_US),
    "child-with-more": Busy("spin", inner=(("cpu.max", f"{4 * QUOTA_US} {PERIOD_US}"),)),
    "child-without": Busy("spin", inner=(MAX,)),
}


def cpus(bench: Bench) -> int:
    return int(bench.booted.facts["cpus"])


def count(bench: Bench) -> int:
    return FULL_WINDOWS if bench.full else WINDOWS


def test_yield(bench: Bench, judge):
    with bench.watching(), group(bench.guest, "lab-yield", ["cpu.stat"]) as path:
        windows = run_yield(bench.guest, path, cpus(bench) - 1, count=count(bench), window_ms=YIELD_MS)
    judge(yields(windows), ["sched_yield"])


@pytest.mark.parametrize("kind", KINDS)
def test_quota(bench: Bench, judge, kind):
    busy = KINDS[kind]
    files = [file for file, _ in busy.writes]
    with bench.watching(), group(bench.guest, "lab-quota", files) as path:
        order = f"{busy.order} {cpus(bench)}"
        windows = run_busy(
            bench.guest, path, order, busy.writes, count=count(bench), window_ms=QUOTA_MS, inner=busy.inner
        )
    judge(
        within_quota(windows, quota_us=QUOTA_US, period_us=PERIOD_US, cpus=cpus(bench), burst_us=busy.burst_us), files
    )


def test_racing_writes(bench: Bench, judge):
    texts, rounds = [text for _, text in (MAX, QUOTA)], FULL_ROUNDS if bench.full else ROUNDS
    with bench.watching(), group(bench.guest, "lab-race", ["cpu.max"]) as path:
        order = f"spin {cpus(bench)}"
        races = run_race(bench.guest, path, order, texts, writes=WRITES, rounds=rounds, window_ms=RACE_MS)
    judge(in_force(races, cpus=cpus(bench)), ["cpu.max"])


@pytest.mark.parametrize("promise", [pytest.param(one, id=one.id) for one in PROMISES])
def test_promise(bench: Bench, judge, promise: Promise):
    if promise.full and not bench.full:
        pytest.skip("part of --full")
    with bench.watching(), root_group(bench.guest) as files:
        if missing := absent(promise, files):
            raise Absent(f"{missing} does not exist in this guest")
        outcomes = run_promises(bench.guest, [promise])
    judge(judged(promise, outcomes[promise.name]), promise.needs)
