"""What the runtime makes of a container's limits: before its first instruction, once, and with no other waiting."""

from __future__ import annotations

import pytest

from labs.casebook import Bench
from labs.errors import GuestLost, KernelFailed, LabError
from labs.invariant.limits import limits_in_force, no_waiting, refused_once
from labs.probe.limits import LIMITS, Limits, run_limits
from labs.probe.register import group

# Where a create is held: at the last limit that is set, and in full at being put into its group and at each limit.
HELD = ("cpu.max",)
FULL_HELD = ("cgroup.procs", *LIMITS) * 4
FULL_PLAIN, FULL_UPDATES = 60, 10


@pytest.fixture(scope="session")
def seen(bench: Bench) -> dict[str, Limits | LabError]:
    """What the probe saw, once it was run; or why it did not run, so that no case tries again."""
    return {}


def held(bench: Bench) -> tuple[str, ...]:
    return FULL_HELD if bench.full else HELD


def probe(bench: Bench, seen: dict[str, Limits | LabError]) -> Limits:
    if not seen:
        more = {"plain": FULL_PLAIN, "updates": FULL_UPDATES} if bench.full else {}
        try:
            with bench.watching(), group(bench.guest, "lab-limits", [*LIMITS]) as parent:
                seen["all"] = run_limits(bench.guest, bench.booted.runtime, parent, held=held(bench), **more)
        except (KernelFailed, GuestLost):
            raise
        except LabError as error:
            seen["all"] = error
    if isinstance(seen["all"], LabError):
        raise seen["all"]
    return seen["all"]


def test_limits_in_force(bench: Bench, judge, seen):
    planned = len(held(bench)) + (FULL_PLAIN if bench.full else 0)
    judge(limits_in_force(probe(bench, seen).starts, LIMITS, planned=planned), LIMITS)


def test_refused_once(bench: Bench, judge, seen):
    judge(refused_once(probe(bench, seen).settings, planned=len(held(bench))), ["cpu.max"])


def test_no_waiting(bench: Bench, judge, seen):
    judge(no_waiting(probe(bench, seen).meetings, planned=len(held(bench))))
