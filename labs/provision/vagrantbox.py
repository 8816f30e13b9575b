"""The vagrant provider: a whole distribution from the lab's box, made by Vagrant and libvirt in an enclosure."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import secrets
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from labs.build.box import TOP, box
from labs.deadline import Deadline
from labs.errors import DeadlineExpired, GuestLost, LabError
from labs.guest import Guest, Vitals
from labs.provision import Provider, budget
from labs.provision.enclosure import Enclosure, enclosure, running
from labs.provision.monitor import PATIENCE, Monitored, watched
from labs.provision.qemu import ACCELERATION, READY, MachineSpec
from labs.provision.vagrant_client import Client, ssh_config
from labs.session import Session, connect

PROGRAMS = ("vagrant", "libvirtd", "dnsmasq", "qemu-img", "nsenter")
PARAMETERS = ("lab.root=/dev/vda1", "systemd.show_status=false")  # its own disk and init, labs/build/guest/init
BOOT_SECONDS = 60.0  # from `vagrant up` to the login, under hardware virtualisation
LOGIN_SECONDS = 10.0  # into a guest that has been put back
REASON_SECONDS = 5.0
DISK_MB = 1024  # the box as a volume, and what the guest writes
BOX = "cgroup-lab"


class VagrantMachine(Monitored):
    """The QEMU that libvirt started for Vagrant; `pid` is 0 until it has been seen."""

    def __init__(self, name: str, accelerator: str, folder: Path, logs: Path, inside: Enclosure) -> None:
        super().__init__(accelerator, folder, logs)
        self.name = name
        self.enclosure = inside
        self.login: Callable[[Deadline], Session] | None = None  # into its guest, once it has come up
        self.pid = 0

    def gone(self) -> str:
        if not self.pid:
            self.pid = next(iter(self.enclosure.machines(self.name)), 0)
            return ""
        return "" if running(self.pid) else "its QEMU has ended"

    def check(self) -> None:
        if reason := self.gone():
            raise GuestLost(f"guest lost: {reason}", evidence=self.console.tail(40))

    def kill(self) -> None:
        """End it as power loss would."""
        os.kill(self.pid, signal.SIGKILL)


def arguments(spec: MachineSpec, folder: Path, logs: Path) -> list[str]:
    """What Vagrant hands to QEMU as it stands: the lab's CPU, sockets and console, and where devices do not collide."""
    words = [*ACCELERATION[spec.accelerator][2:], *watched(folder, logs)]
    for at, device in (("0x1c", "pvpanic-pci"), ("0x1d", "virtio-rng-pci")):
        words += ["-device", f"{device},bus=pcie.0,addr={at}"]
    return words + (["-gdb", f"tcp:127.0.0.1:{spec.gdb}"] if spec.gdb else [])


def describe(spec: MachineSpec, name: str, keys: Path, folder: Path, logs: Path, seconds: float) -> dict[str, object]:
    """machine.json, as vagrant/Vagrantfile reads it."""
    return {
        "name": name,
        "box": BOX,
        "user": "root",
        "key": str(keys / "client"),
        "memory_mb": spec.memory_mb,
        "cpus": spec.cpus,
        "driver": "kvm" if spec.accelerator == "kvm" else "qemu",
        "boot_seconds": int(seconds),
        "kernel": str(spec.kernel),
        "initrd": str(spec.initrd),
        "command_line": " ".join(spec.command_line()),
        "arguments": arguments(spec, folder, logs),
    }


def _lay_out(spec: MachineSpec, folder: Path, machine: dict[str, object]) -> None:
    """The folder that Vagrant works in: Vagrantfile, machine.json, and a home that has the box already."""
    assert spec.root
    shutil.copy(TOP / "Vagrantfile", folder)
    (folder / "machine.json").write_text(json.dumps(machine, indent=1))
    boxes = folder / "home/boxes" / BOX / "0"
    boxes.mkdir(parents=True)
    (boxes / "libvirt").symlink_to(spec.root.parent)


@contextlib.contextmanager
def boot(spec: MachineSpec, keys: Path, logs: Path | None = None) -> Iterator[Guest]:
    """A guest that answers over SSH; ended with all that libvirt made for it when the block is left."""
    with tempfile.TemporaryDirectory(prefix="cgroup-lab-") as made:
        folder = Path(made)
        budget.check(spec.memory_mb, spec.cpus, folder, DISK_MB)
        name = f"cgroup-lab-{secrets.token_hex(4)}"
        deadline = Deadline.scaled(BOOT_SECONDS, "vagrant up", spec.accelerator)
        _lay_out(spec, folder, describe(spec, name, keys, folder, logs or folder, deadline.seconds * 3 / 4))
        with enclosure(folder, spec.accelerator) as inside:
            machine = VagrantMachine(name, spec.accelerator, folder, logs or folder, inside)
            try:
                yield _reach(machine, keys, deadline)
            finally:
                machine.end()


@contextlib.contextmanager
def restored(guest: Guest) -> Iterator[Guest]:
    """Afterwards the guest is as it is now, if its machine is still there: some 20 times as fast as another boot."""
    machine = guest.vitals.machine
    assert isinstance(machine, VagrantMachine) and machine.login
    machine.save()
    try:
        yield guest
    finally:
        guest.session.close()
        machine.restore()
        guest.session = machine.login(Deadline.scaled(LOGIN_SECONDS, "a login after the restore", machine.accelerator))


def _reach(machine: VagrantMachine, keys: Path, deadline: Deadline) -> Guest:
    vitals = Vitals(machine, machine.console)
    client = Client(machine.folder, machine.enclosure.inside, _patient(machine, vitals), deadline)
    try:
        client.told_up()
        machine.connect_monitor(deadline)
        reached = ssh_config(client.ssh_config(), machine.name)
        address = machine.enclosure.relayed(reached.host, reached.port)
        machine.login = functools.partial(connect, address, keys / "client", keys / "host.pub", watch=vitals.check)
        session = machine.login(deadline)
    except DeadlineExpired as error:
        machine.console.poll()
        if READY in machine.console.text:
            told, mend = (
                f"the guest came up, and was not reached: {error}",
                "has it an address, and an sshd that answers?",
            )
            raise LabError(told, mend=mend, evidence=error.evidence) from None
        if machine.pid and not machine.gone():
            machine.connect_monitor(Deadline(PATIENCE, "the monitor answers"))
            vitals.explain_silence(error)
        raise
    return Guest(session, vitals)


def _patient(machine: VagrantMachine, vitals: Vitals) -> Callable[[], None]:
    """The watch during `vagrant up`: when QEMU ends, Vagrant gets the time to tell why, as it knows more."""
    ended: list[Deadline] = []

    def watch() -> None:
        if machine.gone() and not ended:
            ended.append(Deadline(REASON_SECONDS, "Vagrant tells why"))
        if not ended or ended[0].expired or machine.console.fatal:
            vitals.check()

    return watch


PROVIDER = Provider(box, boot, PARAMETERS, PROGRAMS)
