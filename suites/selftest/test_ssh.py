"""The ssh provider without machines: what names one, and its way through a boot and back."""

from __future__ import annotations

import hashlib
import json
import logging
import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from labs.build.runtime import packaged_runtime
from labs.deadline import Deadline
from labs.errors import BadInput, DeadlineExpired, GuestLost, KernelFailed, LabError
from labs.provision import ssh
from labs.provision.hosts import RemoteHost, provider_for, taken
from labs.provision.qemu import MachineSpec
from labs.provision.ssh import last_boot
from labs.session import Result
from labs.source.debian import Package
from labs.source.runtimes import Runtime
from labs.store import Store

KEY = "AAAAC3NzaC1lZDI1NTE5AAAAIKZ5cm1zZQ3Zt2bTnLcXk0m0m0m0m0m0m0m0m0m0m0m0"


# Names of machines


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("root@192.0.2.7:2222", "root@192.0.2.7:2222"),
        ("192.0.2.7", "root@192.0.2.7:22"),
        ("root@[2001:db8::7]:22", "root@2001:db8::7:22"),
        ("node-1.example", "root@node-1.example:22"),
    ],
)
def test_names_that_are_understood(text: str, told: str) -> None:
    assert str(RemoteHost.parse(text)) == told


@pytest.mark.parametrize(
    "text", ["", "root@", "a b", "x:0", "x:65536", "x:99999", "-oProxyCommand=x@y:z", "a@b@c", "x:y"]
)
def test_names_that_are_not(text: str) -> None:
    with pytest.raises(BadInput, match="USER@HOST:PORT"):
        RemoteHost.parse(text)


def test_another_user_is_refused() -> None:
    with pytest.raises(BadInput, match="logs in as root; root@box:22"):
        RemoteHost.parse("joe@box:22")


def test_machines_mean_the_ssh_provider() -> None:
    assert provider_for("qemu", ["root@x"]) == provider_for("ssh", ["root@x"]) == "ssh"
    assert provider_for("vagrant", []) == "vagrant"
    for provider, hosts in (("ssh", []), ("vagrant", ["root@x"]), ("qemu", ["root@x:y"])):
        with pytest.raises(BadInput):
            provider_for(provider, hosts)


def test_a_key_that_nobody_has_compared_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="no ed25519 key of it; compare it after: ssh-keyscan"):
        RemoteHost("box", 2222).pin(tmp_path / "known_hosts", tmp_path)


def test_known_key_is_pinned(tmp_path: Path) -> None:
    (tmp_path / "known_hosts").write_text(f"[box]:2222 ssh-ed25519 {KEY}\nbox ssh-ed25519 {KEY[:-4]}AAAA\n")
    assert RemoteHost("box", 2222).pin(tmp_path / "known_hosts", tmp_path).read_text().split()[1] == KEY


def test_one_lab_at_a_time_has_a_machine(tmp_path: Path) -> None:
    store, both = Store(tmp_path), [RemoteHost("a"), RemoteHost("b")]
    with taken(both, store) as first, taken(both, store) as second:
        assert {first.name, second.name} == {"a", "b"}
    with taken(both, store) as again:
        assert again == first


# A machine's way through a boot and back


@dataclass
class FakeMachine:
    """What a machine has on its disk and in its boot loader, and which kernel runs; spoken to in shell commands."""

    consent: str = "yes"
    panics: bool = False  # the lab's kernel
    silent: bool = False  # after the first reboot
    refuses: str = ""  # a command that fails
    leftover: str = ""
    lab_folder: str = ""
    armed: bool = False
    installed: bool = False
    lab: bool = False  # the lab's kernel runs
    boots: int = 1
    asked: list[str] = field(default_factory=list)

    def answer(self, command: str, stdin: bytes) -> tuple[int, str]:
        self.asked.append(command)
        if self.refuses and self.refuses in command:
            return 1, ""
        parameters = "root=/dev/vda1 " + ("lab.once" if self.lab else "")
        known = {
            "boot_id": f"boot-{self.boots}",
            "release": "9.9-lab" if self.lab else "6.1-own",
            "parameters": parameters,
        }
        known |= {
            "consent": self.consent,
            "virtualization": "kvm",
            "loader": "grub",
            "initramfs": "/usr/sbin/mkinitramfs",
        }
        known |= {"busybox": "/bin/busybox", "leftover": self.leftover, "lab": self.lab_folder}
        if "show boot_id" in command:
            names = re.findall(r"^show (\w+) ", command, re.M)
            return 0, "".join(f"\x1e{name}\n{known.get(name, '')}\n" for name in names)
        if "random/boot_id" in command:
            return 0, known["boot_id"]
        if "systemctl reboot" in command:
            self.lab, self.armed = self.armed and not self.panics, False
            self.boots += 2 if self.panics else 1
        if "cat /proc/cmdline" in command:
            return 0, parameters
        if command == "uname -r":
            return 0, known["release"]
        if command.startswith("test -e"):
            return 1, ""
        if "grub-reboot" in command:
            self.armed = self.installed = True
        if "rm -rf /lab /boot/cgroup-lab" in command:
            self.armed = self.installed = False
        return 0, f"{hashlib.sha256(stdin).hexdigest()} -" if "sha256sum" in command else ""


class FakeSession:
    def __init__(self, machine: FakeMachine) -> None:
        self.machine = machine

    def run(self, command: str, deadline: Deadline, *, stdin: bytes = b"", watch: Callable[[], None]) -> Result:
        code, out = self.machine.answer(command, stdin)
        return Result(command, code, out.encode(), b"refused" if code else b"", 0.0)

    def follow(self, command: str, path: Path) -> None:
        path.write_text("")

    def close(self) -> None:
        pass


@pytest.fixture
def boot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[FakeMachine], Any]:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("LABS_STORE", str(tmp_path / "store"))
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh/known_hosts").write_text(f"[box]:2222 ssh-ed25519 {KEY}\n")
    kernel = tmp_path / "kernel"
    kernel.mkdir()
    (kernel / "facts.json").write_text(json.dumps({"release": "9.9-lab", "sha256": "x"}))
    (kernel / "vmlinuz").write_bytes(b"a kernel")
    spec = MachineSpec(kernel / "vmlinuz", kernel, None, "tcg", ("lab.once",), hosts=("root@box:2222",))

    def start(machine: FakeMachine) -> Any:
        def connect(*_: object) -> FakeSession:
            if machine.silent and machine.boots > 1:
                raise DeadlineExpired("no SSH at box:2222 after 1 s")
            return FakeSession(machine)

        monkeypatch.setattr(ssh, "connect", connect)
        return ssh.boot(spec, tmp_path)

    return start


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    yield


def test_the_kernel_runs_for_one_boot_and_leaves_nothing(boot: Callable[[FakeMachine], Any]) -> None:
    machine = FakeMachine()
    with boot(machine) as guest:
        assert guest.must("uname -r") == "9.9-lab"
        assert guest.accelerator == "kvm"
        assert machine.installed
        assert not machine.armed
    assert (machine.lab, machine.installed, machine.boots) == (False, False, 3)


def test_a_kernel_that_panics_is_told_as_its_failure_and_the_machine_is_itself_again(
    boot: Callable[[FakeMachine], Any],
) -> None:
    machine = FakeMachine(panics=True)
    told = pytest.raises(
        KernelFailed, match=r"did not come up on root@box:2222.* back on its own 6.1-own .*boot-1, then boot-3"
    )
    with told, boot(machine):
        pytest.fail("booted")
    assert (machine.lab, machine.installed, machine.boots) == (False, False, 3)


@pytest.mark.parametrize("refuses", ["mkinitramfs -d", "depmod", "grub-reboot --boot"])
def test_an_install_that_fails_is_taken_back(boot: Callable[[FakeMachine], Any], refuses: str) -> None:
    machine = FakeMachine(refuses=refuses)
    with pytest.raises(LabError, match="ended with 1"), boot(machine):
        pytest.fail("booted")
    assert (machine.lab, machine.installed, machine.boots) == (False, False, 1)
    assert "rm -rf /lab /boot/cgroup-lab" in machine.asked[-2]


def test_a_test_that_fails_leaves_the_machine_as_it_was(boot: Callable[[FakeMachine], Any]) -> None:
    machine = FakeMachine()
    with pytest.raises(ZeroDivisionError), boot(machine):
        raise ZeroDivisionError
    assert (machine.lab, machine.installed) == (False, False)


def test_nothing_is_done_without_consent(boot: Callable[[FakeMachine], Any]) -> None:
    machine = FakeMachine(consent="")
    with pytest.raises(LabError, match="has no consent file; echo yes > /etc/cgroup-lab-consent"), boot(machine):
        pytest.fail("booted")
    assert len(machine.asked) == 1


def test_a_folder_of_somebody_else_is_not_taken(boot: Callable[[FakeMachine], Any]) -> None:
    machine = FakeMachine(lab_folder="/lab")
    with pytest.raises(LabError, match="has a folder /lab of its own"), boot(machine):
        pytest.fail("booted")
    assert not any("rm -rf" in command for command in machine.asked)


def test_leftovers_of_a_killed_run_go_first(boot: Callable[[FakeMachine], Any]) -> None:
    machine = FakeMachine(leftover="/boot/cgroup-lab", lab_folder="/lab")
    with boot(machine):
        removed = next(n for n, command in enumerate(machine.asked) if "rm -rf /lab /boot/cgroup-lab" in command)
        put = next(n for n, command in enumerate(machine.asked) if "vmlinuz" in command and "cat >" in command)
        assert removed < put


def test_a_machine_that_does_not_come_back(
    boot: Callable[[FakeMachine], Any], caplog: pytest.LogCaptureFixture
) -> None:
    """It cannot be restored either: both are told, and the first is what is raised."""
    told = pytest.raises(GuestLost, match="did not come back")
    with caplog.at_level(logging.ERROR, "labs"), told, boot(FakeMachine(silent=True)):
        pytest.fail("booted")
    assert "was not restored" in caplog.text


def test_journal_of_the_machines_own_boot_is_no_evidence(tmp_path: Path) -> None:
    """Only a journal that outlives a boot can have one of the kernel that failed."""
    program = tmp_path / "journalctl"
    for last, told in (("ab12", ""), ("cd34", "words of a kernel\n")):
        boots = f"echo ' -1 {last} Mon 2026-11-30'; echo '  0 ef56 Mon 2026-11-30'"
        program.write_text(f"#!/bin/sh\ncase $1 in --list-boots) {boots} ;; *) echo words of a kernel ;; esac\n")
        program.chmod(0o755)
        line = f"PATH={tmp_path}:$PATH; {last_boot('ab-12')}"
        assert subprocess.run(["sh", "-c", line], capture_output=True, text=True).stdout == told


def test_the_program_of_a_package_with_a_link_to_it(tmp_path: Path) -> None:
    """As Debian's runc has one: usr/bin/runc leads to usr/sbin/runc."""
    tree = tmp_path / "tree"
    for folder in ("DEBIAN", "usr/sbin", "usr/bin", "usr/share/doc/runc"):
        (tree / folder).mkdir(parents=True)
    (tree / "DEBIAN/control").write_text(
        "Package: runc\nVersion: 1\nArchitecture: all\nMaintainer: x\nDescription: x\n"
    )
    (tree / "usr/sbin/runc").write_text("the program")
    (tree / "usr/bin/runc").symlink_to("../sbin/runc")
    subprocess.run(
        ["dpkg-deb", "--build", str(tree), str(tmp_path / "runc.deb")], check=True, stdout=subprocess.DEVNULL
    )
    archive: Any = SimpleNamespace(fetch=lambda package: tmp_path / "runc.deb")
    runtime = Runtime("runc", "runc", "bookworm", "1", Package("runc", "1", "bookworm", "x" * 64, 1, ""))
    assert packaged_runtime(Store(tmp_path / "store"), archive, runtime).read_text() == "the program"
