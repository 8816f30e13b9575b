"""What this host can do: programs, memory, disk, ids, and an accelerator that really boots a guest."""

from __future__ import annotations

import getpass
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from labs.build.kernel import kernel_artifacts
from labs.command import OPTIONAL, PACKAGES, run, which
from labs.deadline import Deadline
from labs.errors import LabError, MissingProgram
from labs.matrix import DEFAULT_KERNEL
from labs.provision.accel import accelerator
from labs.provision.budget import available_memory_mb
from labs.source.debian import Archive, keyring, machine_mirror
from labs.source.kernels import find_kernel
from labs.store import Store

MEMORY_MB = 1536  # one guest and the host's own needs
DISK_MB = 4096  # kernel, image, records of the main job


@dataclass(frozen=True)
class Finding:
    """One thing looked at: `ok` or not, what was found, and the command that mends it."""

    name: str
    ok: bool
    found: str
    mend: str = ""


def examine(store: Store) -> list[Finding]:
    """Everything that the main job needs, worst told plainly; the accelerator last, as it depends on the rest."""
    findings = [_program(name) for name in PACKAGES]
    findings += [_memory(), _disk(store), _ids(), _archive(), _vagrant()]
    if all(finding.ok for finding in findings):
        findings.append(_accelerator(store))
    return findings


def _program(name: str) -> Finding:
    try:
        path = which(name)
    except MissingProgram as error:
        return Finding(name, False, "not installed", error.mend)
    if name != "qemu-system-x86_64":
        return Finding(name, True, path)
    return Finding(name, True, run([name, "--version"], Deadline(20, name)).out.splitlines()[0])


def _vagrant() -> Finding:
    """Fine without: the main job needs none of it."""
    absent = [finding for finding in map(_program, OPTIONAL) if not finding.ok]
    lacking = ", ".join(finding.name for finding in absent)
    told = f"cannot be used: no {lacking}; {absent[0].mend}" if absent else "can be used"
    return Finding("provider vagrant", True, told)


def _memory() -> Finding:
    have = available_memory_mb()
    return Finding("memory", have >= MEMORY_MB, f"{have} MB available", "end other programs")


def _disk(store: Store) -> Finding:
    free = shutil.disk_usage(store.root).free >> 20
    return Finding("disk", free >= DISK_MB, f"{free} MB free at {store.root}", "labs clean, or set LABS_STORE")


def _ids() -> Finding:
    if os.geteuid() == 0:
        return Finding("subordinate ids", True, "root needs none")
    user = getpass.getuser()
    lines = Path("/etc/subuid").read_text().splitlines() if Path("/etc/subuid").exists() else []
    has = any(line.split(":")[0] in (user, str(os.getuid())) for line in lines)
    mend = f"usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {user}"
    return Finding("subordinate ids", has, "in /etc/subuid" if has else "no line in /etc/subuid", mend)


def _archive() -> Finding:
    try:
        keyring()
        mirror = machine_mirror()
    except LabError as error:
        return Finding("Debian archive", False, error.what, error.mend)
    security = "" if mirror.security else ", without its security suites"
    return Finding("Debian archive", True, f"named by this machine's configuration{security}")


def _accelerator(store: Store) -> Finding:
    try:
        archive = Archive(store)
        kernel = kernel_artifacts(store, archive, find_kernel(DEFAULT_KERNEL, archive))
        found = accelerator(store, archive, kernel)
    except LabError as error:
        return Finding("accelerator", False, error.what, error.mend)
    return Finding("accelerator", True, f"{found.name}: {found.reason}")
