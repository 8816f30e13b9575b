"""What differs between kernel versions, as rows with their source; and the kernel that a model stands for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

# Order of include/linux/cgroup_subsys.h: the first controller that is wrong decides the errno.
CONTROLLERS = (
    "cpuset", "cpu", "cpuacct", "io", "memory", "devices", "freezer", "net_cls", "perf_event", "net_prio", "hugetlb",
    "pids", "rdma", "misc", "dmem",
)  # fmt: skip
THREADED = frozenset({"cpuset", "cpu", "cpuacct", "perf_event", "pids"})  # controllers that know threads
IMPLICIT = frozenset({"perf_event"})  # in every group without being asked for: a known name, and never offered


@dataclass(frozen=True)
class Change:
    """A behaviour that is `old` before version `since`, and `new` from there on."""

    since: tuple[int, ...]
    old: int
    new: int
    source: str


CHANGES = {
    "weight of an idle group": Change(
        (6, 12), 0, 1,
        "sched_weight_to_cgroup() clamps to CGROUP_WEIGHT_MIN since 4f9c7ca85104 ('sched: Factor out cgroup weight"
        " conversion functions'); 6.1.192 reads 0, 6.12.117 reads 1",
    ),
    "dead processes leave late": Change(
        (6, 19), 0, 1,
        "d245698d727a ('cgroup: Defer task cgroup unlink until after the task is done switching out'): the parent's"
        " waitpid() can return before the group is no longer populated, and upstream promises no order ('selftests/"
        "cgroup: Don't require synchronous populated update on task exit'); 7.3.4 was seen populated 2 ms later",
    ),
    "rmdir waits for the dead": Change(
        (7, 0), 0, 1,
        "'cgroup: Wait for dying tasks to leave on rmdir': until then EBUSY while the last process is on its way out",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Kernel:
    """A kernel as the model sees it.

    `offered` are the controllers that a sequence's own group has, `known` all names that subtree_control accepts,
    `files` the names of the files that a group with all offered controllers has; empty: all that the model knows.
    """

    version: tuple[int, ...]
    offered: frozenset[str]
    known: frozenset[str]
    files: frozenset[str] = frozenset()

    @classmethod
    def of(cls, version: tuple[int, ...], offered: Iterable[str], root: Iterable[str], files: Iterable[str]) -> Kernel:
        """`root`: what the hierarchy's root lists in cgroup.controllers, and what is built in and implicit."""
        return cls(version, frozenset(offered), frozenset(root), frozenset(files))

    def has(self, what: str) -> int:
        """The behaviour called `what` in this version."""
        change = CHANGES[what]
        return change.new if self.version >= change.since else change.old
