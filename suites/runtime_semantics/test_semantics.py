"""What a container runtime makes of a configuration: what is promised, and what versions differ in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from labs.casebook import Bench
from labs.invariant.semantics import SHARES, default_shares, delete_tells, in_force, recorded, shares_in_order
from labs.probe.register import Absent, group
from labs.probe.semantics import Ask, Told, run_asks

MB = 1 << 20
CURVE = (2, 64, 512, SHARES, 2048, 4096, 100_000, 262_144)
# Resources of a configuration -> the files of the container's group, as they must be then.
IN_FORCE: dict[str, tuple[Mapping[str, Any], Mapping[str, str]]] = {
    "quota": ({"cpu": {"quota": 30_000, "period": 50_000}}, {"cpu.max": "30000 50000"}),
    "quota-without-limit": ({"cpu": {"quota": -1, "period": 50_000}}, {"cpu.max": "max 50000"}),
    "cpus": ({"cpu": {"cpus": "0"}}, {"cpuset.cpus": "0"}),
    "memory": ({"memory": {"limit": 96 * MB}}, {"memory.max": str(96 * MB)}),
    "memory-without-limit": ({"memory": {"limit": -1, "swap": -1}}, {"memory.max": "max", "memory.swap.max": "max"}),
    "swap": (
        {"memory": {"limit": 96 * MB, "swap": 128 * MB}},  # as in v1, memory is a part of it
        {"memory.max": str(96 * MB), "memory.swap.max": str(32 * MB)},
    ),
    "reservation": ({"memory": {"reservation": 32 * MB}}, {"memory.low": str(32 * MB)}),
    "pids": ({"pids": {"limit": 77}}, {"pids.max": "77"}),
    "pids-without-limit": ({"pids": {"limit": -1}}, {"pids.max": "max"}),
    "unified": (
        {"unified": {"cpu.weight": "321", "memory.high": str(64 * MB)}},
        {"cpu.weight": "321", "memory.high": str(64 * MB)},
    ),
}
# Resources on which versions differ, and where it shows.
RECORDED: dict[str, tuple[Mapping[str, Any], Sequence[str]]] = {
    "pids-zero": ({"pids": {"limit": 0}}, ["pids.max"]),
    "cpu-burst": ({"cpu": {"quota": 50_000, "period": 100_000, "burst": 20_000}}, ["cpu.max.burst"]),
    "cpu-idle": ({"cpu": {"idle": 1}}, ["cpu.idle"]),
    "memory-zero": ({"memory": {"limit": 0}}, ["memory.max"]),
}


def asked(bench: Bench, **asks: Ask) -> dict[str, Told]:
    """What came of each; Absent when the kernel lacks a file."""
    files = list(dict.fromkeys(file for ask in asks.values() for file in ask.files)) or ["cpu.weight"]
    with bench.watching(), group(bench.guest, "lab-semantics", files) as parent:
        inner = " ".join(f"+{file.partition('.')[0]}" for file in files)
        bench.guest.must(f"echo {inner} > {parent}/cgroup.subtree_control")
        told = run_asks(bench.guest, bench.booted.runtime, parent, asks)
    for one in told.values():
        if missing := [file for file, text in one.files.items() if text is None and not one.code]:
            raise Absent(f"{missing[0]} does not exist in the container's group")
    return told


def shares(count: int) -> Ask:
    return Ask({"cpu": {"shares": count}}, ["cpu.weight"])


def test_default_shares(bench: Bench, judge):
    judge(default_shares(asked(bench, default=shares(SHARES))["default"]), ["cpu.weight"])


def test_shares_in_order(bench: Bench, judge):
    told = asked(bench, **{str(count): shares(count) for count in CURVE})
    judge(shares_in_order({int(count): one for count, one in told.items()}), ["cpu.weight"])


@pytest.mark.parametrize("name", IN_FORCE)
def test_in_force(bench: Bench, judge, name):
    resources, wanted = IN_FORCE[name]
    told = asked(bench, one=Ask(resources, list(wanted)))["one"]
    judge(in_force(told, wanted), list(wanted))


def test_delete_tells(bench: Bench, judge):
    judge(delete_tells(asked(bench, one=Ask(stranger=True))["one"]), ["cgroup.procs"])


@pytest.mark.parametrize("name", RECORDED)
def test_recorded(bench: Bench, judge, name):
    resources, files = RECORDED[name]
    judge(recorded(name, asked(bench, one=Ask(resources, files))["one"]), files)
