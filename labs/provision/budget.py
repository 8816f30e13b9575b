"""What the host can still give: asked before a guest starts, so that a lack is told and not met."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from labs.errors import NoSpace

RESERVE_MB = 256  # memory left to the host itself
DISK_MB = 200  # room for consoles and histories of one guest


def available_memory_mb() -> int:
    """MemAvailable of the host, in MB."""
    match = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    return int(match[1]) // 1024 if match else 0


def check(memory_mb: int, cpus: int, folder: Path, disk_mb: int = DISK_MB) -> None:
    """NoSpace when a guest of that size would not fit now."""
    have = available_memory_mb()
    if have < memory_mb + RESERVE_MB:
        raise NoSpace(f"the guest needs {memory_mb} MB of memory, the host has {have} MB left", mend="end other guests")
    cores = len(os.sched_getaffinity(0))
    if cores < 1 or cpus > 4 * cores:
        raise NoSpace(f"the guest wants {cpus} vCPUs, the lab may use {cores} cores")
    free = shutil.disk_usage(folder).free >> 20
    if free < disk_mb:
        raise NoSpace(f"{folder} has {free} MB left, a guest needs {disk_mb} MB there", mend="run: labs clean")
