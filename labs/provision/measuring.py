"""A guest that measures and ends: no disk, no network, no SSH; what it sends over its second serial line comes back."""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace
from pathlib import Path

from labs.build.initramfs import measuring_initramfs
from labs.deadline import Deadline
from labs.errors import DeadlineExpired, GuestLost
from labs.guest import Vitals
from labs.provision import budget
from labs.provision.qemu import SAMPLES, MachineSpec, QemuMachine

SECONDS = 60.0  # of a whole boot on hardware; stretched under emulation
MOST = 256 << 20  # bytes of samples; a guest is not trusted to stop
END = b"end\n"
PARAMETERS = ("rdinit=/agent", "norandmaps")


def spec_of(kernel: Path, accelerator: str, seed: int) -> MachineSpec:
    """The machine of a measuring guest, without its initramfs. Equal for equal input, so that virtual time repeats."""
    return MachineSpec(kernel, Path(), None, accelerator, PARAMETERS, memory_mb=512, cpus=1, seed=seed)


def sent_by(spec: MachineSpec, agent: Path, plan: str, logs: Path) -> bytes:
    """Boot, wait for the guest's end, and give what it sent; console.log and the raw samples stay in `logs`.

    Raises KernelFailed, GuestLost, NoSpace, as a guest with SSH does.
    """
    with tempfile.TemporaryDirectory(prefix="cgroup-lab-") as name:
        folder = Path(name)
        budget.check(spec.memory_mb, spec.cpus, logs)
        initrd = measuring_initramfs(agent, plan, folder)
        machine = QemuMachine(replace(spec, initrd=initrd), folder, logs)
        try:
            return _wait(machine, logs / SAMPLES, Deadline.scaled(SECONDS, "measuring", spec.accelerator))
        finally:
            machine.end()


def _wait(machine: QemuMachine, samples: Path, deadline: Deadline) -> bytes:
    vitals = Vitals(machine, machine.console)
    machine.connect_monitor(deadline)
    try:
        while not machine.gone():
            vitals.check()
            deadline.check(machine.console.tail(40))
            if samples.stat().st_size > MOST:
                raise GuestLost(f"the guest sent more than {MOST >> 20} MiB")
            time.sleep(0.02)
    except DeadlineExpired as error:
        vitals.explain_silence(error)
    except GuestLost:
        if not machine.gone():
            raise
    data = samples.read_bytes()
    if machine.process.returncode or not data.endswith(END):
        vitals.check()  # the kernel's own end, or a guest that was lost
    return data
