"""The delegation probe: containers started by a service with and without Delegate=yes, by both cgroup drivers, and what
that costs on the system bus. Needs a guest that systemd runs."""

from __future__ import annotations

import contextlib
import json
import random
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from labs.errors import LabError
from labs.guest import Guest
from labs.probe.containers import STATE, configuration, listing, rootfs
from labs.probe.register import FOLDER, Absent
from labs.probe.stream import Listing

DRIVERS = ("cgroupfs", "systemd")
MODES = tuple((driver, delegate) for driver in DRIVERS for delegate in ("no", "yes"))
MANAGER = "org.freedesktop.systemd1"
ASK = f"busctl call {MANAGER} /org/freedesktop/systemd1 {MANAGER}.Manager"
CALLERS = 6  # of the storm
# Boot parameters that make systemd mount cgroup v1 alone: the first two up to 255 (systemd(1), "Kernel Command Line"),
# the third, too, from 256 on (systemd's NEWS); 258 has no v1 any more.
V1 = (
    "systemd.unified_cgroup_hierarchy=0",
    "systemd.legacy_systemd_cgroup_controller=1",
    "SYSTEMD_CGROUP_ENABLE_LEGACY_FORCE=1",
)

# A service's payload: $1 driver, $2 name. It makes room in its own group as a delegated manager must (no processes
# beside child groups), runs one container to its end, and tells the microseconds of that and the exit code.
ONE = r"""
export LC_ALL=C
own=${LAB_OWN:-$(sed -n 's/^0:://p' /proc/self/cgroup)}
if [ "$1" = cgroupfs ]; then
    mkdir -p /sys/fs/cgroup$own/payload; echo $$ > /sys/fs/cgroup$own/payload/cgroup.procs
    path=$own/$2 flag=
else
    path=system.slice:lab:$2 flag=--systemd-cgroup
fi
mkdir -p @HOME/$2; sed "s#@PATH#$path#; s#@ID#$2#" @HOME/template > @HOME/$2/config.json
began=${EPOCHREALTIME/./}
@RUNTIME --root @STATE $flag run --bundle @HOME/$2 $2 < /dev/null > @HOME/$2/said 2>&1
code=$?
echo "$1 $(( ${EPOCHREALTIME/./} - began )) $code $(tail -n 1 @HOME/$2/said)"
"""
HOME = f"{FOLDER}/bundles"  # made and removed with the rootfs


@dataclass(frozen=True)
class Start:
    """One container: in which mode, how long its whole run took in microseconds, its exit code, its last words, and
    which cgroup hierarchy its guest has."""

    driver: str
    delegate: str
    us: int
    code: int
    said: str
    hierarchy: str = "v2"


def _columns(starts: Sequence[Start]) -> dict[str, Any]:
    names = ("driver", "delegate", "us", "code", "hierarchy")
    return {name: np.array([getattr(one, name) for one in starts]) for name in names}


@dataclass(frozen=True)
class Starts:
    """`starts` in rounds of one per mode; `left` lists what was there before and after in the guest with v2."""

    starts: tuple[Start, ...]
    left: tuple[Listing, Listing]

    def of(self, driver: str, delegate: str, hierarchy: str = "v2") -> list[int]:
        wanted = (driver, delegate, hierarchy)
        return [one.us for one in self.starts if (one.driver, one.delegate, one.hierarchy) == wanted]

    def save(self, path: Path) -> None:
        """Columns of equal length, a row a container in the order in which they ran."""
        np.savez(path, **_columns(self.starts))


def needs_systemd(guest: Guest) -> None:
    """Absent where another init runs, as in the qemu provider's guests."""
    if guest.run("test -d /run/systemd/system && command -v busctl").code:
        raise Absent(f"systemd does not run this guest ({guest.run('cat /proc/1/comm').out.strip()} does)")


def _prepare(guest: Guest, runtime: str) -> None:
    config = configuration("")
    config["process"]["args"] = ["/bin/busybox", "true"]
    config["linux"]["cgroupsPath"] = "@PATH"
    script = ONE
    for word, value in (("@HOME", HOME), ("@RUNTIME", runtime), ("@STATE", STATE)):
        script = script.replace(word, value)
    guest.put_files({"template": json.dumps(config).encode(), "one.sh": script.encode()}, HOME)


def run_starts(guest: Guest, runtime: str, rounds: int, seed: int, legacy: Guest | None = None) -> Starts:
    """`rounds` containers in each mode, in drawn order within a round; and of the systemd driver in `legacy`, a guest
    with cgroup v1 beside the other, if that is what it has become."""
    needs_systemd(guest)
    modes = [(guest, "v2", driver, delegate) for driver, delegate in MODES]
    modes += [(legacy, "v1", "systemd", "no")] if legacy and has_v1(legacy) else []
    draw = random.Random(seed)
    found = []
    with contextlib.ExitStack() as stack:
        for each in dict.fromkeys(mode[0] for mode in modes):
            stack.enter_context(rootfs(each))
            _prepare(each, runtime)
        before = _left(guest)
        for number in range(rounds):
            for each, hierarchy, driver, delegate in draw.sample(modes, len(modes)):
                name = f"lab-{driver}-{delegate}-{number}"
                service = f"systemd-run --quiet --collect --wait --pipe --unit={name}-service -p Delegate={delegate}"
                told = each.must(f"{service} bash {HOME}/one.sh {driver} {name}", 60)
                found.append(replace(_start(told, delegate), hierarchy=hierarchy))
        guest.must("sleep 2")  # systemd collects units that have ended a moment later
        after = _left(guest)
    return Starts(tuple(found), (before, after))


def has_v1(guest: Guest) -> bool:
    """Whether systemd has mounted cgroup v1: a folder of hierarchies, and not one hierarchy."""
    return guest.must("stat -f -c %T /sys/fs/cgroup").strip() == "tmpfs"


def _start(told: str, delegate: str) -> Start:
    match = re.match(r"(\w+) (\d+) (\d+) ?(.*)", told)
    if not match:
        raise LabError("what the service told is malformed", evidence=told)
    return Start(match[1], delegate, int(match[2]), int(match[3]), match[4])


def _left(guest: Guest) -> Listing:
    """As of all containers, and the units that systemd knows."""
    units = guest.must("systemctl list-units --all --plain --no-legend 'lab-*' | cut -d' ' -f1").split()
    groups = guest.must("find /sys/fs/cgroup -name 'lab-*' -type d").split()
    return {**listing(guest, "/sys/fs/cgroup/system.slice/lab.slice"), "cgroups": groups, "units": units}


@dataclass(frozen=True)
class Traffic:
    """Method calls to systemd over the system bus while `containers` ran one after the other: member -> how many."""

    containers: int
    calls: Mapping[str, int]

    def save(self, path: Path) -> None:
        np.savez(path, containers=self.containers, member=list(self.calls), calls=list(self.calls.values()))


@dataclass(frozen=True)
class Storm:
    """Starts on a quiet bus, starts in the storm, and how many calls of the storm were answered meanwhile."""

    quiet: tuple[Start, ...]
    stormed: tuple[Start, ...]
    answered: int

    def save(self, path: Path) -> None:
        np.savez(path, answered=self.answered, quiet=len(self.quiet), **_columns([*self.quiet, *self.stormed]))


def run_traffic(guest: Guest, runtime: str, driver: str, containers: int) -> Traffic:
    """Watch the bus while containers of one driver run, started from outside of any service."""
    needs_systemd(guest)
    with rootfs(guest):
        _prepare(guest, runtime)
        names = " ".join(f"lab-bus-{driver}-{number}" for number in range(containers))
        script = f"""
            export LAB_OWN=$(sed -n 's/^0:://p' /proc/self/cgroup)
            mkdir /sys/fs/cgroup$LAB_OWN/payload; echo $$ > /sys/fs/cgroup$LAB_OWN/payload/cgroup.procs
            busctl monitor --json=short {MANAGER} >> {HOME}/bus 2> {HOME}/bus.err & watcher=$!
            tries=0
            until {ASK} GetUnit s -- -.slice > /dev/null && grep -q GetUnit {HOME}/bus; do
                tries=$((tries + 1)); [ $tries -lt 100 ] || exit 7; sleep 0.1
            done
            : > {HOME}/bus
            for name in {names}; do bash {HOME}/one.sh {driver} $name; done > {HOME}/told
            sleep 1; kill $watcher; cat {HOME}/told >&2; cat {HOME}/bus"""
        scope = "systemd-run --quiet --collect --wait --pipe --unit=lab-bus-service -p Delegate=yes"
        result = guest.run(f"{scope} bash -c {shlex.quote(script)}", 60 + 5 * containers)
        if result.code:
            raise LabError(f"the bus could not be watched ({result.code})", evidence=result.err)
        starts = [_start(line, "yes") for line in result.err.splitlines() if line.startswith(driver)]
    if len(starts) != containers or any(one.code for one in starts):
        raise LabError(f"not all containers ran while the bus was watched: {result.err[-300:]}", evidence=result.err)
    return Traffic(containers, tally(result.out))


def tally(monitored: str) -> dict[str, int]:
    """Member -> method calls to systemd, of what `busctl monitor --json=short` printed; other lines are passed over."""
    calls: dict[str, int] = {}
    for line in monitored.splitlines():
        try:
            message: Any = json.loads(line)
        except ValueError:
            continue
        if not isinstance(message, dict) or message.get("type") != "method_call":
            continue
        if message.get("destination") == MANAGER and isinstance(member := message.get("member"), str):
            calls[member] = calls.get(member, 0) + 1
    return calls


def run_storm(guest: Guest, runtime: str, count: int) -> Storm:
    """Containers of the systemd driver on a quiet bus, then as many while callers ask systemd without a pause."""
    needs_systemd(guest)
    with rootfs(guest):
        _prepare(guest, runtime)
        quiet = [_start(guest.must(f"bash {HOME}/one.sh systemd lab-quiet-{n}", 60), "no") for n in range(count)]
        guest.must(
            f"for n in $(seq {CALLERS}); do"
            f" (while [ ! -e {HOME}/over ]; do {ASK} ListUnits > /dev/null && echo >> {HOME}/n$n; done)"
            " > /dev/null 2>&1 & done"
        )
        try:
            stormed = [_start(guest.must(f"bash {HOME}/one.sh systemd lab-storm-{n}", 60), "no") for n in range(count)]
        finally:
            answered = guest.must(f"touch {HOME}/over; cat {HOME}/n* 2> /dev/null | wc -l; sleep 1", 60)
    return Storm(tuple(quiet), tuple(stormed), int(answered.split()[0]))


SUBTREE = """
systemd-run --quiet --collect --unit=lab-subtree -p Delegate=@DELEGATE sleep 1000
own=/sys/fs/cgroup/system.slice/lab-subtree.service
mkdir $own/payload $own/child
for pid in $(cat $own/cgroup.procs); do echo $pid > $own/payload/cgroup.procs; done
echo "+memory +pids" > $own/cgroup.subtree_control
systemctl daemon-reload; systemctl set-property --runtime lab-subtree.service TasksMax=500
show controllers cat $own/cgroup.subtree_control
show groups sh -c "cd $own; ls -d payload child"
show moved cat $own/payload/cgroup.procs
systemctl stop lab-subtree
show left sh -c "ls -d $own"
"""


def run_subtree(guest: Guest, delegate: str) -> dict[str, str]:
    """What a service has made below its group, after systemd has read its units again and changed the service."""
    needs_systemd(guest)
    return guest.sections(SUBTREE.replace("@DELEGATE", delegate), 60)
