"""The ssh provider: a machine that already runs gets the cell's kernel for one boot, and its own back afterwards."""

from __future__ import annotations

import contextlib
import logging
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from labs.console import ConsoleWatch
from labs.deadline import Deadline
from labs.errors import DeadlineExpired, GuestLost, KernelFailed, LabError
from labs.guest import FACTS, Guest, Vitals
from labs.provision import Provider
from labs.provision.hosts import RemoteHost, taken
from labs.provision.install import inspect, install, remove
from labs.provision.qemu import MachineSpec
from labs.session import Session, connect
from labs.store import Store

log = logging.getLogger("labs")

CONNECT_SECONDS = 30.0
REBOOT_SECONDS = 120.0  # from the request to the login, on hardware
ACCELERATORS = {"qemu": "tcg", "kvm": "kvm", "none": "hardware"}  # as systemd-detect-virt tells


@dataclass
class Existing:
    """A machine known by its network alone: nobody tells that it has ended but its silence."""

    host: RemoteHost
    accelerator: str = "tcg"  # until it is known: the longer waits

    def gone(self) -> str:
        return ""

    def standing_still(self) -> str:
        return f"{self.host} does not answer, and the lab sees no console of it"

    def dump(self) -> None:
        """There is no line but the network."""


@dataclass
class Reach:
    """How one machine is logged in to, again after each of its boots."""

    machine: Existing
    keys: Path
    pinned: Path
    console: ConsoleWatch
    facts: dict[str, str] = field(default_factory=dict)  # of the machine as it was found

    def connect(self, deadline: Deadline) -> Session:
        address = (self.machine.host.name, self.machine.host.port)
        return connect(address, self.keys / "client", self.pinned, deadline)

    def guest(self, session: Session) -> Guest:
        return Guest(session, Vitals(self.machine, self.console))

    def after(self, boot_id: str) -> Guest:
        """The machine in another boot than `boot_id`; GuestLost when it does not come back."""
        deadline = Deadline.scaled(REBOOT_SECONDS, f"{self.machine.host} boots", self.machine.accelerator)
        while True:
            try:
                guest = self.guest(self.connect(deadline))
            except DeadlineExpired as error:
                raise GuestLost(f"guest lost: {self.machine.host} did not come back: {error}") from None
            with contextlib.suppress(GuestLost):
                if _boot_id(guest) != boot_id:
                    return guest
            guest.session.close()
            deadline.check()
            time.sleep(0.2)


def _boot_id(guest: Guest) -> str:
    return guest.must("cat /proc/sys/kernel/random/boot_id", 10).strip()


def reboot(guest: Guest) -> None:
    """Ask for a reboot, and return at once."""
    guest.must("(sleep 0.3; systemctl reboot) > /dev/null 2>&1 &")
    guest.session.close()


@contextlib.contextmanager
def boot(spec: MachineSpec, keys: Path, logs: Path | None = None) -> Iterator[Guest]:
    """One of the machines `spec.hosts` with the cell's kernel; with its own again when the block is left."""
    hosts = [RemoteHost.parse(host) for host in spec.hosts]
    # another name than those of guests with a process, which `labs clean` takes for left over without one
    with tempfile.TemporaryDirectory(prefix="lab-ssh-") as made, taken(hosts, Store.of_user()) as host:
        folder = Path(made)
        pinned = host.pin(Path.home() / ".ssh/known_hosts", folder)
        reach = Reach(Existing(host), keys, pinned, ConsoleWatch((logs or folder) / "console.log"))
        guest = reach.guest(_first(reach))
        reach.facts = inspect(guest, str(host))
        reach.machine.accelerator = ACCELERATORS.get(reach.facts["virtualization"], "kvm")
        try:
            yield _booted(reach, guest, spec)
        except BaseException:
            try:
                _restore(reach)
            except LabError as error:
                log.error("%s", error)  # and what came first is what is raised
            raise
        _restore(reach)


def _first(reach: Reach) -> Session:
    host = reach.machine.host
    try:
        return reach.connect(Deadline(CONNECT_SECONDS, f"{host} answers"))
    except DeadlineExpired as error:
        key = reach.keys / "client.pub"
        mend = f"is the lab's key there? ssh-copy-id -f -i {key} -p {host.port} root@{host.name}"
        raise LabError(str(error), mend=mend) from None


def _booted(reach: Reach, guest: Guest, spec: MachineSpec) -> Guest:
    host, before = reach.machine.host, reach.facts
    if before["leftover"]:
        log.warning("%s has leftovers of a run that was killed; removed", host)
        remove(guest, before["loader"])
    log.info("%s runs %s; installing the cell's kernel for one boot", host, before["release"])
    install(guest, before, spec.kernel.parent, spec.command_line())
    log.info("%s reboots", host)
    reboot(guest)
    guest = reach.after(before["boot_id"])
    facts = guest.sections(FACTS)
    if "lab.once" not in facts["parameters"].split():
        raise KernelFailed(
            f"kernel failed: it did not come up on {host}, which is back on its own {facts['release']}"
            f" (boot {before['boot_id']}, then {facts['boot_id']})",
            evidence=guest.run(last_boot(before["boot_id"])).out,
        )
    log.info("%s is up with %s (boot %s)", host, facts["release"], facts["boot_id"])
    guest.must("mkdir -p /lab")
    guest.session.follow("dmesg --follow", reach.console.path)
    return guest


def last_boot(own: str) -> str:
    """The command that prints what the journal has of the boot before this one, unless that was the machine's own."""
    known = f"journalctl --list-boots | grep -q -- '-1 {own.replace('-', '')} '"
    return f"{known} || journalctl -k -b -1 --no-pager | tail -n 60"


def _restore(reach: Reach) -> None:
    """The machine's own kernel again, and nothing of the lab on its disk; LabError when that cannot be shown."""
    host, before = reach.machine.host, reach.facts
    log.info("%s gets its own kernel back", host)
    try:
        guest = reach.guest(reach.connect(Deadline.scaled(REBOOT_SECONDS, "restoring", reach.machine.accelerator)))
        if "lab.once" in guest.must("cat /proc/cmdline").split():
            remove(guest, before["loader"])
            boot_id = _boot_id(guest)
            reboot(guest)
            guest = reach.after(boot_id)
        else:  # it has rebooted by itself
            remove(guest, before["loader"])
        release = guest.must("uname -r").strip()
    except LabError as error:
        raise LabError(f"{host} was not restored: {error}", mend="reboot it, and remove /boot/cgroup-lab") from error
    if release != before["release"]:
        raise LabError(f"{host} runs {release}, it had {before['release']}")
    log.info("%s runs %s again", host, release)
    guest.session.close()


PROVIDER = Provider(lambda store, archive, name: None, boot, ("lab.once",), has_runtimes=False)
