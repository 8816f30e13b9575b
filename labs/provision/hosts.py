"""Machines that already run, by what users type: USER@HOST:PORT; their pinned host keys, and one lab at a time."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import paramiko

from labs.errors import BadInput, LabError
from labs.store import Store, digest

log = logging.getLogger("labs")


@dataclass(frozen=True)
class RemoteHost:
    """A machine to log in to as root."""

    name: str
    port: int = 22

    def __str__(self) -> str:
        return f"root@{self.name}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> RemoteHost:
        """BadInput for anything but USER@HOST:PORT; USER must be root, PORT may be left out."""
        found = re.fullmatch(r"(?:([\w.-]+)@)?(\[[0-9A-Fa-f:.]+\]|[\w.-]+)(?::(\d{1,5}))?", text)
        if not found or int(found[3] or 22) not in range(1, 65536):
            raise BadInput(f"host {text!r} is not understood", mend="write USER@HOST:PORT, as root@192.0.2.7:22")
        if (found[1] or "root") != "root":
            raise BadInput(f"host {text}: the lab logs in as root", mend=f"root@{text.partition('@')[2]}")
        return cls(found[2].strip("[]"), int(found[3] or 22))

    def pin(self, known_hosts: Path, folder: Path) -> Path:
        """A file in `folder` with the key that the person's known_hosts has for it; LabError when it has none."""
        known = paramiko.HostKeys(str(known_hosts)) if known_hosts.exists() else paramiko.HostKeys()
        keys = known.lookup(self.name if self.port == 22 else f"[{self.name}]:{self.port}")
        if not keys or "ssh-ed25519" not in keys:
            scan = f"ssh-keyscan -t ed25519 -p {self.port} {self.name} >> {known_hosts}"
            raise LabError(f"{self}: {known_hosts} has no ed25519 key of it", mend=f"compare it after: {scan}")
        path = folder / "pinned.pub"
        path.write_text(f"ssh-ed25519 {keys['ssh-ed25519'].get_base64()}\n")
        return path


def provider_for(provider: str, hosts: Sequence[str]) -> str:
    """The provider that options ask for: machines mean `ssh`. BadInput for what is no machine, and where none is."""
    for host in hosts:
        RemoteHost.parse(host)
    if hosts and provider not in ("", "qemu", "ssh"):
        raise BadInput(f"--ssh beside --provider {provider}", mend="give the one or the other")
    if provider == "ssh" and not hosts:
        raise BadInput("provider ssh: no machine is named", mend="--ssh USER@HOST:PORT; repeats")
    return "ssh" if hosts else provider


def _locked(handle: IO[bytes]) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextlib.contextmanager
def taken(hosts: Sequence[RemoteHost], store: Store) -> Iterator[RemoteHost]:
    """One of the machines, for this process alone; waits, and says so, while others have all of them."""
    with contextlib.ExitStack() as stack:
        handles = {}
        for host in hosts:
            path = store.root / "locks" / f"host-{digest(str(host))}"
            handles[host] = stack.enter_context(path.open("ab"))
        told = False
        while True:
            for host, handle in handles.items():
                if _locked(handle):
                    yield host
                    return
            if not told:
                log.info("waiting for a machine: %s are in use", ", ".join(map(str, hosts)))
            told = True
            time.sleep(0.5)
