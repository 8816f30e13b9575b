"""A capsule holds a cell whole and no key of the lab; what is not a capsule's own is never unpacked."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from labs import prepare
from labs.build.initramfs import KEY_FILES, pack
from labs.build.kernel import KernelArtifacts
from labs.errors import BadInput, LabError
from labs.matrix import Cell, series_of
from labs.provision.accel import Accelerator
from labs.signoff import capsule
from labs.signoff.capsule import MANIFEST, Asked, Capsule, opened, seal, unpack
from labs.source.kernels import Kernel
from labs.source.runtimes import Runtime
from labs.store import Store

ROOT = Path(__file__).parents[2]
SERIES = ROOT / "patches/kernel/torn-weight"
ASKED = Asked(("suites/cgroup_atomicity/test_alone.py",), 7, outcomes={"alone.x": "pass"})


@pytest.fixture
def artifacts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> prepare.Artifacts:
    """A cell with a series, a runtime of its own and an initramfs that has keys; no guest could start from it."""
    monkeypatch.setattr(prepare, "qemu_version", lambda: "QEMU 7.2")
    for name in ("kernel", "image", "initramfs/tree/keys"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("kernel/vmlinuz", "kernel/config", "kernel/System.map", "agent", "runc", "image/root.img"):
        (tmp_path / name).write_text(f"this is {name}")
    (tmp_path / "image/recipe.json").write_text('{"image": "bookworm"}')
    for name in ("init", *KEY_FILES):
        (tmp_path / "initramfs/tree" / name).write_text(f"SECRET {name}" if name in KEY_FILES else "init")
    pack(tmp_path / "initramfs/tree", tmp_path / "initramfs/initrd")
    cell = Cell("6.1", "runc", series=str(SERIES), role="patched")
    series = tuple(one.for_version("6.1.192-3") for one in series_of(str(SERIES)))
    found = prepare.Found(
        cell, Kernel("6.1", version="6.1.192-3"), Runtime("runc", "runc", "bookworm", "1.1.5"), series=series
    )
    return prepare.Artifacts(
        found=found,
        kernel=KernelArtifacts(tmp_path / "kernel", "6.1.192", "aa" * 20, "ff" * 32),
        initrd=tmp_path / "initramfs/initrd",
        root=tmp_path / "image/root.img",
        agent=tmp_path / "agent",
        keys=tmp_path,
        accelerator=Accelerator("tcg", "there is no /dev/kvm"),
        runtime=tmp_path / "runc",
    )


@pytest.fixture
def sealed(artifacts: prepare.Artifacts, tmp_path: Path) -> Path:
    seal(artifacts, ASKED, tmp_path / "cell.tar")
    return tmp_path / "cell.tar"


def test_a_machine_that_already_runs_has_no_image(artifacts: prepare.Artifacts, tmp_path: Path) -> None:
    """Its record says so, and it cannot be packed."""
    existing = replace(artifacts, root=None)
    assert [existing.to_json()[name] for name in ("image", "image_sha256")] == ["", ""]
    with pytest.raises(BadInput, match="has no image to pack"):
        seal(existing, ASKED, tmp_path / "cell.tar")
    assert not (tmp_path / "cell.tar").exists()


def test_it_holds_the_cell_and_what_came_of_it(artifacts: prepare.Artifacts, sealed: Path, tmp_path: Path) -> None:
    made = unpack(sealed, tmp_path / "open")
    assert made.cell.id == artifacts.found.cell.id == "6.1_runc_torn-weight.patched"
    assert made.asked == ASKED
    assert made.found.switches == artifacts.found.switches == {"cglab.torn_us": "50"}
    assert [one.id for one in made.found.applied] == [one.id for one in artifacts.found.applied]
    assert (made.folder / "vmlinuz").read_text() == "this is kernel/vmlinuz"
    assert made.manifest["qemu_arguments"][0] == "qemu-system-x86_64"
    assert made.manifest["image"] == {"image": "bookworm"}
    assert opened(tmp_path / "open").manifest == made.manifest
    words = ["--capsule", str(tmp_path / "open"), "--seed", "7", "--known", "report"]
    assert made.words() == [*ASKED.tests, *words]


def test_equal_cells_are_equal_files(artifacts: prepare.Artifacts, sealed: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.tar"
    seal(artifacts, ASKED, again)
    with tarfile.open(sealed) as one, tarfile.open(again) as two:
        names = [entry.name for entry in one]
        assert names == [entry.name for entry in two]
        for name in set(names) - {"initrd", MANIFEST}:  # its files carry the time at which they were unpacked
            assert one.extractfile(name).read() == two.extractfile(name).read()


def test_no_key_is_packed_and_the_other_labs_own_is_put_in(
    sealed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert b"SECRET" not in sealed.read_bytes()
    monkeypatch.setattr(capsule, "root_image", lambda *_: tmp_path / "image/root.img")
    monkeypatch.setattr(capsule, "accelerator", lambda *_: Accelerator("tcg", "there is no /dev/kvm"))
    made = unpack(sealed, tmp_path / "open")
    there: Any = None
    artifacts = made.artifacts(Store(tmp_path / "store"), there)
    listed = subprocess.run(
        ["cpio", "-t", "--quiet"], stdin=artifacts.initrd.open("rb"), capture_output=True, text=True, check=True
    )
    assert "init" in listed.stdout.split()
    data = artifacts.initrd.read_bytes()
    for name, source in KEY_FILES.items():
        assert name.encode() in data and (artifacts.keys / source).read_bytes() in data
    assert made.other(artifacts) == []
    assert made.other(replace(artifacts, accelerator=Accelerator("kvm", "x")))[0].startswith("accelerator: ")


def repacked(sealed: Path, tmp_path: Path, edit: Callable[[list[tuple[tarfile.TarInfo, bytes]]], object]) -> Path:
    """The capsule with other members."""
    with tarfile.open(sealed) as tar:
        members = [(entry, tar.extractfile(entry).read()) for entry in tar]
    edit(members)
    path = tmp_path / "other.tar"
    with tarfile.open(path, "w") as tar:
        for entry, data in members:
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return path


def member(name: str, data: bytes = b"x", kind: bytes = tarfile.REGTYPE, link: str = "") -> Any:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = kind, link
    return entry, data if kind == tarfile.REGTYPE else b""


def told(edit: Callable[[dict[str, Any]], object]) -> Callable[[list[Any]], None]:
    """An edit of capsule.json."""

    def change(members: list[Any]) -> None:
        manifest = json.loads(members[0][1])
        edit(manifest)
        members[0] = (members[0][0], json.dumps(manifest).encode())

    return change


def added(name: str) -> Callable[[list[Any]], None]:
    """A member more, which capsule.json announces."""
    announced = {"sha256": hashlib.sha256(b"x").hexdigest(), "bytes": 1}

    def change(members: list[Any]) -> None:
        told(lambda manifest: manifest["members"].update({name: announced}))(members)
        members.append(member(name))

    return change


EDITS: dict[str, Callable[[list[Any]], object]] = {
    "'keys-tree' is none": added("keys-tree"),
    "'initrd-with-keys' is none": added("initrd-with-keys"),
    "'root/lib/modules' is none": added("root/lib/modules"),
    "test '/tmp/test_it.py' is none of suites": told(lambda manifest: manifest.update(tests=["/tmp/test_it.py"])),
    "test 'suites/../../it.py' is none": told(lambda manifest: manifest.update(tests=["suites/../../it.py"])),
    "test '@cell.tar' is none": told(lambda manifest: manifest.update(tests=["suites", "@cell.tar"])),
    "runtime or series": told(lambda manifest: manifest["cell"].update(series=["../../etc"])),
    "its runtime or": told(lambda manifest: manifest["runtime"].update(path="/etc/shadow")),
    "is none of a capsule": lambda members: members.append(member("more")),
    r"'\.\./out' is none": lambda members: members.append(member("../out")),
    r"'/tmp/out' is none": lambda members: members.append(member("/tmp/out")),
    "'config' is none": lambda members: members.__setitem__(2, member("config", kind=tarfile.SYMTYPE, link="/etc")),
    "'vmlinuz' is none": lambda members: members.__setitem__(1, member("vmlinuz", kind=tarfile.LNKTYPE, link="x")),
    "vmlinuz is not what was packed": lambda members: members.__setitem__(
        1, (members[1][0], members[1][1].replace(b"this", b"that"))
    ),
    "vmlinuz has 5 bytes, not 22": lambda members: members.__setitem__(1, (members[1][0], b"short")),
    "it lacks vmlinuz": lambda members: members.pop(1),
    "is not its first member": lambda members: members.reverse(),
    "format 2, this lab knows 1": told(lambda manifest: manifest.update(format=2)),
    "larger than a capsule": told(lambda manifest: manifest["members"]["vmlinuz"].update(bytes=1 << 40)),
    "is no capsule": told(lambda manifest: manifest.update(members=3)),
    "recursion": lambda members: members.__setitem__(0, (members[0][0], b"[" * 100_000)),
    "is malformed": told(lambda manifest: manifest.update(tests=["--option"])),
    "cell is not what its id says": told(lambda manifest: manifest["cell"].update(role="off")),
    "exists": lambda members: members.append(members[1]),
}


@pytest.mark.parametrize("why", EDITS)
def test_what_is_no_capsule_is_refused(sealed: Path, tmp_path: Path, why: str) -> None:
    path = repacked(sealed, tmp_path, EDITS[why])
    with pytest.raises(BadInput, match=why):
        unpack(path, tmp_path / "open")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("data", [b"", b"nothing", b"\0" * 20_000])
def test_other_files_are_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x").write_bytes(data)
    with pytest.raises(BadInput, match="is no capsule"):
        unpack(tmp_path / "x", tmp_path / "open")


def test_a_folder_where_nothing_was_opened(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no capsule was opened there"):
        opened(tmp_path)


@pytest.mark.parametrize("test", ["/home/me/test_mine.py", "test_mine.py", "suites/../mine", "@words"])
def test_tests_that_no_other_lab_has_are_not_packed(artifacts: prepare.Artifacts, tmp_path: Path, test: str) -> None:
    with pytest.raises(BadInput, match="other machines do not have it; name one of suites/"):
        seal(artifacts, replace(ASKED, tests=(test,)), tmp_path / "cell.tar")


def test_a_file_that_cannot_be_written_is_told_and_nothing_is_left(
    artifacts: prepare.Artifacts, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    for place in ("no/such/cell.tar", "file/cell.tar"):
        with pytest.raises(LabError, match="cannot be written"):
            seal(artifacts, ASKED, tmp_path / place)


def test_an_opened_capsule_is_a_capsule() -> None:
    with pytest.raises(BadInput, match="is malformed"):
        capsule.load(Capsule(Path(), {"tests": 3}))
