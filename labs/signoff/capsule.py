"""A capsule: all that one cell's guest is started from, in one tar file, and what must come of its cases.

    capsule.json   the cell, versions, digests, seed, tests, outcomes; first, so that it can be read by itself
    vmlinuz config System.map initrd agent runtime      those that there are
    series/<name>/series.toml, *.patch

The root image is named by its recipe and digest; it is made anew where it is missing. Keys are never packed: the guest
gets those of the lab that runs it, as a second archive behind its initramfs (Documentation/driver-api/early-userspace/
buffer-format.rst: later files replace earlier ones).
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from labs.build.image import root_image
from labs.build.initramfs import KEY_FILES, pack
from labs.build.kernel import KernelArtifacts
from labs.build.keys import guest_keys
from labs.command import run
from labs.deadline import Deadline
from labs.errors import BadInput, LabError
from labs.matrix import Cell, series_of
from labs.prepare import Artifacts, Found, machine
from labs.provision import qemu
from labs.provision.accel import accelerator
from labs.report.session import source_digest
from labs.series import Series
from labs.source.debian import Archive
from labs.source.kernels import Kernel
from labs.source.runtimes import Runtime
from labs.store import Store, file_digest

MANIFEST = "capsule.json"
FORMAT = 1
REQUIRED = ("vmlinuz", "initrd", "agent")
FILES = (*REQUIRED, "config", "System.map", "runtime")
RUNTIME = ("asked", "name", "image", "version")
LIMIT = 4 << 30  # bytes of all members
MOST = 1000  # members
MANIFEST_LIMIT = 4 << 20
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+~-]{0,120}")


@dataclass(frozen=True)
class Asked:
    """What is to be run in the cell, and what came of it where it was packed (nothing: not known)."""

    tests: tuple[str, ...]
    seed: int
    full: bool = False
    known: str = "report"
    outcomes: Mapping[str, str] | None = None


def seal(artifacts: Artifacts, asked: Asked, target: Path) -> dict[str, Any]:
    """Pack a cell into `target`, whole or not at all; what capsule.json says. BadInput: a machine that already runs,
    a test that is not one of suites/."""
    if artifacts.root is None:
        raise BadInput(f"cell {artifacts.found.cell.id} has no image to pack", mend="--provider qemu")
    if others := [test for test in asked.tests if not _in_suites(test)]:
        raise BadInput(f"test {others[0]}: other machines do not have it", mend="name one of suites/")
    with tempfile.TemporaryDirectory(prefix="cgroup-lab-") as name:
        members = dict(_members(artifacts, Path(name)))
        manifest = _manifest(artifacts, artifacts.root, asked) | {
            "members": {
                member: {"sha256": file_digest(path), "bytes": path.stat().st_size} for member, path in members.items()
            }
        }
        part = target.with_name(f".{target.name}.part")
        try:
            with tarfile.open(part, "w") as tar:
                _add(tar, MANIFEST, json.dumps(manifest, indent=1).encode())
                for member, path in members.items():
                    _add(tar, member, path.read_bytes())
            part.replace(target)
        except OSError as error:
            raise LabError(f"{target}: cannot be written: {error.strerror}") from None
        finally:
            with contextlib.suppress(OSError):
                part.unlink()
    return manifest


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    entry = tarfile.TarInfo(name)  # no owner, no time: equal cells are equal files
    entry.size = len(data)
    tar.addfile(entry, io.BytesIO(data))


def _members(artifacts: Artifacts, work: Path) -> Iterator[tuple[str, Path]]:
    folder = artifacts.kernel.folder
    for name in ("vmlinuz", "config", "System.map"):
        if (folder / name).exists():
            yield name, folder / name
    yield "initrd", _without_keys(artifacts.initrd, work)
    yield "agent", artifacts.agent
    if artifacts.runtime:
        yield "runtime", artifacts.runtime
    for one in artifacts.found.series:
        for path in _series(one, work / "series" / one.name):
            yield f"series/{one.name}/{path.name}", path


def _without_keys(initrd: Path, work: Path) -> Path:
    tree = work / "initrd-tree"
    tree.mkdir()
    argv = ["cpio", "--quiet", "--extract", "--make-directories", "--no-absolute-filenames"]
    run(argv, Deadline(60, "unpacking the initramfs"), stdin=initrd.read_bytes(), cwd=tree)
    for name in KEY_FILES:
        (tree / name).unlink(missing_ok=True)
    pack(tree, work / "initrd")
    return work / "initrd"


def _series(one: Series, folder: Path) -> list[Path]:
    """The series as a folder of its own, with the patches for this version alone."""
    if not NAME.fullmatch(one.name):
        raise BadInput(f"series {one.name}: its name is not fit for a capsule", mend="put it into a folder of patches/")
    folder.mkdir(parents=True)
    names = [f"{number:04}.patch" for number in range(1, len(one.patches) + 1)]
    for name, patch in zip(names, one.patches, strict=True):
        (folder / name).write_bytes(patch.raw)
    rows: dict[str, object] = {
        "title": one.title,
        "intent": one.intent,
        "component": one.component,
        "line_endings": one.line_endings,
    }
    rows |= {"mends": list(one.mends), "breaks": list(one.breaks), "upstream": list(one.upstream), "files": names}
    lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in rows.items()]
    lines += ["[parameters]", *(f"{json.dumps(key)} = {json.dumps(value)}" for key, value in one.parameters.items())]
    (folder / "series.toml").write_text("\n".join(lines) + "\n")
    return [folder / "series.toml", *(folder / name for name in names)]


def _manifest(artifacts: Artifacts, root: Path, asked: Asked) -> dict[str, Any]:
    found, kernel = artifacts.found, artifacts.kernel
    cell = found.cell
    return {
        "format": FORMAT,
        "cell": {"id": cell.id, "kernel": cell.kernel, "runtime": cell.runtime, "variant": cell.variant}
        | {"provider": cell.provider, "role": cell.role, "series": [one.name for one in found.series]},
        "kernel": {"version": found.kernel.version, "release": kernel.release, "build_id": kernel.build_id},
        "runtime": {name: getattr(found.runtime, name) for name in RUNTIME},
        "image": json.loads((root.parent / "recipe.json").read_text()),
        "artifacts": artifacts.to_json(),
        "qemu_arguments": qemu.arguments(machine(artifacts), Path("FOLDER"), Path("BOOT")),
        "tests": list(asked.tests),
        "seed": asked.seed,
        "full": asked.full,
        "known": asked.known,
        "outcomes": dict(asked.outcomes or {}),
        "test_code": source_digest(),
    }


@dataclass(frozen=True)
class Capsule:
    """One that was opened: its files are below `folder`."""

    folder: Path
    manifest: dict[str, Any]

    @property
    def asked(self) -> Asked:
        told = self.manifest
        return Asked(tuple(told["tests"]), told["seed"], told["full"], told["known"], told["outcomes"])

    @property
    def cell(self) -> Cell:
        told = self.manifest["cell"]
        spec = "+".join(str(self.folder / "series" / name) for name in told["series"])
        return Cell(told["kernel"], told["runtime"], told["provider"], told["variant"], spec, told["role"])

    @property
    def found(self) -> Found:
        told, cell = self.manifest, self.cell
        kernel = Kernel(cell.kernel, version=told["kernel"]["version"])
        return Found(cell, kernel, Runtime(**told["runtime"]), series=series_of(cell.series) if cell.series else ())

    def artifacts(self, store: Store, archive: Archive) -> Artifacts:
        """What a guest is started from: all from the capsule, but the root image, the keys and the accelerator."""
        told = self.manifest["kernel"]
        sha256 = self.manifest["members"]["vmlinuz"]["sha256"]
        kernel = KernelArtifacts(self.folder, told["release"], told["build_id"], sha256)
        keys = guest_keys(store)
        return Artifacts(
            found=self.found,
            kernel=kernel,
            initrd=self._initrd(keys),
            root=root_image(store, archive, self.manifest["runtime"]["image"]),
            agent=self.folder / "agent",
            keys=keys,
            accelerator=accelerator(store, archive, kernel),
            runtime=path if (path := self.folder / "runtime").exists() else None,
        )

    def _initrd(self, keys: Path) -> Path:
        """The packed initramfs with the keys of this lab behind it."""
        tree, made = self.folder / "keys-tree", self.folder / "initrd-with-keys"
        if not made.exists():
            for name, source in KEY_FILES.items():
                (tree / name).parent.mkdir(parents=True, exist_ok=True)
                (tree / name).write_bytes((keys / source).read_bytes())
            pack(tree, self.folder / "keys")
            data = (self.folder / "initrd").read_bytes()
            part = made.with_name(f"{made.name}.part")
            part.write_bytes(data + bytes(-len(data) % 512) + (self.folder / "keys").read_bytes())
            part.replace(made)
        return made

    def other(self, artifacts: Artifacts) -> list[str]:
        """What differs here from where it was packed."""
        then, now = self.manifest["artifacts"], artifacts.to_json()
        told = [
            f"{name}: {now[name]} here, {then[name]} there"
            for name in ("qemu", "accelerator", "image", "image_sha256")
            if then.get(name) != now[name]
        ]
        code = source_digest()
        if code != self.manifest["test_code"]:
            told.append(f"test code: {code} here, {self.manifest['test_code']} there")
        return told

    def words(self) -> list[str]:
        """pytest's words that run it."""
        asked = self.asked
        words = [*asked.tests, "--capsule", str(self.folder), "--seed", str(asked.seed), "--known", asked.known]
        return words + (["--full"] if asked.full else [])


def unpack(path: Path, folder: Path) -> Capsule:
    """Open a capsule in an empty folder. BadInput when it is none, or holds anything that it does not announce.

    Nothing is trusted: only regular files that capsule.json names, with their sizes and digests, below the folder.
    """
    try:
        with tarfile.open(path, "r:") as tar:
            manifest = _read_manifest(tar)
            members = manifest["members"]
            if len(members) > MOST or sum(int(one["bytes"]) for one in members.values()) > LIMIT:
                raise BadInput(f"{path}: larger than a capsule may be")
            for entry in tar:
                if entry.name != MANIFEST:
                    _extract(tar, entry, members, folder)
    except (OSError, tarfile.TarError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadInput(f"{path}: is no capsule: {error}", mend="labs capsule makes them") from None
    absent = [name for name in (*REQUIRED, *members) if not (folder / name).is_file()]
    if absent:
        raise BadInput(f"{path}: it lacks {', '.join(absent[:5])}")
    (folder / MANIFEST).write_text(json.dumps(manifest))
    return load(Capsule(folder, manifest))


def _read_manifest(tar: tarfile.TarFile) -> dict[str, Any]:
    first = tar.next()
    if first is None or first.name != MANIFEST or not first.isreg() or first.size > MANIFEST_LIMIT:
        raise ValueError(f"{MANIFEST} is not its first member")
    data = tar.extractfile(first)
    assert data
    manifest: dict[str, Any] = json.loads(data.read())
    if manifest["format"] != FORMAT:
        raise ValueError(f"format {manifest['format']}, this lab knows {FORMAT}")
    return manifest


def _extract(tar: tarfile.TarFile, entry: tarfile.TarInfo, members: Mapping[str, Any], folder: Path) -> None:
    told = members.get(entry.name)
    pure = PurePosixPath(entry.name)
    known = entry.name in FILES or (len(pure.parts) == 3 and pure.parts[0] == "series")
    if told is None or not known or not entry.isreg() or not all(map(NAME.fullmatch, pure.parts)):
        raise ValueError(f"member {entry.name!r} is none of a capsule")
    if entry.size != told["bytes"]:
        raise ValueError(f"member {entry.name} has {entry.size} bytes, not {told['bytes']}")
    target = folder / pure
    target.parent.mkdir(parents=True, exist_ok=True)
    source = tar.extractfile(entry)
    assert source
    with target.open("xb") as out:
        while chunk := source.read(1 << 20):
            out.write(chunk)
    if file_digest(target) != told["sha256"]:
        raise ValueError(f"member {entry.name} is not what was packed: its sha256 differs")


def _in_suites(test: str) -> bool:
    """Whether a test is one of this lab: pytest runs what it is told to, and reads arguments from `@FILE`."""
    parts = PurePosixPath(test.partition("::")[0]).parts
    return parts[:1] == ("suites",) and ".." not in parts


def load(capsule: Capsule) -> Capsule:
    """The same, once all that is asked of it was there; BadInput else."""
    try:
        told = capsule.manifest
        asked, cell = capsule.asked, capsule.cell
        for text in (*asked.tests, cell.kernel, cell.runtime, told["kernel"]["build_id"], told["runtime"]["image"]):
            if not isinstance(text, str) or text.startswith("-"):
                raise ValueError(f"{text!r} where a name was expected")
        if others := [test for test in asked.tests if not _in_suites(test)]:
            raise ValueError(f"test {others[0]!r} is none of suites/")
        if set(told["runtime"]) != set(RUNTIME) or not all(map(NAME.fullmatch, told["cell"]["series"])):
            raise ValueError("its runtime or series are none that a lab packs")
        if told["cell"]["id"] != cell.id or not isinstance(asked.seed, int) or asked.known not in ("report", "ignore"):
            raise ValueError("its cell is not what its id says")
        return capsule
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadInput(f"{MANIFEST}: is malformed: {error!r}") from None


def opened(folder: Path) -> Capsule:
    """A capsule that `unpack` has opened there before."""
    path = folder / MANIFEST
    if not path.is_file():
        raise BadInput(f"{folder}: no capsule was opened there", mend="labs replay FILE does")
    return load(Capsule(folder, json.loads(path.read_text())))
