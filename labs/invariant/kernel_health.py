"""Quiet kernel: whatever a test does, the kernel under test has nothing to complain of."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from labs.console import Event, known_emulator_fault
from labs.invariant.verdict import Verdict, pure

INVARIANT = "quiet kernel"
# What a guest does next after its emulator has corrupted it: one of three such guests went on to a double fault.
CONSEQUENCES = ("oops", "panic")


@pure
def quiet_kernel(events: Iterable[Event], *, seconds: float, lines: int) -> Verdict:
    """Judge what the console said during a test.

    Promise: no new WARN, BUG, oops, panic, lockdep, sanitizer, stall, lockup or hung-task line across any test; the
    kernel's own rule is that WARN() is for what must never happen (Documentation/process/coding-style.rst).

    `events` are the complaints of the test's part of the console (`labs.console.scan`), `lines` the kernel's lines
    that were looked at (`kernel_lines`), `seconds` how long. A kernel that was not heard is not a quiet one.
    """
    events = sorted(events, key=lambda event: event.line_number)
    looked_at = {"lines": float(lines), "seconds": seconds}
    figures = {name: float(count) for name, count in Counter(map(_figure, events)).items()}
    defects = [event for event in events if event.defect]
    own, emulator = _told_apart(defects)
    if own:
        return Verdict(INVARIANT, "fail", _summary(own), looked_at, figures, evidence=_evidence(own + emulator))
    if emulator:
        reason = known_emulator_fault(emulator[0])
        return Verdict(INVARIANT, "error", reason, looked_at, figures, evidence=_evidence(emulator))
    if lines <= 0:
        return Verdict(INVARIANT, "inconclusive", "the scan saw no console line", looked_at, figures)
    races = _evidence([event for event in events if event.kind == "KCSAN"])
    return Verdict(INVARIANT, "pass", f"no complaint in {lines} console lines", looked_at, figures, evidence=races)


def _figure(event: Event) -> str:
    """What an event is counted as: its kind, and for a race the functions that it names."""
    found = re.search(r"KCSAN: (data-race in .*)", event.text)
    return f"{event.kind} {found[1]}" if found else event.kind


def _told_apart(defects: list[Event]) -> tuple[list[Event], list[Event]]:
    """The kernel's own defects, and the emulator's faults with what they led to."""
    own: list[Event] = []
    emulator: list[Event] = []
    for event in defects:
        excused = known_emulator_fault(event) or (emulator and event.kind in CONSEQUENCES)
        (emulator if excused else own).append(event)
    return own, emulator


def _summary(events: list[Event]) -> str:
    more = f" (and {len(events) - 1} more)" if len(events) > 1 else ""
    return f"{events[0].kind}: {events[0].text}{more}"


def _evidence(events: list[Event]) -> str:
    return "\n\n".join(event.context for event in events)
