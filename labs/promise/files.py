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
    return does("write", f"{A}/{file}", value), does("read", f"{A}/{file}", text=value if read is None else read)


def refused(file: str, value: str, errno: str, before: str) -> tuple[Row, ...]:
    """A value is refused with that error, and the one before it is still there."""
    return does("write", f"{A}/{file}", value, errno=errno), does("read", f"{A}/{file}", text=before)


def _weight_of(nice: int) -> str:
    """What cpu.weight reads after a nice level was written: DIV_ROUND_CLOSEST(weight * 100, 1024)."""
    return str((PRIO_TO_WEIGHT[nice + 20] * 100 + 512) // 1024)


def _nice_of(weight: int) -> str:
    """What cpu.weight.nice reads after a weight was written: the nearest entry of the table, the heavier of two
    (cpu_weight_nice_read_s64)."""
    shares = (weight * 1024 + 50) // 100
    nearest = min(range(40), key=lambda prio: (abs(PRIO_TO_WEIGHT[prio] - shares), prio))
    return str(nearest - 20)


def _nice_coherence() -> tuple[Row, ...]:
    rows: list[Row] = []
    for nice in range(-20, 20):
        rows += [does("write", f"{A}/cpu.weight.nice", nice), does("read", f"{A}/cpu.weight", text=_weight_of(nice))]
    for weight in (1, 2, 39, 99, 100, 101, 333, 1000, 5000, 8668, 10_000):
        rows += [does("write", f"{A}/cpu.weight", weight), does("read", f"{A}/cpu.weight.nice", text=_nice_of(weight))]
    return tuple(rows)


def _bandwidth_apart() -> tuple[Row, ...]:
    """Each of cpu.max and cpu.max.burst is written while nobody else writes; the other must stay."""
    rows = [*kept("cpu.max", "50000 100000"), *kept("cpu.max.burst", "40000")]
    for quota, burst in ((60000, 50000), (200000, 123456), (99999, 1), (300000, 299999)):
        rows += [does("write", f"{A}/cpu.max.burst", 1), *kept("cpu.max", f"{quota} 100000")]
        rows += [does("read", f"{A}/cpu.max.burst", text="1"), *kept("cpu.max.burst", str(burst))]
        rows += [does("read", f"{A}/cpu.max", text=f"{quota} 100000")]
    return tuple(rows)


LOOP = "7:0"  # /dev/loop0: the one block device whose number is the same in every kernel (admin-guide/devices.txt)
COST = "/sys/fs/cgroup/io.cost.qos"


def _tuple(**limits: int) -> str:
    """A line of io.max as it reads: all four keys in the kernel's order."""
    shown = " ".join(f"{key}={limits.get(key, 'max')}" for key in ("rbps", "wbps", "riops", "wiops"))
    return f"{LOOP} {shown}"


PROMISES = (
    Promise(
        "cpu.weight gives back what was written (1)",
        "cpu_weight_write_u64: 'round-trip conversions preserve the original value over the entire range'",
        within("a", *(row for value in range(1, 10_001) for row in kept("cpu.weight", str(value)))),
        needs=("cpu.weight",),
        full=True,
    ),
    Promise(
        "cpu.weight.nice gives back what was written (2)",
        "cgroup-v2.rst, cpu.weight.nice: 'The nice value is in the range [-20, 19]'",
        within("a", *(row for value in range(-20, 20) for row in kept("cpu.weight.nice", str(value)))),
        needs=("cpu.weight.nice",),
    ),
    Promise(
        "a default in io.weight gives back what was written (5)",
        "cgroup-v2.rst, io.weight: 'The first line is the default weight'; ioc_weight_write",
        within(
            "a",
            *(row for n in (1, 2, 99, 100, 9999, 10_000) for row in kept("io.weight", f"default {n}")),
            *(row for n in (7, 4321) for row in kept("io.weight", str(n), f"default {n}")),
        ),
        needs=("io.weight",),
    ),
    Promise(
        "weights out of range are refused and change nothing (6)",
        "cpu_weight_write_u64 and cpu_weight_nice_write_s64 give ERANGE, ioc_weight_write gives EINVAL",
        within(
            "a",
            *kept("cpu.weight", "321"),
            *(
                row
                for value in ("0", "10001", "70369281052672")
                for row in refused("cpu.weight", value, "ERANGE", "321")
            ),
            *(row for value in ("-1", "foo") for row in refused("cpu.weight", value, "EINVAL", "321")),
            *kept("cpu.weight.nice", "-5"),
            *(row for value in ("-21", "20", "1000") for row in refused("cpu.weight.nice", value, "ERANGE", "-5")),
            *kept("io.weight", "default 321"),
            *(
                row
                for value in ("0", "10001", "default 0", "default 10001", "default", "foo")
                for row in refused("io.weight", value, "EINVAL", "default 321")
            ),
        ),
        needs=("cpu.weight", "cpu.weight.nice", "io.weight"),
    ),
    Promise(
        "cpu.weight and cpu.weight.nice tell the same (7)",
        "sched_prio_to_weight and DIV_ROUND_CLOSEST in cpu_weight_nice_write_s64, cpu_weight_nice_read_s64",
        within("a", *_nice_coherence()),
        needs=("cpu.weight", "cpu.weight.nice"),
    ),
    Promise(
        "an idle group refuses weights, and has the default one afterwards (8)",
        "sched_group_set_shares: -EINVAL if tg_is_idle(); sched_group_set_idle resets to NICE_0_LOAD",
        within(
            "a",
            *kept("cpu.weight", "777"),
            *kept("cpu.idle", "1"),
            does("write", f"{A}/cpu.weight", 500, errno="EINVAL"),
            does("write", f"{A}/cpu.weight.nice", 3, errno="EINVAL"),
            *refused("cpu.idle", "2", "EINVAL", "1"),
            *kept("cpu.idle", "0"),
            does("read", f"{A}/cpu.weight", text="100"),
            *kept("cpu.weight", "42"),
        ),
        needs=("cpu.idle", "cpu.weight"),
    ),
    Promise(
        "one number in cpu.max keeps the period (9)",
        "cgroup-v2.rst, cpu.max: 'If only one number is written, $MAX is updated'",
        within(
            "a",
            *kept("cpu.max", "40000 80000"),
            *kept("cpu.max", "30000", "30000 80000"),
            *kept("cpu.max", "max", "max 80000"),
            *kept("cpu.max", "max 1000000"),
            *kept("cpu.max", "1000 1000"),
        ),
        needs=("cpu.max",),
    ),
    Promise(
        "an invalid cpu.max is refused and changes nothing (10)",
        "tg_set_cfs_bandwidth: quota and period at least 1 ms, period at most 1 s",
        within(
            "a",
            *kept("cpu.max", "40000 80000"),
            *(
                row
                for value in ("0", "foo", "999", "40000 999", "40000 1000001", "-5")
                for row in refused("cpu.max", value, "EINVAL", "40000 80000")
            ),
        ),
        needs=("cpu.max",),
    ),
    Promise(
        "a burst is never larger than the quota (11)",
        "tg_set_cfs_bandwidth: -EINVAL if quota != RUNTIME_INF and burst > quota",
        within(
            "a",
            *kept("cpu.max", "50000 100000"),
            *kept("cpu.max.burst", "50000"),
            *refused("cpu.max.burst", "50001", "EINVAL", "50000"),
            *refused("cpu.max", "49999", "EINVAL", "50000 100000"),
            *refused("cpu.max.burst", "foo", "EINVAL", "50000"),
            does("read", f"{A}/cpu.max", text="50000 100000"),
        ),
        needs=("cpu.max", "cpu.max.burst"),
    ),
    Promise(
        "cpu.max and cpu.max.burst leave each other alone when nobody else writes (12)",
        "cpu_max_write, cpu_cfs_burst_write_u64; broken from 5.14 up to 6.1.92 and 6.6.32, fixed by 49217ea147df",
        within("a", *_bandwidth_apart()),
        needs=("cpu.max", "cpu.max.burst"),
    ),
    Promise(
        "a line of io.max changes only the keys that it names (14)",
        "cgroup-v2.rst, io.max: 'a nested-keyed file'; tg_set_limit under queue_lock",
        within(
            "a",
            does("read", f"{A}/io.max", text=""),
            *kept("io.max", f"{LOOP} rbps=1048576 wiops=120", _tuple(rbps=1048576, wiops=120)),
            *kept("io.max", f"{LOOP} wbps=4096", _tuple(rbps=1048576, wbps=4096, wiops=120)),
            *kept("io.max", f"{LOOP} rbps=max", _tuple(wbps=4096, wiops=120)),
            *refused("io.max", f"{LOOP} rbps=0", "ERANGE", _tuple(wbps=4096, wiops=120)),
            *refused("io.max", f"{LOOP} nonsense=5", "EINVAL", _tuple(wbps=4096, wiops=120)),
            *refused("io.max", "255:255 rbps=1", "ENODEV", _tuple(wbps=4096, wiops=120)),
            *kept("io.max", f"{LOOP} wbps=max wiops=max", ""),
        ),
        needs=("io.max", "loop0"),
    ),
    Promise(
        "the default of io.weight leaves overrides alone (15)",
        "cgroup-v2.rst, io.weight: 'The weights ... can be overridden'; ioc_weight_write of iocost",
        (
            does("write", COST, f"{LOOP} enable=1"),
            *within(
                "a",
                *kept("io.weight", f"{LOOP} 300", f"default 100\n{LOOP} 300"),
                *kept("io.weight", "default 200", f"default 200\n{LOOP} 300"),
                *refused("io.weight", f"{LOOP} 0", "EINVAL", f"default 200\n{LOOP} 300"),
                *kept("io.weight", f"{LOOP} default", "default 200"),
            ),
            does("write", COST, f"{LOOP} enable=0"),
        ),
        needs=("io.weight", "loop0"),
    ),
    Promise(
        "memory limits are whole pages, rounded down (39)",
        "cgroup-v2.rst: 'all memory amounts are in bytes. If a value which is not aligned to PAGE_SIZE is written, the"
        " value may be rounded up to the closest PAGE_SIZE multiple when read back'; page_counter_memparse rounds down",
        within(
            "a",
            *(
                row
                for file in ("memory.max", "memory.high", "memory.low", "memory.min")
                for row in (
                    *kept(file, "1048576"),
                    *kept(file, "1048577", "1048576"),
                    *kept(file, "8191", "4096"),
                    *kept(file, "2M", "2097152"),
                    *refused(file, "foo", "EINVAL", "2097152"),
                    *kept(file, "max"),
                )
            ),
        ),
        needs=("memory.max", "memory.high", "memory.low", "memory.min"),
    ),
)
