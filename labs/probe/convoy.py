"""The convoy probe: several creates of a runtime at once, and how long each waited for a lock on a file.

Waits are taken from the kernel's own trace of flock(2), not from how long a create took: with more creates than CPUs
every one takes longer, whether or not it waits for the others.
"""

from __future__ import annotations

import json
import re
import shlex
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from labs.errors import LabError
from labs.guest import Guest
from labs.probe.containers import STATE, configuration, rootfs
from labs.probe.register import FOLDER, Absent

HOME = f"{FOLDER}/bundles"
TRACING = "/sys/kernel/tracing"
PROOF = "proof"  # a lock of the probe's own, which the trace must show
# `  runc:[1:CHILD]-123   [000] .....    12.345678: sys_flock(fd: 3, cmd: 2)`, and `sys_flock -> 0x0`
LINE = re.compile(r"^\s*.+-(?P<thread>\d+)\s+\[\d+\].*?\s(?P<s>\d+)\.(?P<us>\d{6}): sys_flock(?P<begin>\(| -> )", re.M)


@dataclass(frozen=True)
class Wave:
    """`workers` creates at once: the exit code of each, and ns in flock(2) of each call that was made."""

    workers: int
    codes: tuple[int, ...]
    waits_ns: tuple[int, ...]


SCRIPT = r"""
cd $HOME_; E=$TRACING/events/syscalls
wave() { # NUMBER WORKERS
  echo > $TRACING/trace; echo 1 > $TRACING/tracing_on
  for i in $(seq $2); do
    ( $RUNC --root $STATE create --bundle w$1-$i w$1-$i < /dev/null > w$1-$i/said 2>&1; echo $? > w$1-$i/code ) &
  done
  wait; echo 0 > $TRACING/tracing_on
  show codes$1 sh -c "cat w$1-*/code"; show said$1 sh -c "cat w$1-*/said"; show trace$1 cat $TRACING/trace
  for i in $(seq $2); do $RUNC --root $STATE delete -f w$1-$i > /dev/null 2>&1; done
}
echo mono > $TRACING/trace_clock
for side in enter exit; do echo 1 > $E/sys_${side}_flock/enable || exit; done
echo > $TRACING/trace; echo 1 > $TRACING/tracing_on; flock proof.lock true; echo 0 > $TRACING/tracing_on
show proof cat $TRACING/trace
"""


def run_convoy(guest: Guest, runtime: str, parent: str, workers: Sequence[int]) -> tuple[Wave, ...]:
    """A wave for each number of `workers`, in the cgroup `parent`. Absent without tracing of system calls."""
    if guest.run(f"test -d {TRACING}/events/syscalls/sys_enter_flock").code != 0:
        raise Absent("this kernel does not trace system calls (CONFIG_FTRACE_SYSCALLS)")
    config = json.dumps(configuration(parent.removeprefix("/sys/fs/cgroup")))
    names = [f"w{number}-{i}" for number, count in enumerate(workers) for i in range(1, count + 1)]
    head = f"RUNC={shlex.quote(runtime)} STATE={STATE} HOME_={HOME} TRACING={TRACING}"
    waves = [f"wave {number} {count}" for number, count in enumerate(workers)]
    off = "for side in enter exit; do echo 0 > $E/sys_${side}_flock/enable; done; echo 1 > $TRACING/tracing_on"
    with rootfs(guest):
        guest.put_files({f"{name}/config.json": config.replace("@ID@", name).encode() for name in names}, HOME)
        told = guest.sections("\n".join([head, SCRIPT, *waves, off]), 60 + 4 * len(names))
    if not waits(told.get(PROOF, "")):
        raise LabError("the trace of flock shows nothing, not even the probe's own lock")
    return tuple(
        Wave(count, tuple(map(int, told[f"codes{number}"].split())), waits(told[f"trace{number}"]))
        for number, count in enumerate(workers)
    )


def waits(trace: str) -> tuple[int, ...]:
    """Nanoseconds of each flock call in a trace, by thread; one that has not come back is left out."""
    begun: dict[str, int] = defaultdict(int)
    found = []
    for line in LINE.finditer(trace):
        at = int(line["s"]) * 10**9 + int(line["us"]) * 1000
        if line["begin"] == "(":
            begun[line["thread"]] = at
        elif line["thread"] in begun:
            found.append(at - begun.pop(line["thread"]))
    return tuple(found)
