"""Deadlines: one moment for a whole piece of work."""

from __future__ import annotations

import time

import pytest

from labs.deadline import EMULATION_FACTOR, Deadline
from labs.errors import DeadlineExpired


def test_it_runs_down_to_zero_and_stays_there() -> None:
    deadline = Deadline(2, "boot")
    assert 0 < deadline.remaining() <= 2 and not deadline.expired
    deadline.check()
    time.sleep(2.01)
    assert deadline.remaining() == 0 and deadline.expired


def test_an_expired_one_tells_what_and_how_long() -> None:
    with pytest.raises(DeadlineExpired, match=r"^boot: not done after 0 s$") as caught:
        Deadline(0, "boot").check("the console's end")
    assert caught.value.evidence == "the console's end"


@pytest.mark.parametrize("accelerator, factor", [("kvm", 1), ("tcg", EMULATION_FACTOR)])
def test_emulation_stretches_it(accelerator: str, factor: float) -> None:
    assert Deadline.scaled(10, "boot", accelerator).seconds == 10 * factor


def test_waiting_ends_when_it_is_ready() -> None:
    answers = iter([False, False, True])
    Deadline(5, "it").wait_for(lambda: next(answers))


def test_what_is_ready_at_once_needs_no_time() -> None:
    Deadline(0, "it").wait_for(lambda: True)


def test_waiting_in_vain_ends_at_the_deadline() -> None:
    began = time.monotonic()
    with pytest.raises(DeadlineExpired):
        Deadline(0.1, "it").wait_for(lambda: False, poll=10)
    assert 0.1 <= time.monotonic() - began < 1
