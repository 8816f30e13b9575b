"""Files that hold a value: what may be written, what a read then says, which error a refused value gets.

Sources, read in 6.1.192, 6.12.117 and 7.2.13: kernel/sched/core.c (cpu_files), block/blk-iocost.c (ioc_weight_write),
mm/memcontrol.c (memory_files), kernel/cgroup/pids.c, kernel/cgroup/cgroup.c (cgroup_base_files).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from labs.model.numbers import PAGE, S32, U64, Refused, first_number, pages, signed, unsigned
from labs.model.versions import Kernel
from labs.promise.files import PRIO_TO_WEIGHT

NO_LIMIT = U64  # stands for 'max'
PAGE_LIMIT = (1 << 63) // PAGE - 1  # PAGE_COUNTER_MAX
PIDS_LIMIT = (1 << 22) + 1  # PIDS_MAX
DEFAULT_SHARES, IDLE_SHARES = 1024, 3  # NICE_0_LOAD and WEIGHT_IDLEPRIO, scaled down
LONGEST_US = (1 << 44) - 1  # MAX_BW


@dataclass(frozen=True)
class Limits:
    """The values of one group; the defaults are those of a group just made."""

    shares: int = DEFAULT_SHARES
    idle: int = 0
    quota: int = NO_LIMIT
    period: int = 100_000
    burst: int = 0
    io_weight: int = 100
    memory_min: int = 0
    memory_low: int = 0
    memory_high: int = PAGE_LIMIT
    memory_max: int = PAGE_LIMIT
    swap_max: int = PAGE_LIMIT
    oom_group: int = 0
    pids_max: int = PIDS_LIMIT
    descendants: int = S32
    depth: int = S32
    frozen: int = 0


OF_CONTROLLER = {
    "cpu": ("shares", "idle", "quota", "period", "burst"),
    "io": ("io_weight",),
    "memory": ("memory_min", "memory_low", "memory_high", "memory_max", "swap_max", "oom_group"),
    "pids": ("pids_max",),
}


def forget(limits: Limits, controller: str) -> Limits:
    """The values after a controller was taken from the group: its own are at their defaults when it comes back."""
    return replace(limits, **{name: getattr(Limits, name) for name in OF_CONTROLLER.get(controller, ())})


def _weight(limits: Limits, text: str) -> Limits:
    weight = unsigned(text)
    if not 1 <= weight <= 10_000:
        raise Refused("ERANGE")
    return _shares(limits, (weight * 1024 + 50) // 100)


def _nice(limits: Limits, text: str) -> Limits:
    nice = signed(text)
    if not -20 <= nice <= 19:
        raise Refused("ERANGE")
    return _shares(limits, PRIO_TO_WEIGHT[nice + 20])


def _shares(limits: Limits, shares: int) -> Limits:
    if limits.idle:
        raise Refused("EINVAL")
    return replace(limits, shares=shares)


def _idle(limits: Limits, text: str) -> Limits:
    idle = signed(text)
    if idle not in (0, 1):
        raise Refused("EINVAL")
    if idle == limits.idle:
        return limits
    return replace(limits, idle=idle, shares=IDLE_SHARES if idle else DEFAULT_SHARES)


def _read_weight(limits: Limits, kernel: Kernel) -> str:
    if limits.idle:
        return str(kernel.has("weight of an idle group"))
    return str((limits.shares * 100 + 512) // 1024)


def _read_nice(limits: Limits, kernel: Kernel) -> str:
    return str(min(range(40), key=lambda at: abs(PRIO_TO_WEIGHT[at] - limits.shares)) - 20)


def _max(limits: Limits, text: str) -> Limits:
    """cpu_period_quota_parse(): the quota, and the period when there is a second word."""
    words = text.split()
    quota = NO_LIMIT if words[:1] == ["max"] else first_number(words[0]) if words else None
    if quota is None:
        raise Refused("EINVAL")
    period = first_number(words[1]) if len(words) > 1 else None
    return _bandwidth(replace(limits, quota=quota, period=limits.period if period is None else period))


def _burst(limits: Limits, text: str) -> Limits:
    return _bandwidth(replace(limits, burst=unsigned(text)))


def _bandwidth(limits: Limits) -> Limits:
    """tg_set_cfs_bandwidth(): all three are checked together, whichever was written."""
    if not 1_000 <= limits.period <= 1_000_000 or limits.quota < 1_000 or limits.burst > U64 // 1000:
        raise Refused("EINVAL")
    if limits.quota != NO_LIMIT and (limits.burst > limits.quota or limits.burst + limits.quota > LONGEST_US):
        raise Refused("EINVAL")
    return limits


def _io_weight(limits: Limits, text: str) -> Limits:
    number = first_number(text.removeprefix("default "))
    if number is None or not 1 <= number <= 10_000:
        raise Refused("EINVAL")
    return replace(limits, io_weight=number)


def _pids(limits: Limits, text: str) -> Limits:
    if text.strip() == "max":
        return replace(limits, pids_max=PIDS_LIMIT)
    limit = signed(text.strip())
    if not 0 <= limit < PIDS_LIMIT:
        raise Refused("EINVAL")
    return replace(limits, pids_max=limit)


def _oom_group(limits: Limits, text: str) -> Limits:
    value = signed(text.strip(), S32)
    if value not in (0, 1):
        raise Refused("EINVAL")
    return replace(limits, oom_group=value)


def _freeze(limits: Limits, text: str) -> Limits:
    value = signed(text.strip(), S32)
    if value not in (0, 1):
        raise Refused("ERANGE")
    return replace(limits, frozen=value)


def _count(field: str) -> Callable[[Limits, str], Limits]:
    """cgroup.max.descendants and cgroup.max.depth: an int, 'max' is its largest."""

    def write(limits: Limits, text: str) -> Limits:
        value = S32 if text.strip() == "max" else signed(text.strip(), S32)
        if value < 0:
            raise Refused("ERANGE")
        return replace(limits, **{field: value})

    return write


def _pages(field: str) -> Callable[[Limits, str], Limits]:
    return lambda limits, text: replace(limits, **{field: pages(text, PAGE_LIMIT)})


def _read(field: str, unit: int = 1, no_limit: int = NO_LIMIT, before: str = "") -> Callable[[Limits, Kernel], str]:
    def read(limits: Limits, kernel: Kernel) -> str:
        value: int = getattr(limits, field)
        return "max" if value == no_limit else f"{before}{value * unit}"

    return read


def _read_max(limits: Limits, kernel: Kernel) -> str:
    return f"{'max' if limits.quota == NO_LIMIT else limits.quota} {limits.period}"


@dataclass(frozen=True)
class File:
    """Files of one family set the same values: a promise of one is a promise about all of them."""

    name: str
    family: str
    write: Callable[[Limits, str], Limits]
    read: Callable[[Limits, Kernel], str]

    @property
    def controller(self) -> str:
        return self.name.split(".")[0]


FILES = {
    file.name: file
    for file in (
        File("cpu.weight", "cpu.weight", _weight, _read_weight),
        File("cpu.weight.nice", "cpu.weight", _nice, _read_nice),
        File("cpu.idle", "cpu.weight", _idle, _read("idle")),
        File("cpu.max", "cpu.max", _max, _read_max),
        File("cpu.max.burst", "cpu.max", _burst, _read("burst")),
        File("io.weight", "io.weight", _io_weight, _read("io_weight", before="default ")),
        *(
            File(name, name, _pages(field), _read(field, PAGE, PAGE_LIMIT))
            for name, field in {
                "memory.min": "memory_min",
                "memory.low": "memory_low",
                "memory.high": "memory_high",
                "memory.max": "memory_max",
                "memory.swap.max": "swap_max",
            }.items()
        ),
        File("memory.oom.group", "memory.oom.group", _oom_group, _read("oom_group")),
        File("pids.max", "pids.max", _pids, _read("pids_max", no_limit=PIDS_LIMIT)),
        File("cgroup.max.descendants", "cgroup.max.descendants", _count("descendants"), _read("descendants", 1, S32)),
        File("cgroup.max.depth", "cgroup.max.depth", _count("depth"), _read("depth", 1, S32)),
        File("cgroup.freeze", "cgroup.freeze", _freeze, _read("frozen")),
    )
}
