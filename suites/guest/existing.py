"""Machines that already run, as somebody else's: the box with its own kernel and boot loader, under a QEMU."""

from __future__ import annotations

import contextlib
import re
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from labs.build.box import box
from labs.build.keys import guest_keys
from labs.command import end_group, run, spawn
from labs.console import ConsoleWatch
from labs.deadline import Deadline
from labs.errors import GuestLost
from labs.guest import Guest, Vitals
from labs.provision.hosts import RemoteHost
from labs.provision.monitor import Monitored, watched
from labs.provision.qemu import ACCELERATION
from labs.session import connect
from labs.source.debian import Archive
from labs.source.runtimes import host_image
from labs.store import Store

READY = "cgroup-lab: ready over net"


class Machine(Monitored):
    """One of them; `host` is how it is named to the lab.

    Each of its boots has a QEMU of its own, as if its power had been off: what one QEMU has translated of an earlier
    kernel stands in the way of each write to those pages, and under TCG the second boot takes minutes longer.
    """

    def __init__(self, disk: Path, folder: Path) -> None:
        own = folder / "disk.qcow2"
        argv = ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", str(disk), str(own)]
        run(argv, Deadline(20, "making the disk"))
        self.where, self.over = folder, False
        self.argv = ["qemu-system-x86_64", "-nodefaults", "-no-reboot", "-name", "cgroup-lab", "-M", "q35"]
        self.argv += [*ACCELERATION["tcg"], "-smp", "2", "-m", "1024", "-display", "none"]
        self.argv += [word.replace("logfile=", "logappend=on,logfile=") for word in watched(folder, folder)]
        self.argv += ["-drive", f"file={own},if=virtio,cache=unsafe", "-device", "virtio-rng-pci"]
        self.argv += ["-device", "virtio-net-pci,netdev=net,romfile="]
        self.process = self.started(0)
        super().__init__("tcg", folder, folder)
        self.connect_monitor(Deadline(20, "the monitor answers"))
        told = self.monitor.typed("info usernet")
        self.host = RemoteHost("127.0.0.1", int(re.search(r"127\.0\.0\.1\s+(\d+)", told)[1]))
        self.keeper = threading.Thread(target=self.keep, daemon=True)
        self.keeper.start()

    def started(self, port: int) -> subprocess.Popen[bytes]:
        network = f"user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:{port}-:22"
        return spawn([*self.argv, "-netdev", network], log=self.where / "qemu.log", env={"TMPDIR": str(self.where)})

    def keep(self) -> None:
        """Start it again, at the same port, whenever it has rebooted."""
        while not self.over:
            if self.process.poll() == 0:
                self.process = self.started(self.host.port)
            time.sleep(0.1)

    def gone(self) -> str:
        return "QEMU has ended" if self.process.poll() else ""

    def end(self) -> None:
        self.over = True
        self.keeper.join()
        end_group(self.process)
        super().end()

    def boots(self) -> int:
        """How often it has come up."""
        self.console.poll()
        return self.console.text.count(READY)

    def login(self) -> Guest:
        keys = guest_keys(Store.of_user())
        address = (self.host.name, self.host.port)
        session = connect(address, keys / "client", keys / "host.pub", Deadline(60, "login"))
        # what its console tells of kernels that have panicked is no matter of the one that runs now
        return Guest(session, Vitals(self, ConsoleWatch(self.where / "unwatched.log")))


@contextlib.contextmanager
def machines(count: int, home: Path, *, consent: bool = True) -> Iterator[list[Machine]]:
    """So many of them, up and with the consent of their owner, their host keys known to the person at `home`."""
    store = Store.of_user()
    disk = box(store, Archive(store), host_image())
    (home / ".ssh").mkdir(parents=True)
    with contextlib.ExitStack() as stack:
        made = []
        for _ in range(count):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="existing-")))
            made.append(Machine(disk, folder))
            stack.callback(made[-1].end)
        kind, key = (guest_keys(store) / "host.pub").read_text().split()[:2]
        lines = [f"[127.0.0.1]:{machine.host.port} {kind} {key}\n" for machine in made]
        (home / ".ssh/known_hosts").write_text("".join(lines))
        for machine in made:
            Deadline(300, "the machine comes up").wait_for(lambda machine=machine: up(machine))
            if consent:
                machine.login().must("echo yes > /etc/cgroup-lab-consent")
        yield made


def up(machine: Machine) -> bool:
    if machine.gone():
        raise GuestLost(machine.gone(), evidence=machine.console.tail(40))
    return machine.boots() > 0
