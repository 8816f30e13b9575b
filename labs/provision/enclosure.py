"""A libvirt of the lab's own, in network, mount and process namespaces that end with the lab.

The host's libvirtd, bridges and buses are neither used nor touched, runs beside each other do not meet, and there is no
way out of the network: it has no card. Its guests are reached through a relay on a Unix socket.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from labs.command import end_group, spawn
from labs.deadline import Deadline
from labs.errors import LabError

START_SECONDS = 60.0
SOCKET = "/run/libvirt/libvirt-sock"
SCRIPT = Path(__file__).with_name("enclosure.sh")
RELAY = Path(__file__).with_name("relay.py")


def children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def running(pid: int) -> bool:
    """Whether a process is there and no mere entry that waits to be reaped."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


class Enclosure:
    """Its libvirtd answers once `start` has returned. Ended by `end`, and by the kernel when the lab dies."""

    def __init__(self, folder: Path, accelerator: str) -> None:
        self.folder = folder
        self.log = folder / "libvirtd.log"
        if os.geteuid() != 0:
            raise LabError("provider vagrant needs root: libvirt makes a network", mend="run it with sudo")
        namespaces = ["--net", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child=KILL"]
        argv = ["unshare", *namespaces, "sh", str(SCRIPT), str(folder / "libvirt"), accelerator]
        self.process = spawn(argv, log=self.log)
        self._relays: list[subprocess.Popen[bytes]] = []

    @property
    def first(self) -> int:
        """Process id, as the host sees it, of the first process inside."""
        found = children(self.process.pid)
        if not found:
            raise LabError("the namespaces of the lab's libvirt are gone", evidence=self.words())
        return found[0]

    def words(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-20:])

    def start(self) -> None:
        """Wait until libvirtd listens; LabError with its last word when it ends before."""
        deadline = Deadline(START_SECONDS, "libvirtd starts")
        while not any(Path(f"/proc/{pid}/root{SOCKET}").exists() for pid in children(self.process.pid)):
            if self.process.poll() is not None:
                last = (self.words().splitlines() or ["without a word"])[-1]
                raise LabError(f"the lab's libvirtd ended: {last}", evidence=self.words())
            deadline.check(self.words())
            time.sleep(0.02)

    def inside(self, argv: Sequence[str]) -> list[str]:
        """The command that runs `argv` inside."""
        return ["nsenter", "--target", str(self.first), "--net", "--mount", "--pid", *argv]

    def machines(self, name: str) -> list[int]:
        """Process ids of the QEMU of a domain; libvirt makes it an orphan, and so a child of the first process."""
        found = []
        for pid in children(self.first):
            with contextlib.suppress(OSError):
                if f"guest={name},".encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(pid)
        return found

    def relayed(self, host: str, port: int) -> Path:
        """A Unix socket that leads to an address inside."""
        path = self.folder / f"ssh-{len(self._relays)}.sock"
        argv = self.inside([sys.executable, str(RELAY), str(path), host, str(port)])
        self._relays.append(spawn(argv, log=self.log))
        Deadline(START_SECONDS, "the relay starts").wait_for(path.exists)
        return path

    def end(self) -> None:
        """Kill all that runs inside; the namespaces go with it."""
        for process in (*self._relays, self.process):
            end_group(process)


@contextlib.contextmanager
def enclosure(folder: Path, accelerator: str) -> Iterator[Enclosure]:
    made = Enclosure(folder, accelerator)
    try:
        made.start()
        yield made
    finally:
        made.end()
