"""A lab without guests, as a pytest plugin (`-p fake_lab`): what conftest.py asks of `labs.prepare`, answered at once.

Only machine, session and artifacts are fake; Guest, Vitals, the console watch, the record and the reports are real.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from labs import prepare
from labs.build.kernel import KernelArtifacts
from labs.console import ConsoleWatch
from labs.deadline import Deadline
from labs.errors import BadInput, GuestLost, KernelFailed, LabError
from labs.guest import Guest, Vitals
from labs.matrix import Cell, series_of
from labs.run.builds import Looking
from labs.session import Result
from labs.source.kernels import Kernel
from labs.source.runtimes import Runtime

PANIC = "[    9.100000] Kernel panic - not syncing: sysrq triggered crash\n"
KERNELS = {
    "6.1": "6.1.192-3",
    "6.12": "6.12.107-1",
    "7.3": "7.3.4-1",
    "5.1": "5.1.1-1",  # does not boot: infrastructure
    "5.2": "5.2.1-1",  # its kernel panics in boot
    "5.3": "5.3.1-1",  # its guest cannot be ended
    "5.4": "5.4.1-1",  # its guest is lost in the first boot: infrastructure
    "5.5": "5.5.1-1",  # its guest is lost in every boot
}


@dataclass
class FakeMachine:
    """Ends when told to, as QEMU does when it is killed."""

    accelerator: str = "kvm"
    ended: str = ""
    still: str = ""
    dumps: int = 0

    def gone(self) -> str:
        return self.ended

    def standing_still(self) -> str:
        return self.still

    def dump(self) -> None:
        self.dumps += 1


@dataclass
class FakeSession:
    """Commands succeed at once, but for `panic` and `vanish`."""

    machine: FakeMachine
    console: Path
    commands: list[str] = field(default_factory=list)

    def run(self, command: str, deadline: Deadline, *, stdin: bytes = b"", watch: Callable[[], None]) -> Result:
        self.commands.append(command)
        with self.console.open("a") as log:
            log.write(PANIC if command == "panic" else f"[    1.000000] {command}\n")
        if command == "vanish":
            self.machine.ended = "QEMU was killed by signal 9"
        while command in ("panic", "vanish"):
            watch()
            deadline.check()
            time.sleep(0.01)
        watch()
        return Result(command, 0, b"", b"", 0.0)


WITH_MAP = KernelArtifacts(Path(), "fake", "", "")  # its System.map is what a test has put into the working folder


@dataclass(frozen=True)
class FakeArtifacts:
    found: prepare.Found
    kernel: KernelArtifacts = WITH_MAP

    def to_json(self) -> dict[str, Any]:
        return {"kernel": {"asked": self.found.kernel.asked, "version": self.found.kernel.version}}


def find(cell: Cell, archive: object) -> prepare.Found:
    if cell.kernel not in KERNELS:
        raise BadInput(f"kernel {cell.kernel}: not in the archive", mend="nearest: 6.1")
    version = KERNELS[cell.kernel]
    series = series_of(cell.series) if cell.series else ()
    return prepare.Found(
        cell, Kernel(cell.kernel, version, version), Runtime("runc", "runc", "bookworm"), series=series
    )


def make(found: prepare.Found, store: object, archive: object) -> FakeArtifacts:
    if not isinstance(store, Looking):
        with Path("boots.txt").open("a") as boots:
            boots.write(f"{found.cell.id}\n")
    if found.cell.kernel == "5.1":
        raise LabError("no base image", evidence="tool output")
    return FakeArtifacts(found)


@contextlib.contextmanager
def boot(artifacts: FakeArtifacts, logs: Path, sizes: object = None) -> Iterator[prepare.Booted]:
    if sizes is not None:
        Path("sizes.txt").write_text(str(sizes))
    machine = FakeMachine()
    console = logs / "console.log"
    console.write_text("[    0.000000] Linux version fake\n")
    kernel = artifacts.found.cell.kernel
    if kernel == "5.5" or (kernel == "5.4" and logs.name == "boot-1"):
        raise GuestLost(f"lost in {logs.name}", evidence="the console's last lines")
    if kernel == "5.2":
        raise KernelFailed("kernel failed: Kernel panic - not syncing: in boot", evidence="the panic's lines")
    session: Any = FakeSession(machine, console)
    guest = Guest(session, Vitals(machine, ConsoleWatch(console)))
    yield prepare.Booted(guest, artifacts, "/usr/bin/runc", {"release": "fake", "accelerator": "kvm"})  # type: ignore[arg-type]
    with Path("ended.txt").open("a") as ended:
        ended.write(f"{artifacts.found.cell.id}\n")
    if kernel == "5.3":
        raise LabError("the guest did not end")


def machine(artifacts: FakeArtifacts, sizes: object, hosts: object = ()) -> object:
    return sizes  # instead of a machine of those


def pytest_configure() -> None:
    prepare.machine = machine  # type: ignore[assignment]
    prepare.prepare, prepare.boot = make, boot  # type: ignore[assignment]
    if os.environ.get("LAB_FINDS") != "archive":
        prepare.find = find  # type: ignore[assignment]
