"""The vagrant provider without guests: what Vagrant really printed (data/vagrant), and a program in Vagrant's place."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from labs import command
from labs.console import ConsoleWatch
from labs.deadline import Deadline
from labs.errors import DeadlineExpired, GuestLost, KernelFailed, LabError, MissingProgram, NoSpace
from labs.matrix import PROVIDERS as NAMES
from labs.provision import PROVIDERS, provider_of, vagrantbox
from labs.provision.monitor import Monitored
from labs.provision.qemu import MachineSpec
from labs.provision.vagrant_client import Client, Message, Reached, failure, progress, ssh_config
from labs.provision.vagrantbox import arguments, describe

DATA = Path(__file__).parent / "data/vagrant"


def recorded(name: str) -> str:
    return (DATA / f"{name}.txt").read_text()


def test_each_provider_that_a_cell_may_name_is_there() -> None:
    assert tuple(PROVIDERS) == NAMES
    assert all(provider_of(name).boot for name in NAMES)


# The machine-readable stream


def test_escapes_are_undone() -> None:
    line = "1,box,ui,info,==> box: one%!(VAGRANT_COMMA) two\\nthree"
    assert Message.read(line) == Message("box", "ui", ("info", "==> box: one, two\nthree"))


@pytest.mark.parametrize(
    "line", ["", "warning: x, y, z", "\tfrom /usr/lib/a.rb:7:in `b'", "1796053615,box", "\x1b[31mred"]
)
def test_other_lines_are_no_messages(line: str) -> None:
    assert Message.read(line) is None
    assert progress(line) == ""


def test_progress_is_told_in_vagrants_words() -> None:
    told = [text for line in recorded("up").splitlines() if (text := progress(line))]
    assert told[0] == "Bringing machine 'cgroup-lab-x1' up with 'libvirt' provider..."
    assert told[-1] == "Machine booted and ready!"
    assert "Starting domain." in told
    assert not [text for text in told if "cgroup-lab-x1:" in text or "version" in text]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("ruby-trace", r"vagrant up ended with 1: Call to virDomainCreateWithFlags failed: .*not available for pcie"),
        ("ssh-command-failed", r"vagrant up ended with 1: The following SSH command responded"),
        ("no-provider", r"vagrant up: The provider 'libvirt' could not be found, .*; apt-get install vagrant-libvirt$"),
    ],
)
def test_the_reason_of_a_failure_is_one_line(name: str, said: str) -> None:
    error = failure("up", 1, recorded(name))
    with pytest.raises(LabError, match=said):
        raise error
    assert "\n" not in str(error)
    assert error.exit_code == 3
    assert error.evidence


def test_a_full_disk_is_told_as_such() -> None:
    text = "1,m,ui,error,Error while uploading: No space left on device\n"
    assert isinstance(failure("up", 1, text), NoSpace)


def test_a_vagrant_without_a_word() -> None:
    assert "ended with 7: without a word" in str(failure("up", 7, ""))


# ssh-config


def test_ssh_config_is_read_per_host_and_past_warnings() -> None:
    text = recorded("ssh-config")
    keys = ("/tmp/lab dir/.vagrant/machines/server/libvirt/private_key", "/root/.vagrant.d/insecure_private_key")
    assert ssh_config(text, "server") == Reached("192.168.121.10", 22, "vagrant", keys)
    assert ssh_config(text, "client") == Reached("192.168.121.11", 2222, "vagrant", ())


@pytest.mark.parametrize(
    "text", ["", "Host other\n  HostName 1.2.3.4\n", "Host m\n  User root\n", "Host m\n  HostName a\n  Port x\n"]
)
def test_an_ssh_config_without_an_address_is_an_error(text: str) -> None:
    with pytest.raises(LabError, match="vagrant ssh-config"):
        ssh_config(text, "m")


# python-vagrant on a program in Vagrant's place


@pytest.fixture
def client(tmp_path: Path) -> Callable[..., Client]:
    """`client(script)`: Vagrant is a shell script; its arguments go to the file `asked`."""

    def make(script: str, *, watch: Callable[[], None] = lambda: None, seconds: float = 20) -> Client:
        program = tmp_path / "vagrant"
        program.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\nenv > {tmp_path}/environment\n{script}\n')
        program.chmod(0o755)

        def inside(argv: Sequence[str]) -> list[str]:
            assert argv[0] == "vagrant"
            return [str(program), *argv[1:]]

        return Client(tmp_path, inside, watch, Deadline(seconds, "vagrant up"))

    return make


def test_up_tells_its_progress_as_it_comes(
    client: Callable[..., Client], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = client(f"cat {DATA}/up.txt")
    with caplog.at_level(logging.INFO, "labs"):
        made.told_up()
    assert "vagrant: Machine booted and ready!" in caplog.messages
    assert (tmp_path / "asked").read_text() == "up --provider=libvirt --machine-readable\n"
    assert f"VAGRANT_HOME={tmp_path}/home" in (tmp_path / "environment").read_text()


def test_up_that_fails_keeps_the_reason(client: Callable[..., Client]) -> None:
    with pytest.raises(LabError, match="virDomainCreateWithFlags"):
        client(f"cat {DATA}/ruby-trace.txt >&2; exit 1").told_up()


def test_up_that_hangs_is_ended_at_the_deadline(client: Callable[..., Client], tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(DeadlineExpired, match="vagrant up: not done") as caught:
        client(f"echo $$ > {tmp_path}/pid; echo 1,m,ui,info,Starting; sleep 1000", seconds=1).told_up()
    assert time.monotonic() - began < 10
    assert "Starting" in caught.value.evidence
    assert not Path(f"/proc/{int((tmp_path / 'pid').read_text())}").exists()


def test_the_guest_is_watched_all_the_while(client: Callable[..., Client]) -> None:
    def watch() -> None:
        raise GuestLost("its QEMU has ended")

    with pytest.raises(GuestLost, match="its QEMU"):
        client("sleep 1000", watch=watch).told_up()


def test_status_is_read_by_python_vagrant(client: Callable[..., Client]) -> None:
    stream = ["metadata,provider,libvirt", "provider-name,libvirt", "state,shutoff"]
    text = "\n".join(["a warning, with, commas, four", *(f"1,box,{line}" for line in stream)])
    (status,) = client(f"printf '%s' '{text}'").status()
    assert (status.name, status.state, status.provider) == ("box", "poweroff", "libvirt")


def test_ssh_config_goes_through_python_vagrant(client: Callable[..., Client], tmp_path: Path) -> None:
    text = client(f"cat {DATA}/ssh-config.txt").ssh_config()
    assert ssh_config(text, "client").port == 2222
    assert (tmp_path / "asked").read_text() == "ssh-config\n"


# A guest that nobody reaches


@pytest.mark.parametrize(
    ("console", "kind", "said"),
    [
        ("[   40.1] cgroup-lab: ready over net\n", LabError, "came up, and was not reached: vagrant up: not done"),
        ("[    1.1] Freeing unused kernel image\n", KernelFailed, "kernel hangs: vagrant up: not done"),
    ],
)
def test_a_guest_without_an_address_is_no_kernel_that_hangs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, console: str, kind: type[LabError], said: str
) -> None:
    (tmp_path / "console.log").write_text(console)
    machine: Any = SimpleNamespace(
        pid=1, folder=tmp_path, accelerator="tcg", console=ConsoleWatch(tmp_path / "console.log"),
        enclosure=SimpleNamespace(inside=None), gone=lambda: "", standing_still=lambda: "", dump=lambda: None,
        connect_monitor=lambda deadline: None,
    )  # fmt: skip

    class Waiting(Client):
        def told_up(self, **options: Any) -> None:
            raise DeadlineExpired("vagrant up: not done after 48 s")

    monkeypatch.setattr(vagrantbox, "Client", Waiting)
    with pytest.raises(kind, match=said) as caught:
        vagrantbox._reach(machine, tmp_path, Deadline(1, "vagrant up"))
    assert type(caught.value) is kind


# What Vagrant is told


def test_machine_is_described_in_full(tmp_path: Path) -> None:
    spec = MachineSpec(Path("/k"), Path("/i"), Path("/store/box/x/box.img"), "tcg", ("lab.root=/dev/vda1",), 2048, 3)
    told = describe(spec, "cgroup-lab-1", Path("/keys"), tmp_path, tmp_path, 100.5)
    assert json.loads(json.dumps(told)) == told
    assert (told["driver"], told["memory_mb"], told["cpus"], told["boot_seconds"]) == ("qemu", 2048, 3, 100)
    assert str(told["command_line"]).endswith("lab.root=/dev/vda1")
    text = (Path(__file__).parents[2] / "vagrant/Vagrantfile").read_text()
    assert [key for key in told if f'machine["{key}"]' not in text] == []


def test_devices_do_not_take_libvirts_places(tmp_path: Path) -> None:
    words = arguments(MachineSpec(Path("/k"), Path("/i"), None, "tcg"), tmp_path, tmp_path)
    devices = [words[at + 1] for at, word in enumerate(words) if word == "-device"]
    assert len(devices) == 2
    assert all("addr=0x1" in device for device in devices)


def test_vagrant_that_is_not_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:

    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(command, "SBIN", str(tmp_path))
    with pytest.raises(
        MissingProgram, match="program vagrant is not installed; apt-get install vagrant vagrant-libvirt"
    ):
        command.which("vagrant")
    assert os.environ["PATH"] == str(tmp_path)


# Snapshots


class Typed:
    """A monitor: what was typed, and one answer to it."""

    def __init__(self, answer: str | Exception = "") -> None:
        self.answer, self.lines = answer, []

    def typed(self, line: str, seconds: float) -> str:
        self.lines.append(line)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def ask(self, command: str) -> None:
        self.lines.append(command)


def machine_with(monitor: Typed, folder: Path) -> Monitored:
    machine = Monitored("tcg", folder, folder)
    machine.monitor.close()
    machine.monitor = monitor
    return machine


def test_a_machine_that_is_restored_runs_and_begins_a_console(tmp_path: Path) -> None:
    log, monitor = tmp_path / "console.log", Typed()
    machine = machine_with(monitor, tmp_path)
    machine.save()
    log.write_text("[    1.000000] Kernel panic - not syncing: x\n")
    assert machine.console.poll() and machine.console.fatal
    machine.restore()
    assert monitor.lines == ["savevm cgroup-lab", "loadvm cgroup-lab", "cont"]
    assert not machine.console.fatal


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ("Error: No block device can accept snapshots\r\n", "savevm: No block device can accept snapshots"),
        (TimeoutError(), "savevm: TimeoutError"),
    ],
)
def test_a_snapshot_that_is_refused_is_told(tmp_path: Path, answer: str | Exception, told: str) -> None:
    machine = machine_with(Typed(answer), tmp_path)
    with pytest.raises(LabError, match=f"^{told}$"):
        machine.save()
