"""Who may write below a service's group, and what the two cgroup drivers of a runtime cost."""

from __future__ import annotations

import contextlib

import pytest

from labs.casebook import Bench
from labs.invariant.delegation import bounded, every_start, kept, no_faster, no_reload, same, slower, transient_units
from labs.invariant.hygiene import nothing_left
from labs.probe.delegation import (
    DRIVERS,
    MODES,
    V1,
    Starts,
    Traffic,
    needs_systemd,
    run_starts,
    run_storm,
    run_subtree,
    run_traffic,
)
from labs.probe.register import Absent

ROUNDS, FULL_ROUNDS = 10, 60
WATCHED = 3  # containers while the bus is watched
STORMED = 4


def rounds(bench: Bench) -> int:
    return FULL_ROUNDS if bench.full else ROUNDS


def starts(bench: Bench) -> Starts:
    return bench.kept("starts", lambda: _starts(bench))


def _starts(bench: Bench) -> Starts:
    """With a second guest for cgroup v1, unless the cell's is a machine that already runs."""
    needs_systemd(bench.guest)
    with contextlib.ExitStack() as stack:
        own = bench.booted.artifacts.found.cell.provider == "vagrant"
        legacy = stack.enter_context(bench.beside(*V1)) if own else None
        return run_starts(bench.guest, bench.booted.runtime, rounds(bench), bench.seed, legacy)


def traffic(bench: Bench, driver: str) -> Traffic:
    return bench.kept(f"bus-{driver}", lambda: run_traffic(bench.guest, bench.booted.runtime, driver, WATCHED))


def test_every_start(bench: Bench, judge):
    found = starts(bench).starts
    with_v1 = any(one.hierarchy == "v1" for one in found)
    judge(every_start(found, planned=rounds(bench) * (len(MODES) + with_v1)))


@pytest.mark.parametrize("delegate", ["no", "yes"])
def test_systemd_driver_is_slower(bench: Bench, judge, delegate):
    judge(slower(starts(bench).of("systemd", delegate), starts(bench).of("cgroupfs", delegate)))


@pytest.mark.parametrize("driver", DRIVERS)
def test_delegate_changes_no_start(bench: Bench, judge, driver):
    judge(same(starts(bench).of(driver, "yes"), starts(bench).of(driver, "no")))


def test_v1_is_no_faster(bench: Bench, judge):
    found = starts(bench)
    if not found.of("systemd", "no", "v1"):
        raise Absent("no guest with cgroup v1: another provider than vagrant, or a systemd that has no v1 any more")
    judge(no_faster(found.of("systemd", "no", "v1"), found.of("systemd", "no")))


def test_nothing_left_behind(bench: Bench, judge):
    judge(nothing_left(*starts(bench).left))


@pytest.mark.parametrize("driver", DRIVERS)
def test_transient_units(bench: Bench, judge, driver):
    judge(transient_units(driver, traffic(bench, driver)))


@pytest.mark.parametrize("driver", DRIVERS)
def test_no_reload(bench: Bench, judge, driver):
    judge(no_reload(traffic(bench, driver)))


def test_storm(bench: Bench, judge):
    judge(bounded(bench.kept("storm", lambda: run_storm(bench.guest, bench.booted.runtime, STORMED))))


def test_subtree_is_kept(bench: Bench, judge):
    with bench.watching():
        told = run_subtree(bench.guest, "yes")
    judge(kept(told))
