"""Which accelerator really boots a guest here: found out by booting one, remembered per host, its kernel and QEMU."""

from __future__ import annotations

import json
import logging
import os
import platform
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from labs.build.initramfs import initramfs
from labs.build.kernel import KernelArtifacts
from labs.command import run
from labs.deadline import Deadline
from labs.provision.qemu import MachineSpec, QemuMachine
from labs.source.debian import Archive
from labs.store import Store, digest

log = logging.getLogger("labs")

PROBE_SECONDS = 10.0  # a KVM guest that works reaches init in about one second
REACHED = "cgroup-lab: reached init"


@dataclass(frozen=True)
class Accelerator:
    """`kvm` or `tcg`, and how the lab knows."""

    name: str
    reason: str


# The clock follows the guest's instructions: what an operation costs, on any host, without parallelism.
VIRTUAL_TIME = Accelerator("icount", "virtual time was asked for")


def qemu_version() -> str:
    return run(["qemu-system-x86_64", "--version"], Deadline(20, "asking QEMU's version")).out.splitlines()[0]


def _remembered(store: Store) -> Path:
    host = {
        "kernel": platform.release(),
        "machine": platform.node(),
        "qemu": qemu_version(),
        "kvm": os.access("/dev/kvm", os.R_OK | os.W_OK),
    }
    return store.root / f"accelerator-{digest(host)}.json"


def known(store: Store) -> Accelerator | None:
    """What was found out on this host; None when that has not been tried."""
    path = _remembered(store)
    return Accelerator(**json.loads(path.read_text())) if path.exists() else None


def accelerator(store: Store, archive: Archive, kernel: KernelArtifacts) -> Accelerator:
    """Boot a guest under KVM unless that was tried before on this host; TCG when it does not reach init."""
    if told := known(store):
        return told
    found = _probe(store, archive, kernel)
    path = _remembered(store)
    part = path.with_suffix(f".{os.getpid()}")
    part.write_text(json.dumps(asdict(found)))
    part.replace(path)
    if found.name == "tcg":
        log.warning("NO HARDWARE VIRTUALISATION: guests are emulated (TCG); %s", found.reason)
    return found


def _probe(store: Store, archive: Archive, kernel: KernelArtifacts) -> Accelerator:
    if not Path("/dev/kvm").exists():
        return Accelerator("tcg", "there is no /dev/kvm")
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return Accelerator("tcg", "/dev/kvm may not be opened; add the user to group kvm")
    log.info("probing KVM with a real guest (at most %.0f s, once per host)", PROBE_SECONDS)
    spec = MachineSpec(kernel.vmlinuz, initramfs(store, archive, kernel, agent=None), None, "kvm", memory_mb=512)
    with tempfile.TemporaryDirectory(prefix="cgroup-lab-") as name:
        machine = QemuMachine(spec, Path(name), Path(name))
        began = time.monotonic()
        try:
            while time.monotonic() - began < PROBE_SECONDS:
                machine.console.poll()
                if REACHED in machine.console.text:
                    return Accelerator("kvm", f"a guest reached init in {time.monotonic() - began:.1f} s")
                if machine.gone():
                    words = machine.log.read_text(errors="replace").strip().splitlines() or [machine.gone()]
                    return Accelerator("tcg", f"KVM does not run a guest: {words[0]}")
                time.sleep(0.05)
        finally:
            machine.end()
    return Accelerator("tcg", f"a KVM guest did not reach init in {PROBE_SECONDS:.0f} s")
