"""What the ssh provider puts on a machine's disk and into its boot loader, and that it takes it away again."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from labs.console import ConsoleWatch
from labs.deadline import Deadline
from labs.errors import LabError
from labs.guest import Guest, Vitals
from labs.provision.install import BEGIN, END, MKINITRAMFS, _grub, install, own_parameters, remove
from labs.session import Result

# Boot parameters and boot loaders


def test_parameters_of_the_machine_are_kept() -> None:
    line = "BOOT_IMAGE=/vmlinuz-6.1 root=UUID=ab-c ro console=ttyS0,115200n8 initrd=/x"
    assert own_parameters(line) == ["root=UUID=ab-c", "ro", "console=ttyS0,115200n8"]


@pytest.mark.parametrize("word", ["x='y", 'dyndbg="file', "a$b", "a;b", "a`b`", "a{b"])
def test_parameters_that_a_boot_loader_would_read_otherwise(word: str) -> None:
    with pytest.raises(LabError, match="cannot be passed on"):
        own_parameters(f"ro {word}")


@pytest.fixture
def grub(tmp_path: Path) -> Callable[[str], str]:
    """Run one of the scripts on a folder of its own; what GRUB's programs were asked for."""
    for name in ("editenv", "probe", "mkrelpath", "reboot"):
        program = tmp_path / f"grub-{name}"
        program.write_text(
            f'#!/bin/sh\necho {name} "$@" >> {tmp_path}/asked\n[ {name} = probe ] && echo ab-12; exit 0\n'
        )
        program.chmod(0o755)
    loader = _grub(str(tmp_path), str(tmp_path / "grub"))

    def run(which: str) -> str:
        script = loader.arm % "'root=/dev/x lab.once'" if which == "arm" else loader.disarm
        subprocess.run(["sh", "-ec", script], check=True)
        return (tmp_path / "asked").read_text() if (tmp_path / "asked").exists() else ""

    return run


@pytest.mark.parametrize("own", ["", "menuentry mine {}\n"])
def test_entry_comes_once_and_goes_without_a_trace(grub: Callable[[str], str], tmp_path: Path, own: str) -> None:
    configuration = tmp_path / "custom.cfg"
    if own:
        configuration.write_text(own)
    grub("arm")
    assert "reboot --boot-directory=/boot cgroup-lab" in grub("arm")
    text = configuration.read_text()
    assert text.startswith(own)
    assert (text.count(BEGIN), text.count(END), text.count("lab.once")) == (1, 1, 1)
    assert re.search(r"^linux \S*/vmlinuz root=/dev/x lab.once$", text, re.M)
    assert "--fs-uuid --set=root ab-12" in text
    grub("disarm")
    assert (configuration.read_text() if configuration.exists() else "") == own
    assert configuration.exists() == bool(own)


# What is put on a machine's disk


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    """A machine's folders, with programs that only note how they were called."""
    for folder in ("boot/grub", "lib/modules/6.1-own", "etc/initramfs-tools/conf.d", "bin"):
        (tmp_path / "disk" / folder).mkdir(parents=True)
    for name in ("depmod", "mkinitramfs", "grub-editenv", "grub-probe", "grub-mkrelpath", "grub-reboot"):
        program(tmp_path / "disk/bin" / name, f'echo {name} "$@" >> {tmp_path}/asked')
    return tmp_path / "disk"


def program(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


class LocalShell:
    """A session whose machine is a folder: the paths of a machine lead there."""

    def __init__(self, disk: Path) -> None:
        self.disk = disk

    def run(self, command: str, deadline: Deadline, *, stdin: bytes = b"", watch: Callable[[], None]) -> Result:
        command = re.sub(r"(?<![\w/-])/(boot|lib/modules|lab|etc)(?=[/ ;\"'\n]|$)", rf"{self.disk}/\1", command)
        told = subprocess.run(["sh", "-c", f"PATH={self.disk}/bin:$PATH\n{command}"], input=stdin, capture_output=True)
        return Result(command, told.returncode, told.stdout, told.stderr, 0.0)


def guest_on(disk: Path) -> Guest:
    machine: Any = SimpleNamespace(accelerator="kvm", gone=lambda: "")
    session: Any = LocalShell(disk)
    return Guest(session, Vitals(machine, ConsoleWatch(disk / "console")))


def listing(disk: Path) -> set[str]:
    return {str(path.relative_to(disk)) for path in disk.rglob("*")}


@pytest.mark.parametrize("own", ["", "boot/config-9.9-lab"])
def test_what_is_put_on_the_disk_is_taken_away_again_and_nothing_else(disk: Path, tmp_path: Path, own: str) -> None:
    kernel = tmp_path / "kernel"
    modules = kernel / "root/lib/modules/9.9-lab"
    modules.mkdir(parents=True)
    (modules / "modules.order").write_text("")
    (kernel / "facts.json").write_text(json.dumps({"release": "9.9-lab", "sha256": "x"}))
    (kernel / "vmlinuz").write_bytes(b"a kernel")
    (kernel / "config").write_text("CONFIG_RD_GZIP=y\n")
    if own:
        (disk / own).write_text("somebody's")
    before = listing(disk)
    guest = guest_on(disk)
    install(guest, {"initramfs": "mkinitramfs", "loader": "grub", "parameters": "ro"}, kernel, ("lab.once",))
    assert (disk / "boot/config-9.9-lab").read_text() == ("somebody's" if own else "CONFIG_RD_GZIP=y\n")
    assert (disk / "lib/modules/9.9-lab/modules.order").exists()
    remove(guest, "grub")
    assert listing(disk) - before <= {"console"}
    assert before <= listing(disk)


@pytest.mark.parametrize(("finds", "tried"), [("dep", ["dep"]), ("most", ["dep", "most"]), ("", ["dep", "most"])])
def test_initramfs_has_what_the_root_needs_or_else_most(
    disk: Path, tmp_path: Path, finds: str, tried: list[str]
) -> None:
    """The machine's own configuration is kept but for its size, which is said last."""
    (disk / "etc/initramfs-tools/initramfs.conf").write_text("MODULES=most\nCOMPRESS=zstd\nKEYMAP=y\n")
    (disk / "etc/initramfs-tools/conf.d/driver-policy").write_text("MODULES=most\n")
    program(
        disk / "bin/mkinitramfs",
        f""". $2/initramfs.conf; for each in $2/conf.d/*; do . $each; done
        echo $MODULES $COMPRESS $KEYMAP >> {tmp_path}/asked; [ "$MODULES" = "{finds}" ]""",
    )
    told = guest_on(disk).run(f"sh -c {shlex.quote(MKINITRAMFS)} mkinitramfs /boot/initrd 9.9-lab")
    assert told.code == (0 if finds else 1)
    assert (tmp_path / "asked").read_text().splitlines() == [f"{word} gzip y" for word in tried]
    assert (disk / "lab/initramfs-tools").exists() == (not finds)
