"""Run promises in a guest: make their root group, run each script, clean up whatever it left."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Collection, Iterator, Sequence

from labs.errors import LabError
from labs.guest import Guest
from labs.probe.script import BARRIER, Op, Outcome, run_script
from labs.promise import ROOT, Promise

ALL_CONTROLLERS = ("cpu", "cpuset", "io", "memory", "pids")


@contextlib.contextmanager
def root_group(guest: Guest, root: str = ROOT) -> Iterator[frozenset[str]]:
    """`root` with every controller that the kernel has, enabled for its children.

    Yields the files that a child then has, and the names of the block devices.
    """
    enable = " ".join(f"echo +{name} > $g/cgroup.subtree_control;" for name in ALL_CONTROLLERS)
    listed = guest.must(
        f"for g in /sys/fs/cgroup {root}; do mkdir -p $g; {enable} done 2> /dev/null;"
        f" mkdir {root}/x && ls {root}/x /sys/block && rmdir {root}/x"
    )
    try:
        yield frozenset(listed.split())
    finally:
        clean(guest, root)
        with contextlib.suppress(LabError):
            guest.run(f"rmdir {root}", 10)


def clean(guest: Guest, root: str = ROOT) -> None:
    """End every process below `root` and remove every group there, deepest first.

    Processes are killed one by one too: cgroup.kill, which is under test, may miss some.
    """
    guest.run(
        f"for i in 1 2 3 4 5; do find {root} -mindepth 1 -depth -type d | while read -r g; do"
        f" echo 0 > $g/cgroup.freeze; echo 1 > $g/cgroup.kill; kill -9 $(cat $g/cgroup.procs); rmdir $g; done;"
        f' [ -z "$(find {root} -mindepth 1 -type d)" ] && break; sleep 0.2; done 2> /dev/null',
        30,
    )


def absent(promise: Promise, files: Collection[str]) -> str:
    """The file or device that the promise needs and this guest does not have, or ''."""
    return next((name for name in promise.needs if name not in files), "")


def run_promises(guest: Guest, promises: Sequence[Promise], *, times: int = 1) -> dict[str, list[list[Outcome]]]:
    """Outcomes of each round of each promise, by its name; all in one call of the guest.

    One that goes another way than planned leaves things behind, which may spoil the preparation of those after it:
    such a one is told by its verdict (`error`), and can be run again by itself.
    """
    ops: list[Op] = []
    for promise in promises:
        ops += [*promise.ops, BARRIER] * (promise.rounds * times)
    phase_ms = max(promise.phase_ms for promise in promises)
    spent = sum(promise.rounds * times for promise in promises)
    outcomes = iter(run_script(guest, ops, phase_ms=phase_ms, seconds=60 + spent * phase_ms / 1000))
    found: dict[str, list[list[Outcome]]] = {}
    for promise in promises:
        for _ in range(promise.rounds * times):
            found.setdefault(promise.name, []).append(list(itertools.islice(outcomes, len(promise.ops))))
            next(outcomes)  # the barrier between rounds
    return found
