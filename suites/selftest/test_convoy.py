"""Convoys: waits read from the kernel's trace of flock, and judged over waves of creates."""

from __future__ import annotations

import pytest

from labs.invariant.convoy import no_convoy
from labs.probe.convoy import Wave, waits

TRACE = """\
# tracer: nop
#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION
            runc-301     [000] .....    12.000100: sys_flock(fd: 3, cmd: 2)
            runc-301     [000] .....    12.000110: sys_flock -> 0x0
      runc:[1:C-302     [000] .....    12.000120: sys_flock(fd: 3, cmd: 2)
            runc-303     [001] .....    12.000130: sys_flock(fd: 3, cmd: 2)
      runc:[1:C-302     [000] .....    12.020120: sys_flock -> 0x0
            runc-303     [001] .....    13.000130: sys_flock -> 0x0
            runc-304     [001] .....    13.000140: sys_flock(fd: 3, cmd: 2)
            runc-301     [000] .....    13.000150: sys_write(fd: 3)
"""


def test_waits_are_paired_by_thread() -> None:
    assert waits(TRACE) == (10_000, 20_000_000, 1_000_000_000)
    assert waits("") == waits("# tracer: nop\n") == ()


def wave(workers: int, ms: float, calls: int = 2) -> Wave:
    """Each create waits `ms`, over `calls` locks."""
    return Wave(workers, (0,) * workers, (int(ms * 1e6 / calls),) * (workers * calls))


def test_a_convoy_grows_with_the_workers() -> None:
    verdict = no_convoy([wave(n, 20 * (n - 1)) for n in (1, 2, 4, 8)])
    assert verdict.outcome == "fail"
    assert verdict.figures["ms a worker"] == pytest.approx(20) and verdict.figures["r2"] == pytest.approx(1)
    assert "1: 0.0, 2: 20.0, 4: 60.0, 8: 140.0; 20.0 ms more a worker" in verdict.reason


@pytest.mark.parametrize("waves", [[wave(n, 0.0) for n in (1, 2, 8)], [wave(n, 50.0) for n in (1, 2, 8)]])
def test_locks_that_nobody_waits_longer_for_are_no_convoy(waves: list[Wave]) -> None:
    assert no_convoy(waves).outcome == "pass"


@pytest.mark.parametrize(
    "waves",
    [[], [wave(1, 0)], [wave(1, 0), Wave(2, (0,), ())], [wave(1, 0), Wave(2, (0, 1), ())]],
)
def test_too_little_seen_is_inconclusive(waves: list[Wave]) -> None:
    assert no_convoy(waves).outcome == "inconclusive"
