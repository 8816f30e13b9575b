"""Promises of files that hold a value: what is written comes back, what is refused changes nothing.

Read in kernel/sched/core.c, kernel/sched/fair.c and block/blk-iocost.c of 6.1.192, 6.12.117 and 7.2.13, and in
Documentation/admin-guide/cgroup-v2.rst; numbers are those of the lab's list of promises.
"""

from __future__ import annotations

from labs.promise import ROOT, Promise, Row, does, within

A = f"{ROOT}/a"
# kernel/sched/core.c, sched_prio_to_weight: the weight of each nice level, -20 to 19
PRIO_TO_WEIGHT = (
    88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916, 9548, 7620, 6100, 4904, 3906, 3121, 2501,
    1991, 1586, 1277, 1024, 820, 655, 526, 423, 335, 272, 215, 172, 137, 110, 87, 70, 56, 45, 36, 29, 23, 18, 15,
)  # fmt: skip


def kept(file: str, value: str, read: str | None = None) -> tuple[Row, ...]:
    """A value is accepted and comes back."""
    return does("write", f"{A}/{file}", value), does("read", f"{A}/{file}", text=read or value)


def refused(file: str, value: str, errno: str, before: str) -> tuple[Row, ...]:
    """A value is refused with that error, and the one before it is still there."""
    return does("write", f"{A}/{file}", value, errno=errno), does("read", f"{A}/{file}", text=before)


def _weight_of(nice: int) -> str:
    """DIV_ROUND_CLOSEST(weight * 100, 1024), as cpu_weight_from_nice does through sched_weight_to_cgroup."""
    return str((PRIO_TO_WEIGHT[nice + 20] * 100 + 512) // 1024)


PROMISES = (
    Promise(
        "cpu.weight gives back what was written (1)",
        "cpu_weight_write_u64: 'round-trip conversions preserve the original value over the entire range'",
        within("a", *(row for value in range(1, 10_001) for row in kept("cpu.weight", str(value)))),
        needs=("cpu.weight",),
    ),
    Promise(
        "cpu.weight.nice gives back what was written (2)",
        "cgroup-v2.rst, cpu.weight.nice: 'The nice value is in the range [-20, 19]'",
        within("a", *(row for value in range(-20, 20) for row in kept("cpu.weight.nice", str(value)))),
        needs=("cpu.weight.nice",),
    ),
)
