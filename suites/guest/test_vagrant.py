"""The vagrant provider gives what every provider must, and ends well where Vagrant or libvirt do not."""

from __future__ import annotations

import dataclasses
import functools
import os
import shutil
import signal
import time
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from lab_processes import Lab, alive, descendants, lab
from provider_contract import PROMPT, ProviderContract, artifacts, nothing_left, tell

from labs import prepare
from labs.command import run
from labs.deadline import Deadline
from labs.errors import LabError
from labs.guest import Guest
from labs.matrix import Cell
from labs.provision import enclosure, vagrantbox
from labs.session import HostKeyChanged

missing = [
    name for name in vagrantbox.PROGRAMS if shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is None
]
pytestmark = pytest.mark.skipif(
    bool(missing), reason=f"NOT RUN: {', '.join(missing)} not installed; ci/setup.sh vagrant"
)

BOOT = ["labs", "boot", *Cell(provider="vagrant").options, "--"]


def machine(guest: Guest) -> vagrantbox.VagrantMachine:
    found = guest.vitals.machine
    assert isinstance(found, vagrantbox.VagrantMachine)
    return found


def test_a_whole_distribution_runs(capsys):
    """One boot from outside: systemd says that all is well, Vagrant's progress is told, nothing is left."""
    with lab([*BOOT, "systemctl", "is-system-running", "--wait"]) as running:
        code, out, err = running.finish(600)
        assert (code, out) == (0, "running\n"), err
        assert "labs: vagrant: Machine booted and ready!" in err.splitlines()
        assert list(running.temporary.iterdir()) == []


@pytest.mark.full
class TestVagrant(ProviderContract):
    KILLED = "its QEMU has ended"
    ROUTER = "192.168.121.1"
    SERVICES = ()  # what listens there is the enclosure's own dnsmasq

    artifacts = staticmethod(functools.cache(functools.partial(artifacts, "vagrant")))

    @staticmethod
    def boot() -> AbstractContextManager[prepare.Booted]:
        return prepare.boot(TestVagrant.artifacts())

    @staticmethod
    def kill(guest: Guest) -> None:
        machine(guest).kill()

    @staticmethod
    def pause(guest: Guest) -> None:
        machine(guest).monitor.ask("stop")

    @staticmethod
    def running(guest: Guest) -> bool:
        return enclosure.running(machine(guest).pid)

    def whole_again(self, guest: Guest) -> AbstractContextManager[Guest]:
        return vagrantbox.restored(guest)

    def test_a_restored_guest_is_as_it_was(self, guest: Guest, capsys):
        """Files, processes, kernel and console of the moment before; and a new login that works as any."""
        guest.must("echo before > /root/kept")
        boot_id = guest.facts()["boot_id"]
        with vagrantbox.restored(guest):
            guest.must(
                "echo after > /root/kept; echo '<0>BUG: planted' > /dev/kmsg; sleep 4321 > /dev/null 2>&1 & sync"
            )
            Deadline(20, "the complaint").wait_for(lambda: not guest.console.poll() and guest.console.events())
            left = time.monotonic()
        assert guest.must("cat /root/kept; rm /root/kept; pgrep -fc 'sleep 432[1]' || true").split() == ["before", "0"]
        tell(capsys, f"answers {time.monotonic() - left:.1f} s after the restore was asked for")
        assert guest.facts()["boot_id"] == boot_id
        assert guest.console.events() == []

    def test_systemd_runs_it(self, guest: Guest):
        assert guest.must("systemctl is-system-running --wait").strip() == "running"
        assert guest.must("cat /proc/1/comm").strip() == "systemd"
        assert guest.must("findmnt -no SOURCE,FSTYPE,OPTIONS / | cut -d, -f1").split() == ["/dev/vda1", "ext4", "rw"]

    def test_another_host_key(self, tmp_path: Path):
        """The guest's key is not the one that is pinned: refused at once, never accepted."""
        whole = self.artifacts()
        shutil.copytree(whole.keys, tmp_path / "keys")
        argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "other")]
        run(argv, Deadline(20, "another key"))
        shutil.copy(tmp_path / "other.pub", tmp_path / "keys/host.pub")
        told, spec = pytest.raises(HostKeyChanged, match="another host key"), prepare.machine(whole)
        with nothing_left(), told as caught, vagrantbox.boot(spec, tmp_path / "keys"):
            pytest.fail("booted")
        assert caught.value.exit_code == 3

    def test_guest_without_an_address(self, monkeypatch: pytest.MonkeyPatch, capsys):
        monkeypatch.setattr(vagrantbox, "BOOT_SECONDS", 20.0)  # it has to come up in that time
        whole = self.artifacts()
        spec = prepare.machine(whole, parameters=("systemd.mask=systemd-networkd.service",))
        began = time.monotonic()
        told = pytest.raises(LabError, match=r"came up, and was not reached.*address|no address")
        with nothing_left(), told as caught, vagrantbox.boot(spec, whole.keys):
            pytest.fail("booted")
        assert (caught.value.exit_code, type(caught.value)) == (3, LabError)
        tell(capsys, f"told after {time.monotonic() - began:.0f} s: {caught.value}")

    def test_box_that_is_not_there(self, tmp_path: Path, capsys):
        whole = self.artifacts()
        spec = dataclasses.replace(prepare.machine(whole), root=tmp_path / "gone/box.img")
        with (
            nothing_left(),
            pytest.raises(LabError, match=r"vagrant up.*[Bb]ox") as caught,
            vagrantbox.boot(spec, whole.keys),
        ):
            pytest.fail("booted")
        tell(capsys, str(caught.value))
        assert caught.value.exit_code == 3


@pytest.mark.full
def test_libvirtd_that_ends(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    program = tmp_path / "libvirtd"
    program.write_text("#!/bin/sh\necho error: no such luck\nexit 7\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    told = pytest.raises(LabError, match="the lab's libvirtd ended: error: no such luck")
    with told, enclosure.enclosure(tmp_path, "tcg"):
        pytest.fail("started")


def up(running: Lab) -> set[int]:
    """All processes of a lab whose guest is being made, as soon as there is a QEMU for it."""
    found: set[int] = set()

    def started() -> bool:
        found.clear()
        found.update(descendants(running.process.pid))
        assert running.process.poll() is None, running.process.communicate()
        return any((folder / "console.log").exists() for folder in running.temporary.glob("cgroup-lab-*"))

    Deadline(120, "the guest starts").wait_for(started)
    return found


@pytest.mark.full
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_lab_ended_in_the_middle(how: signal.Signals, capsys):
    """Killed, all that it started ends with it; interrupted, it also says one line and removes its files."""
    with lab([*BOOT, "sleep", "1000"]) as running:
        started = up(running)
        assert len(started) > 3
        os.killpg(running.process.pid, how)
        began = time.monotonic()
        Deadline(PROMPT * 5, "all ends with the lab").wait_for(lambda: not any(alive(pid) for pid in started))
        tell(capsys, f"all gone after {time.monotonic() - began:.2f} s")
        code, _, err = running.finish(10)
        if how == signal.SIGINT:
            assert (code, err.splitlines()[-1]) == (130, "labs: interrupted")
            assert list(running.temporary.iterdir()) == []
