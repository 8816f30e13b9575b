"""The qemu provider gives what every provider must, and tells each end of its process by the cause."""

from __future__ import annotations

import dataclasses
import functools
import os
import signal
import time
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from provider_contract import PROMPT, ProviderContract, artifacts, in_the_middle, nothing_left, tell

from labs import prepare
from labs.errors import GuestLost, KernelFailed
from labs.guest import Guest
from labs.provision.qemu import QemuMachine

LISTEN = "0A"  # state of a socket in /proc/net/tcp
LOCALHOST = ("0100007F", "00000000000000000000000001000000")


def machine(guest: Guest) -> QemuMachine:
    found = guest.vitals.machine
    assert isinstance(found, QemuMachine)
    return found


def listening(pid: int) -> list[tuple[str, int]]:
    """(address in hex, port) of each TCP socket on which a process waits for connections."""
    links = [os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir()]
    tables = [Path(f"/proc/{pid}/net/{name}").read_text() for name in ("tcp", "tcp6")]
    rows = [line.split() for table in tables for line in table.splitlines()]
    mine = [row[1].split(":") for row in rows if row[3] == LISTEN and f"socket:[{row[9]}]" in links]
    return [(address, int(port, 16)) for address, port in mine]


class TestQemu(ProviderContract):
    KILLED = "QEMU was killed by signal 9"

    artifacts = staticmethod(functools.cache(artifacts))

    @staticmethod
    def boot() -> AbstractContextManager[prepare.Booted]:
        return prepare.boot(TestQemu.artifacts())

    @staticmethod
    def kill(guest: Guest) -> None:
        os.kill(machine(guest).process.pid, signal.SIGKILL)

    @staticmethod
    def pause(guest: Guest) -> None:
        machine(guest).monitor.ask("stop")

    @staticmethod
    def running(guest: Guest) -> bool:
        return Path(f"/proc/{machine(guest).process.pid}").exists()

    def test_only_localhost_leads_to_the_guest(self, guest: Guest):
        sockets = listening(machine(guest).process.pid)
        assert [port for _, port in sockets] == [machine(guest).ssh_port()]
        assert [address for address, _ in sockets if address not in LOCALHOST] == []

    @pytest.mark.full
    def test_process_stopped(self, mortal: Guest, capsys):
        """A QEMU that answers neither guest nor monitor; the fixture's end sees that it is ended all the same."""
        pid = machine(mortal).process.pid
        [(error, at)], moment = in_the_middle(mortal, lambda: os.kill(pid, signal.SIGSTOP), seconds=2)
        assert type(error) is GuestLost
        assert "monitor" in str(error)
        assert "cgroup-lab: ready" in error.evidence
        tell(capsys, f"stop told after {at - moment:.1f} s")

    @pytest.mark.parametrize("size", [0, 4 << 20])
    def test_root_image_that_is_cut_short(self, tmp_path: Path, size: int, capsys):
        """The cause is told as soon as the guest's first process has met it, not after the boot's deadline."""
        whole = self.artifacts()
        root = tmp_path / "root.img"
        with whole.root.open("rb") as image:
            root.write_bytes(image.read(size))
        began = time.monotonic()
        spec = dataclasses.replace(prepare.machine(whole), root=root)
        with nothing_left(), pytest.raises(GuestLost) as caught, prepare.boot(whole, spec=spec):
            pytest.fail("booted")
        assert "the root image cannot be mounted" in str(caught.value)
        assert "init failed: the root image cannot be mounted" in caught.value.evidence
        assert time.monotonic() - began < 30
        tell(capsys, f"told after {time.monotonic() - began:.1f} s")

    def test_panic_in_boot(self, tmp_path: Path, capsys):
        whole = self.artifacts()
        spec = prepare.machine(whole, parameters=("rdinit=/absent", "root=/dev/absent"))
        began = time.monotonic()
        with nothing_left(), pytest.raises(KernelFailed) as caught, prepare.boot(whole, tmp_path, spec):
            pytest.fail("booted")
        assert "Kernel panic - not syncing: VFS: Unable to mount root fs" in caught.value.evidence
        assert "Unable to mount root fs" in (tmp_path / "console.log").read_text(errors="replace")
        assert time.monotonic() - began < 30
        tell(capsys, f"told after {time.monotonic() - began:.1f} s")

    def test_qemu_that_cannot_start(self):
        whole = self.artifacts()
        spec = dataclasses.replace(prepare.machine(whole), root=Path("/absent/root.img"))
        began = time.monotonic()
        told = pytest.raises(GuestLost, match=r"/absent/root.img.*No such file")
        with nothing_left(), told, prepare.boot(whole, spec=spec):
            pytest.fail("booted")
        assert time.monotonic() - began < PROMPT
