"""The qemu provider: a kernel booted directly, reached through a forward on 127.0.0.1 and watched over QMP."""

from __future__ import annotations

import contextlib
import re
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from labs import catalog
from labs.build.image import root_image
from labs.command import end_group, spawn
from labs.deadline import Deadline
from labs.errors import DeadlineExpired, GuestLost, LabError
from labs.guest import Guest, Vitals
from labs.provision import Provider, budget
from labs.provision.monitor import Monitored, escaped, watched
from labs.session import connect

READY = "cgroup-lab: ready over "  # net or serial: how its sshd is reached
BOOT_SECONDS = 20.0  # under hardware virtualisation; stretched under emulation

# One row an accelerator. -cx16: QEMU 7.2's TCG gets the flags of cmpxchg16b wrong often enough that Debian's 6.12
# kernels end in exc_debug_kernel (seen 3 times in 3 boots of 6.12.107; about 18 boots without it were clean).
# -erms, -fsrm: without them the kernel copies and clears memory in words; TCG runs `rep movsb` a byte at a time.
# icount: virtual time. The clock follows the guest's instructions, 4 ns each, and nothing of the host; one vCPU, since
# QEMU before 10 does not get on with two. clock=vm: the RTC, too.
_EMULATED_CPU = ("-cpu", "max,-cx16,-erms,-fsrm")
ACCELERATION = {
    "kvm": ("-accel", "kvm", "-cpu", "host"),
    "tcg": ("-accel", "tcg,thread=multi", *_EMULATED_CPU),
    "icount": ("-accel", "tcg,thread=single", "-icount", "shift=2", "-rtc", "base=2026-01-01,clock=vm", *_EMULATED_CPU),
}
# idle=poll: a vCPU that halts is woken when the host gets round to it, and the time that took is added to the guest's.
# tsc_early_khz: the TSC counts virtual ns; calibration would be off by what it read.
VIRTUAL_TIME = ("idle=poll", "tsc_early_khz=1000000")
SAMPLES = "samples.bin"  # what a measuring guest sends, in the folder of its logs


@dataclass(frozen=True)
class MachineSpec:
    """All that decides how QEMU is started."""

    kernel: Path
    initrd: Path
    root: Path | None  # ext4 image, opened read-only; None for the accelerator probe
    accelerator: str
    parameters: tuple[str, ...] = ()  # beside those of catalog/guest.toml
    memory_mb: int = 1024
    cpus: int = 2
    gdb: int = 0  # port on 127.0.0.1 for QEMU's gdb stub; 0: none
    seed: int | None = None  # a measuring guest: of what an emulated CPU gives as random; its samples go to a file
    hosts: tuple[str, ...] = ()  # machines that already run, one of which it is to be (labs/provision/ssh.py)

    def command_line(self) -> tuple[str, ...]:
        table = catalog.read("guest")
        left_out = table["emulated"] if self.hosts else ()
        virtual = VIRTUAL_TIME if self.accelerator == "icount" else ()
        return (*(word for word in table["parameters"] if word not in left_out), *virtual, *self.parameters)


def arguments(spec: MachineSpec, folder: Path, logs: Path) -> list[str]:
    """QEMU's full command line. `folder` gets the sockets, `logs` the console."""
    argv = ["qemu-system-x86_64", "-nodefaults", "-no-user-config", "-name", "cgroup-lab", "-M", "q35"]
    argv += ACCELERATION[spec.accelerator]
    argv += ["-smp", str(spec.cpus), "-m", str(spec.memory_mb), "-display", "none", "-no-reboot"]
    argv += ["-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"]
    argv += ["-kernel", str(spec.kernel), "-initrd", str(spec.initrd), "-append", " ".join(spec.command_line())]
    argv += watched(folder, logs)
    if spec.seed is None:
        argv += ["-device", "pvpanic-pci", "-device", "virtio-rng-pci"]
    else:
        argv += ["-seed", str(spec.seed), "-chardev", f"file,id=samples,path={escaped(logs)}/{SAMPLES}"]
        argv += ["-serial", "chardev:samples"]
    if spec.root:
        argv += ["-drive", f"file={escaped(spec.root)},format=raw,readonly=on,if=none,id=root"]
        argv += ["-device", "virtio-blk-pci,drive=root"]
        # For kernels whose modules are not at hand, with what Debian's have built in: the same image on an NVMe disk,
        # changes in a temporary file, and a serial port to the guest's sshd. The guest's init takes what it can use.
        argv += ["-drive", f"file={escaped(spec.root)},format=raw,snapshot=on,if=none,id=plain"]
        argv += ["-device", "nvme,drive=plain,serial=root", "-device", "virtio-serial-pci"]
        argv += ["-chardev", f"socket,id=ssh,path={escaped(folder)}/ssh.sock,server=on,wait=off"]
        argv += ["-device", "virtserialport,chardev=ssh"]
        # restrict: the guest reaches nothing; port 0: the host's kernel picks a free one
        argv += ["-netdev", "user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:0-:22"]
        argv += ["-device", "virtio-net-pci,netdev=net,romfile="]
    if spec.gdb:
        argv += ["-gdb", f"tcp:127.0.0.1:{spec.gdb}"]
    return argv


class QemuMachine(Monitored):
    """A QEMU that the lab started. Ended by `end`, and by the kernel when the lab dies."""

    def __init__(self, spec: MachineSpec, folder: Path, logs: Path) -> None:
        self.log = logs / "qemu.log"
        # QEMU killed in its first moments leaves its temporary file behind: where it goes with the guest
        self.process = spawn(arguments(spec, folder, logs), log=self.log, env={"TMPDIR": str(folder)})
        super().__init__(spec.accelerator, folder, logs)

    def check(self) -> None:
        if self.process.poll() is not None:
            words = [line for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
            said = words[-1].removeprefix("qemu-system-x86_64: ") if words else "without a word"
            raise GuestLost(f"QEMU ended with {self.process.returncode}: {said}", evidence="\n".join(words[-10:]))

    def ssh_port(self) -> int:
        """Port on 127.0.0.1 that leads to the guest's port 22."""
        told = self.monitor.typed("info usernet")
        match = re.search(r"TCP\[HOST_FORWARD\]\s+\d+\s+127\.0\.0\.1\s+(\d+)", told)
        if not match:
            raise LabError("QEMU could not open a forward on 127.0.0.1", evidence=told)
        return int(match[1])

    def gone(self) -> str:
        code = self.process.poll()
        if code is None:
            return ""
        return f"QEMU was killed by signal {-code}" if code < 0 else f"QEMU ended with {code}"

    def end(self) -> None:
        """Kill QEMU and close the monitor; safe to call twice."""
        end_group(self.process)
        super().end()


def _reach(machine: QemuMachine, keys: Path, deadline: Deadline) -> Guest:
    """Wait for the guest's init, then for its sshd; the end of kernel or QEMU is told at once."""
    machine.connect_monitor(deadline)
    vitals = Vitals(machine, machine.console)
    network = ("127.0.0.1", machine.ssh_port())
    try:
        while READY not in machine.console.text:
            vitals.check()
            deadline.check(machine.console.tail(40))
            time.sleep(0.02)
        address = network if f"{READY}net" in machine.console.text else machine.folder / "ssh.sock"
        session = connect(address, keys / "client", keys / "host.pub", deadline, vitals.check)
    except DeadlineExpired as error:
        vitals.explain_silence(error)
        raise
    return Guest(session, vitals)


@contextlib.contextmanager
def boot(spec: MachineSpec, keys: Path, logs: Path | None = None) -> Iterator[Guest]:
    """A guest that answers over SSH; ended, with its sockets removed, when the block is left.

    `logs` is a folder for console.log and qemu.log, written as the guest runs; None: they go with the guest.
    """
    with tempfile.TemporaryDirectory(prefix="cgroup-lab-") as name:
        folder = Path(name)
        budget.check(spec.memory_mb, spec.cpus, logs or folder)
        machine = QemuMachine(spec, folder, logs or folder)
        try:
            yield _reach(machine, keys, Deadline.scaled(BOOT_SECONDS, "boot", spec.accelerator))
        finally:
            machine.end()


PROVIDER = Provider(root_image, boot)
