"""What may disturb a measurement: steal, load, pressure and clocksource, of host and guest, before and during a boot.

In virtual time the host cannot disturb, however busy it is; there only the guest's own clock counts.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

STEAL = 0.01  # of the CPU time that passed
PRESSURE = 0.20  # of the time that passed, in which some task waited for a CPU
CLOCKSOURCE = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")


@dataclass(frozen=True)
class HostState:
    """Counters of the host at one moment; -1 where it does not tell."""

    at: float  # s, monotonic
    steal: int  # ticks of all CPUs
    ticks: int
    load: float  # tasks that want to run, over the last minute
    pressure_us: int
    clocksource: str

    @classmethod
    def now(cls) -> HostState:
        steal, ticks = _ticks(_read(Path("/proc/stat")))
        pressure = re.search(r"some .*total=(\d+)", _read(Path("/proc/pressure/cpu")))
        return cls(
            time.monotonic(), steal, ticks, os.getloadavg()[0],
            int(pressure[1]) if pressure else -1, _read(CLOCKSOURCE).strip(),
        )  # fmt: skip


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _ticks(stat: str) -> tuple[int, int]:
    """Stolen ticks and all ticks, of the first line of /proc/stat."""
    words = stat.split("\n", 1)[0].split()[1:]
    return (int(words[7]), sum(map(int, words[:8]))) if len(words) > 7 else (-1, -1)


def host_trouble(before: HostState, after: HostState, cores: int) -> str:
    """Why a boot between the two moments was disturbed by its host, or ''; for guests in real time."""
    passed, ticks = after.at - before.at, after.ticks - before.ticks
    if before.clocksource != after.clocksource:
        return f"the host's clocksource changed from {before.clocksource} to {after.clocksource}"
    if before.load > cores:
        return f"the host's load was {before.load:.1f} on {cores} cores"
    if ticks > 0 and (after.steal - before.steal) / ticks > STEAL:
        return f"{(after.steal - before.steal) / ticks:.1%} of the host's CPU time was stolen"
    waited = (after.pressure_us - before.pressure_us) / passed / 1e6 if passed > 0 and before.pressure_us >= 0 else 0.0
    if waited > PRESSURE:
        return f"tasks of the host waited for a CPU {waited:.0%} of the time"
    return ""


def guest_trouble(facts: Mapping[str, Any]) -> str:
    """Why a boot was disturbed from within, by the facts that its guest told before and after, or ''."""
    clocks = {str(facts.get(f"clocksource.{when}", "")).removesuffix("-early") for when in ("before", "after")}
    (steal, ticks), (more, all_) = (_ticks(str(facts.get(f"stat.{when}", ""))) for when in ("before", "after"))
    if len(clocks) > 1:
        return f"the guest's clocksource changed: {' and '.join(sorted(clocks))}"
    if all_ > ticks and (more - steal) / (all_ - ticks) > STEAL:
        return f"{(more - steal) / (all_ - ticks):.1%} of the guest's CPU time was stolen"
    return ""
