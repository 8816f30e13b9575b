"""The containers probe: parallel callers of a runtime, while the files of their groups are written and read."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from labs.guest import Guest
from labs.probe.register import CAPACITY, FOLDER, Load, load_lines, run_agent, tables_for
from labs.probe.stream import Listing, Report

STATE = "/run/cgroup-lab-state"  # the runtime's --root
ROOTFS = "/run/cgroup-lab-rootfs"
STEP_SECONDS = 60
PAUSE_US = 1500  # between a thread's operations: the runtime shares the CPUs, and 15 containers must see 100 overlaps


def configuration(cgroup: str) -> dict[str, Any]:
    """The OCI bundle, with @ID@ where the agent puts the container's name. It sets no limit of its own: all values in
    the group's files come from the probe (OCI runtime-spec 1.0, config.md and config-linux.md)."""
    return {
        "ociVersion": "1.0.2",
        "process": {
            "terminal": False,
            "user": {"uid": 0, "gid": 0},
            "args": ["/bin/busybox", "sleep", "1000"],
            "env": ["PATH=/bin"],
            "cwd": "/",
            "noNewPrivileges": True,
        },
        "root": {"path": ROOTFS, "readonly": True},
        "hostname": "@ID@",
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            # of each container's own: runtimes make device nodes and links in it, which would meet in the shared rootfs
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
            {
                "destination": "/dev/pts",
                "type": "devpts",
                "source": "devpts",
                "options": ["newinstance", "ptmxmode=0666"],
            },
            {"destination": "/dev/shm", "type": "tmpfs", "source": "shm", "options": ["nosuid", "noexec", "nodev"]},
            {"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": ["nosuid", "noexec", "nodev", "ro"]},
        ],
        "linux": {
            "cgroupsPath": f"{cgroup}/@ID@",
            "namespaces": [{"type": kind} for kind in ("pid", "network", "ipc", "uts", "mount")],
        },
    }


@contextlib.contextmanager
def rootfs(guest: Guest) -> Iterator[None]:
    """A root file system of one busybox, and folders for the runtime's state and the bundles."""
    bundles = f"{FOLDER}/bundles"
    guest.must(
        f"mkdir -p {ROOTFS}/bin {ROOTFS}/proc {ROOTFS}/dev {ROOTFS}/sys {STATE} {bundles}"
        f" && cp /bin/busybox {ROOTFS}/bin/"
    )
    yield
    guest.run(f"rm -rf {ROOTFS} {STATE} {bundles}", 20)


def run_containers(
    guest: Guest,
    runtime: str,
    parent: str,
    loads: Sequence[Load],
    own: Sequence[str],
    *,
    count: int,
    workers: int,
    seed: int,
) -> Report:
    """`count` containers below the cgroup `parent`, `workers` at a time, each through its whole life.

    Meanwhile `loads` run on files of other groups (as the parent), and one writer and one reader on each file named
    in `own` of every container's group, from create to kill.
    """
    tables = tables_for([*(load.path for load in loads), *own], seed)
    names = list(tables)
    cgroup = parent.removeprefix("/sys/fs/cgroup")
    plan = [f"capacity {CAPACITY // 4}", f"seed {seed}", f"pause {PAUSE_US}", *load_lines(loads, tables)]
    plan.append(
        f"containers {count} {workers} {STEP_SECONDS} {runtime} {STATE} {FOLDER}/bundles {FOLDER}/template {parent}"
    )
    plan += [f"own {names.index(name)} {len(tables[name])} {name}" for name in own]
    with rootfs(guest):
        guest.put_files({"template": json.dumps(configuration(cgroup)).encode()}, FOLDER)
        before = listing(guest, parent)
        report = run_agent(guest, plan, tables, seconds=60 + 3 * count, facts={"seed": seed, "runtime": runtime})
        return replace(report, left=(before, listing(guest, parent)))


def listing(guest: Guest, parent: str) -> Listing:
    """What containers can leave behind: groups, the runtime's states, processes, mounts.

    A zombie is not left behind by the runtime: it waits for the guest's init, which reaps at its own pace.
    """
    told = guest.sections(
        f"""
        show cgroups find {parent} -mindepth 1 -type d
        show states ls {STATE}
        show processes sh -c 'ps -eo stat=,comm= | grep -vE "^Z" | grep -oE "(runc|crun|busybox|sleep)$"'
        show mounts grep -E '{ROOTFS}|{STATE}' /proc/mounts
        """
    )
    return {name: text.splitlines() for name, text in told.items()}
