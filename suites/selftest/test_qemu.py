"""QEMU: the exact command line as golden files, and a real QEMU that refuses, stands still or is killed.

After a wanted change of the command line: UPDATE_GOLDEN=1 pytest suites/selftest/test_qemu.py, then read the diff.
"""

from __future__ import annotations

import os
import shutil
import signal
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from labs.command import which
from labs.deadline import Deadline
from labs.errors import GuestLost, MissingProgram, NoSpace
from labs.provision import budget
from labs.provision.measuring import spec_of
from labs.provision.qemu import MachineSpec, QemuMachine, arguments, boot

GOLDEN = Path(__file__).parent / "data/qemu"
PLAIN = MachineSpec(Path("/store/kernel/vmlinuz"), Path("/store/initrd"), Path("/store/root.img"), "tcg")
SPECS = {
    "tcg": PLAIN,
    "kvm": replace(PLAIN, accelerator="kvm", cpus=4, memory_mb=2048),
    "probe": replace(PLAIN, root=None, accelerator="kvm", memory_mb=512),
    "gdb": replace(PLAIN, gdb=1234, parameters=("kasan.fault=report", "systemd.unit=multi-user.target")),
    "measuring": spec_of(Path("/store/kernel/vmlinuz"), "icount", 7),
    "comma": MachineSpec(Path("/a,b/vmlinuz"), Path("/a,b/initrd"), Path("/a,b/root,2.img"), "tcg"),
}
FOLDERS = {"comma": (Path("/tmp/x,y"), Path("/records/c,d"))}


def rendered(name: str) -> str:
    folder, logs = FOLDERS.get(name, (Path("/tmp/cgroup-lab-x"), Path("/records/boot-1")))
    return "".join(f"{word}\n" for word in arguments(SPECS[name], folder, logs))


@pytest.mark.parametrize("name", SPECS)
def test_the_command_line(name: str) -> None:
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(rendered(name))
    assert rendered(name) == path.read_text()


def test_no_golden_file_is_left_over() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == set(SPECS)


def test_an_unknown_accelerator_is_no_command_line() -> None:
    with pytest.raises(KeyError):
        arguments(replace(PLAIN, accelerator="xen"), Path("/x"), Path("/y"))


# With the real program; no operating system is started.


def runnable(folder: Path) -> MachineSpec:
    """What QEMU takes for a kernel (boot protocol 2.12); it halts in its real-mode entry."""
    data = bytearray(5 * 512 + 4096)
    data[0x1F1] = 4
    data[0x1FE:0x200] = b"\x55\xaa"
    data[0x200:0x202] = b"\xfa\xf4"  # cli; hlt
    data[0x202:0x206] = b"HdrS"
    struct.pack_into("<H", data, 0x206, 0x20C)
    data[0x211] = 1  # loaded high
    struct.pack_into("<I", data, 0x22C, 0x7FFFFFFF)  # where an initrd may be
    for name, content in {"kernel": bytes(data), "initrd": b"x", "root": bytes(1 << 20)}.items():
        (folder / name).write_bytes(content)
    return MachineSpec(folder / "kernel", folder / "initrd", folder / "root", "tcg", memory_mb=64, cpus=1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Paths with a comma, as a user's home may have them."""
    if not shutil.which("qemu-system-x86_64"):
        pytest.skip("qemu-system-x86_64 is not installed")
    (tmp_path / "a,b").mkdir()
    return tmp_path / "a,b"


@pytest.fixture
def machine(folder: Path) -> Iterator[QemuMachine]:
    running = QemuMachine(runnable(folder), folder, folder)
    running.connect_monitor(Deadline(20, "QEMU's start"))
    yield running
    running.end()


def refusal(spec: MachineSpec, folder: Path) -> GuestLost:
    machine = QemuMachine(spec, folder, folder)
    try:
        with pytest.raises(GuestLost) as caught:
            machine.connect_monitor(Deadline(20, "QEMU's start"))
    finally:
        machine.end()
    return caught.value


def test_a_text_file_as_kernel_is_refused_in_qemus_words(folder: Path) -> None:
    spec = runnable(folder)
    spec.kernel.write_text("this is no kernel\n" * 1000)
    error = refusal(spec, folder)
    assert str(error).startswith("QEMU ended with 1: ") and "kernel" in str(error) and "\n" not in str(error)
    assert "kernel" in error.evidence


def test_a_missing_image_is_named(folder: Path) -> None:
    spec = replace(runnable(folder), root=folder / "no such.img")
    assert "no such.img" in str(refusal(spec, folder))


def test_a_guest_starts_from_paths_with_commas(machine: QemuMachine, folder: Path) -> None:
    assert machine.gone() == "" and machine.standing_still() == ""
    assert 1024 <= machine.ssh_port() <= 65535
    assert (folder / "console.log").exists()


def test_a_paused_guest_stands_still(machine: QemuMachine) -> None:
    machine.monitor.ask("stop")
    assert machine.standing_still() == "QEMU is paused"
    machine.monitor.ask("cont")
    assert machine.standing_still() == ""


def test_a_stopped_qemu_does_not_answer(machine: QemuMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("labs.provision.monitor.PATIENCE", 0.3)
    os.kill(machine.process.pid, signal.SIGSTOP)
    assert machine.gone() == ""
    assert machine.standing_still() == "QEMU does not answer its monitor"
    machine.dump()  # of no use, and no trouble


def test_a_killed_qemu_is_gone(machine: QemuMachine) -> None:
    os.kill(machine.process.pid, signal.SIGKILL)
    Deadline(5, "QEMU's end").wait_for(lambda: machine.gone() != "")
    assert machine.gone() == "QEMU was killed by signal 9"
    assert machine.standing_still() == "QEMU does not answer its monitor"
    machine.dump()


def test_an_ended_qemu_is_ended_once_more(machine: QemuMachine) -> None:
    machine.end()
    assert machine.process.returncode is not None
    machine.end()


def test_a_program_that_is_not_there_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/no/such")
    monkeypatch.setattr("labs.command.SBIN", "/no/such")
    with pytest.raises(MissingProgram, match="apt-get install qemu-system-x86"):
        which("qemu-system-x86_64")
    with pytest.raises(MissingProgram):
        QemuMachine(runnable(folder), folder, folder)


# The host's budget


@pytest.mark.parametrize(
    "memory_mb, cpus, said",
    [(1 << 30, 1, "MB of memory"), (1, 4096, "wants 4096 vCPUs")],
)
def test_what_does_not_fit_is_refused(tmp_path: Path, memory_mb: int, cpus: int, said: str) -> None:
    with pytest.raises(NoSpace, match=said):
        budget.check(memory_mb, cpus, tmp_path)


def test_a_full_disk_is_told_before_the_boot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage._replace(free=10 << 20))
    with pytest.raises(NoSpace, match=r"10 MB left, a guest needs \d+ MB there; run: labs clean"):
        budget.check(1, 1, tmp_path)


def test_what_fits_is_let_through(tmp_path: Path) -> None:
    budget.check(1, 1, tmp_path)


def test_a_boot_that_does_not_fit_starts_nothing(tmp_path: Path) -> None:
    with pytest.raises(NoSpace), boot(replace(PLAIN, memory_mb=1 << 30), tmp_path, tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []
