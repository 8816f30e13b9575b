"""Run promises in a guest: make their root group, run each script, clean up whatever it left."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from labs.errors import LabError
from labs.guest import Guest
from labs.probe.register import Absent
from labs.probe.script import Outcome, op, run_script
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


def run_promise(
    guest: Guest, promise: Promise, files: Sequence[str] | frozenset[str], rounds: int
) -> list[list[Outcome]]:
    """The outcomes of each round. Absent names a file that the promise needs and a group here does not have."""
    for name in promise.needs:
        if name not in files:
            raise Absent(f"{name} does not exist in this guest")
    # one guest call for all rounds: a barrier between them, and each round cleans up after itself
    ops = ([*promise.ops, op("-")]) * rounds
    outcomes = run_script(guest, ops, phase_ms=promise.phase_ms, seconds=30 + rounds * promise.phase_ms / 1000)
    size = len(promise.ops) + 1
    return [outcomes[at : at + len(promise.ops)] for at in range(0, rounds * size, size)]
