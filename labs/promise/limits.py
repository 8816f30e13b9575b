"""Promises of limits and of the counters that go with them: pids, memory, cpu time.

From Documentation/admin-guide/cgroup-v2.rst, and kernel/cgroup/pids.c, mm/memcontrol.c, kernel/sched/fair.c of
6.1.192 and 6.12.117.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from labs.probe.script import BARRIER, Outcome
from labs.promise import ROOT, Promise, Relation, Row, does, first, within

A = f"{ROOT}/a"
BARRIER_ROW = Row(BARRIER)
SLICE_US = 5_000  # kernel/sched/fair.c, sysctl_sched_cfs_bandwidth_slice
PERIOD_US = 100_000  # of the groups below
CPUS = 2  # of the lab's guests; only ever used as a factor that makes a bound looser


def counters(text: str) -> dict[str, int]:
    """A flat-keyed file: 'max 3\\noom 0' gives {'max': 3, 'oom': 0}; a single number gives {'': n}."""
    pairs = re.findall(r"^(?:(\S+) )?(\d+)$", text, re.M)
    return {name: int(value) for name, value in pairs}


def monotone(*keys: str) -> Relation:
    """Readings of one file, in this order, never go back in any counter."""

    def relation(seen: Mapping[str, Outcome]) -> str:
        """counters only grow"""
        readings = [counters(seen[key].text) for key in keys]
        for before, after, key in zip(readings, readings[1:], keys[1:], strict=False):
            for name, value in before.items():
                if after.get(name, 0) < value:
                    return f"{name or 'the value'} went back from {value} to {after.get(name)} at {key}"
        return ""

    return relation


def _at_least(name: str, least: int, *keys: str) -> Relation:
    def relation(seen: Mapping[str, Outcome]) -> str:
        for key in keys:
            if counters(seen[key].text).get(name, 0) < least:
                return f"{key}: {name} is {counters(seen[key].text).get(name)}, not at least {least}"
        return ""

    return relation


def _peak(seen: Mapping[str, Outcome]) -> str:
    current, peak = (counters(seen[key].text)[""] for key in ("current", "peak"))
    return "" if peak >= current else f"memory.peak {peak} is below memory.current {current} read before it"


def _cpu_stat(seen: Mapping[str, Outcome]) -> str:
    before, stat = (counters(seen[key].text) for key in ("first", "last"))
    throttled = stat["throttled_usec"] - before["throttled_usec"]
    wall = (seen["last"].end - seen["first"].start) / 1000
    if stat["nr_throttled"] > stat["nr_periods"]:
        return f"nr_throttled {stat['nr_throttled']} exceeds nr_periods {stat['nr_periods']}"
    if throttled > CPUS * (wall + PERIOD_US):  # what ends in between may have begun a period before
        return f"throttled_usec grew by {throttled}, more than {CPUS} CPUs x {wall:.0f} us"
    return ""


def _bandwidth(quota: int, period: int) -> Relation:
    """usage over k periods is at most quota * k, one slice a CPU, and what the period that was under way had left."""

    def relation(seen: Mapping[str, Outcome]) -> str:
        used = counters(seen["last"].text)["usage_usec"] - counters(seen["first"].text)["usage_usec"]
        wall = (seen["last"].end - seen["first"].start) / 1000
        periods = wall / period + 1
        bound = quota * periods + CPUS * SLICE_US
        return "" if used <= bound else f"{used} us used in {wall:.0f} us, the quota allows {bound:.0f}"

    return relation


def _parent_covers(seen: Mapping[str, Outcome]) -> str:
    for turn in range(5):
        children = sum(counters(seen[f"{turn}{name}"].text)["usage_usec"] for name in "bc")
        parent = counters(seen[f"{turn}a"].text)["usage_usec"]
        if parent < children:
            return f"parent has used {parent} us, its children had used {children} us before"
    return ""


def _ratio(light: str, heavy: str, wanted: float, tolerance: float) -> Relation:
    def relation(seen: Mapping[str, Outcome]) -> str:
        used = [
            counters(seen[f"{name} last"].text)["usage_usec"] - counters(seen[f"{name} first"].text)["usage_usec"]
            for name in (light, heavy)
        ]
        got = used[1] / max(1, used[0])
        return "" if abs(got / wanted - 1) <= tolerance else f"shares are 1:{got:.2f}, weights 1:{wanted:.2f}"

    return relation


def _started(group: str, number: int, what: str) -> tuple[Row, ...]:
    """A process in the group that does `what`, as 'spin 1'."""
    return (
        first("spawn", number),
        first("attach", number, f"{ROOT}/{group}/cgroup.procs"),
        first("tell", number, what),
    )


def _ended(*numbers: int) -> tuple[Row, ...]:
    kills = tuple(Row(does("kill", number, 9).op, None) for number in numbers)  # it may have been killed already
    return kills + tuple(first("reap", number, 10_000) for number in numbers)


RACERS, RACER_MB = 12, 8
LOWERED = f"{RACERS} processes of {RACER_MB} MB; one writer lowers memory.max far below, another raises it again"

PROMISES = (
    Promise(
        "a fork beyond pids.max is refused (28)",
        "cgroup-v2.rst, pids.max: 'a hard limit of number of processes'; pids_can_fork gives EAGAIN",
        within(
            "a",
            does("write", f"{A}/pids.max", 3),
            first("spawn", 1),
            first("attach", 1, f"{A}/cgroup.procs"),
            does("read", f"{A}/pids.events", key="before"),
            does("tell", 1, "threads 2"),
            does("read", f"{A}/pids.current", text="3"),
            does("tell", 1, "threads 1", errno="EAGAIN"),
            does("tell", 1, "fork", errno="EAGAIN"),
            does("read", f"{A}/pids.current", text="3"),
            does("write", f"{A}/pids.max", 1),  # lowering is always accepted, and ends nothing
            does("read", f"{A}/pids.current", text="3"),
            does("read", f"{A}/pids.events", key="after"),
            does("write", f"{A}/pids.max", "max"),
            does("tell", 1, "threads 1"),
            *_ended(1),
        ),
        needs=("pids.max", "pids.events"),
        relations=(monotone("before", "after"),),
    ),
    Promise(
        "a memory.max that is raised while it is lowered lets both writers return (29)",
        "memory_max_write must stop when the limit it works for is superseded: 'mm: memcg: stop reclaim when a limit"
        f" update is superseded'; {LOWERED}",
        within(
            "a",
            *(row for n in range(RACERS) for row in _started("a", n, f"alloc {RACER_MB}")),
            BARRIER_ROW,
            does("write", f"{A}/memory.max", 1 << 20, lane=1),
            first("await", f"{A}/memory.max", 1 << 20, 2_000, lane=2),
            does("write", f"{A}/memory.max", "max", lane=2),
            BARRIER_ROW,
            does("read", f"{A}/memory.max", text="max"),
            *_ended(*range(RACERS)),
        ),
        needs=("memory.max",),
        rounds=2,
        phase_ms=8_000,
    ),
    Promise(
        "memory.max below usage is met or kills (29)",
        "cgroup-v2.rst, memory.max: 'If a cgroup's memory usage reaches this limit and can't be reduced, the OOM"
        " killer is invoked in the cgroup'",
        within(
            "a",
            *_started("a", 1, "alloc 16"),
            does("read", f"{A}/memory.events", key="before"),
            does("write", f"{A}/memory.max", 2 << 20),
            does("reap", 1, 5_000, text="signal 9"),
            does("read", f"{A}/memory.events", key="after"),
            does("write", f"{A}/memory.max", "max"),
        ),
        needs=("memory.max", "memory.events"),
        relations=(monotone("before", "after"), _at_least("oom_kill", 1, "after")),
    ),
    Promise(
        "event counters and the peak never go back (30)",
        "cgroup-v2.rst, memory.events, memory.peak: 'The max memory usage recorded'",
        within(
            "a",
            *_started("a", 1, "alloc 8"),
            does("read", f"{A}/memory.peak", key="peak0"),
            does("read", f"{A}/memory.current", key="current"),
            does("read", f"{A}/memory.peak", key="peak"),
            does("tell", 1, "alloc 8"),
            does("read", f"{A}/memory.peak", key="peak1"),
            does("read", f"{A}/memory.events", key="events0"),
            *_ended(1),
            does("read", f"{A}/memory.peak", key="peak2"),
            does("read", f"{A}/memory.events", key="events1"),
        ),
        needs=("memory.peak", "memory.events"),
        relations=(monotone("peak0", "peak", "peak1", "peak2"), monotone("events0", "events1"), _peak),
    ),
    Promise(
        "cpu.stat only grows, and throttles within its periods (31, 32)",
        "cgroup-v2.rst, cpu.stat; kernel/sched/fair.c: quota a period, handed out in slices of 5 ms",
        within(
            "a",
            does("write", f"{A}/cpu.max", "20000 100000"),
            *_started("a", 1, "spin 2"),
            does("sleep", 200),
            does("read", f"{A}/cpu.stat", key="first"),
            does("sleep", 600),
            does("read", f"{A}/cpu.stat", key="middle"),
            does("sleep", 900),
            does("read", f"{A}/cpu.stat", key="last"),
            *_ended(1),
        ),
        needs=("cpu.max",),
        relations=(monotone("first", "middle", "last"), _cpu_stat, _bandwidth(20_000, 100_000)),
        full=True,
    ),
    Promise(
        "a parent has used at least what its children had (33)",
        "cgroup_rstat_flush is hierarchical: a child that was read has been added to its parent",
        within(
            "a",
            does("write", f"{A}/cgroup.subtree_control", "+cpu"),
            *within(
                "a/b",
                *within(
                    "a/c",
                    *_started("a/b", 1, "spin 1"),
                    *_started("a/c", 2, "spin 1"),
                    *(
                        row
                        for turn in range(5)
                        for row in (
                            does("sleep", 20),
                            does("read", f"{A}/b/cpu.stat", key=f"{turn}b"),
                            does("read", f"{A}/c/cpu.stat", key=f"{turn}c"),
                            does("read", f"{A}/cpu.stat", key=f"{turn}a"),
                        )
                    ),
                    *_ended(1, 2),
                ),
            ),
        ),
        needs=("cpu.stat",),
        relations=(_parent_covers,),
    ),
    Promise(
        "two busy groups share a CPU in the ratio of their weights (38)",
        "cgroup-v2.rst, cpu.weight; within 10 % over 5 s",
        within(
            "a",
            first("write", f"{A}/cgroup.subtree_control", "+cpu +cpuset"),
            *within(
                "a/b",
                *within(
                    "a/c",
                    *(first("write", f"{A}/{name}/cpuset.cpus", 0) for name in "bc"),
                    does("write", f"{A}/b/cpu.weight", 100),
                    does("write", f"{A}/c/cpu.weight", 300),
                    *_started("a/b", 1, "spin 1"),
                    *_started("a/c", 2, "spin 1"),
                    does("sleep", 500),
                    *(does("read", f"{A}/{name}/cpu.stat", key=f"{name} first") for name in "bc"),
                    does("sleep", 5_000),
                    *(does("read", f"{A}/{name}/cpu.stat", key=f"{name} last") for name in "bc"),
                    *_ended(1, 2),
                ),
            ),
        ),
        needs=("cpu.weight", "cpuset.cpus"),
        relations=(_ratio("b", "c", 3.0, 0.10),),
        full=True,
    ),
)
