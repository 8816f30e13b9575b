"""The end of a measuring guest: its samples, or the honest reason why there are none."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from labs.build.initramfs import measuring_initramfs
from labs.command import run
from labs.console import ConsoleWatch
from labs.deadline import Deadline
from labs.errors import GuestLost, KernelFailed
from labs.provision import measuring

PANIC = "[    1.000000] Kernel panic - not syncing: Attempted to kill init!\n"
REFUSED = "[    1.000000] cgroup-lab: init failed: mount: cgroup2: No such device\n"


class Machine:
    """A QEMU that lives for some polls, and leaves a console, samples and an exit code."""

    accelerator = "kvm"

    def __init__(self, folder: Path, console: str, sent: bytes, code: int = 0, polls: int = 3) -> None:
        self.polls, self.dumped, self.folder = polls, False, folder
        self.process = SimpleNamespace(returncode=code)
        self.console = ConsoleWatch(folder / "console.log")
        (folder / "console.log").write_text(console)
        (folder / "samples.bin").write_bytes(sent)

    def connect_monitor(self, deadline: Deadline) -> None:
        pass

    def gone(self) -> str:
        self.polls -= 1
        return f"QEMU ended with {self.process.returncode}" if self.polls < 0 else ""

    def standing_still(self) -> str:
        return ""

    def dump(self) -> None:
        self.dumped = True

    def wait(self, seconds: float = 5) -> bytes:
        return measuring._wait(self, self.folder / "samples.bin", Deadline(seconds, "measuring"))  # type: ignore[arg-type]


def test_samples_come_back(tmp_path: Path) -> None:
    assert Machine(tmp_path, "[    1.000000] reboot: Power down\n", b"samples\nend\n").wait() == b"samples\nend\n"


@pytest.mark.parametrize(
    "console, sent, code, kind, told",
    [
        ("", b"sampl", 0, GuestLost, "QEMU ended with 0"),
        ("", b"samples\nend\n", 1, GuestLost, "QEMU ended with 1"),
        (REFUSED, b"", 0, GuestLost, "init failed: mount: cgroup2: No such device"),
        (PANIC, b"", 0, KernelFailed, "Attempted to kill init"),
    ],
)
def test_why_there_are_none(
    console: str, sent: bytes, code: int, kind: type[Exception], told: str, tmp_path: Path
) -> None:
    with pytest.raises(kind, match=told):
        Machine(tmp_path, console, sent, code).wait()


def test_a_guest_that_does_not_stop_sending_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "MOST", 5)
    with pytest.raises(GuestLost, match="sent more than"):
        Machine(tmp_path, "", b"123456", polls=10_000).wait()


def test_a_kernel_that_hangs_is_dumped_and_blamed(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "", b"", polls=10_000)
    with pytest.raises(KernelFailed, match="kernel hangs: measuring: not done after"):
        machine.wait(0.1)
    assert machine.dumped


def test_the_guest_has_nothing_but_the_agent_and_its_plan(tmp_path: Path) -> None:
    (tmp_path / "agent").write_bytes(b"program")
    initrd = measuring_initramfs(tmp_path / "agent", "seed 1\n", tmp_path)
    told = run(["cpio", "--quiet", "--list", "--verbose", "-F", str(initrd)], Deadline(20, "cpio")).out.splitlines()
    assert [line.split()[-1] for line in told] == ["agent", "dev", "plan", "proc", "sys"]
    assert told[0].startswith("-rwxr-xr-x")
