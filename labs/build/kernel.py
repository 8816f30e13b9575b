"""Kernel artifacts: vmlinuz, config, System.map and modules in one folder, with the build-id that must run."""

from __future__ import annotations

import io
import json
import lzma
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import lz4.block
import zstandard
from elftools.common.exceptions import ELFError
from elftools.construct.core import ConstructError
from elftools.elf.elffile import ELFFile
from elftools.elf.segments import NoteSegment

from labs.command import run
from labs.deadline import Deadline
from labs.errors import BadInput
from labs.source.debian import Archive, unpack
from labs.source.kernels import Kernel
from labs.store import Store, file_digest, remove_tree

RECIPE = 2  # raise it when the steps below change


@dataclass(frozen=True)
class KernelArtifacts:
    """Where a kernel's pieces are. `release` may be empty for a file that does not tell it."""

    folder: Path
    release: str
    build_id: str
    sha256: str  # of vmlinuz

    @property
    def vmlinuz(self) -> Path:
        return self.folder / "vmlinuz"

    @property
    def system_map(self) -> Path | None:
        return path if (path := self.folder / "System.map").exists() else None

    @property
    def modules(self) -> Path:
        """Root for modprobe: holds lib/modules/RELEASE, or nothing when the kernel brought no modules."""
        return self.folder / "root"


def kernel_artifacts(store: Store, archive: Archive, kernel: Kernel) -> KernelArtifacts:
    """Unpack or copy the kernel into the store. BadInput when a `path:` is no x86 kernel image."""
    if kernel.path:
        read_image(kernel.path)  # refuse what is no kernel before anything is made
        recipe: dict[str, object] = {"recipe": RECIPE, "vmlinuz": file_digest(kernel.path)}
    else:
        recipe = {"recipe": RECIPE, "packages": {p.name: p.sha256 for p in kernel.packages}}

    def make(folder: Path) -> None:
        (folder / "root").mkdir()
        if kernel.path:
            (folder / "vmlinuz").write_bytes(kernel.path.read_bytes())
        else:
            _from_packages([archive.fetch(package) for package in kernel.packages], kernel.release, folder)
        image = read_image(folder / "vmlinuz")
        facts = {"release": image.release, "build_id": image.build_id, "sha256": file_digest(folder / "vmlinuz")}
        (folder / "facts.json").write_text(json.dumps(facts))

    folder = store.build("kernel", recipe, make, f"kernel {kernel.asked} {kernel.version}".rstrip())
    return KernelArtifacts(folder, **json.loads((folder / "facts.json").read_text()))


def _from_packages(debs: list[Path], release: str, folder: Path) -> None:
    tree = folder / "tree"
    for deb in debs:
        unpack(deb, tree)
    homes = [tree / "usr/lib/modules" / release, tree / "lib/modules" / release]
    places = {
        "vmlinuz": [tree / f"boot/vmlinuz-{release}", homes[0] / "vmlinuz"],
        "config": [tree / f"boot/config-{release}", homes[0] / "config"],
        "System.map": [tree / f"boot/System.map-{release}", homes[0] / "System.map"],
    }
    for name, candidates in places.items():
        for place in candidates:
            if place.exists():
                place.rename(folder / name)
    modules = next((home for home in homes if (home / "kernel").is_dir()), None)
    if modules:
        target = folder / "root/lib/modules" / release
        target.parent.mkdir(parents=True)
        modules.rename(target)
        run(["depmod", "-b", str(folder / "root"), release], Deadline(120, "depmod"))
    remove_tree(tree)


@dataclass(frozen=True)
class ImageFacts:
    """What a bzImage tells of itself: its release (uname -r) and the build-id of the vmlinux inside."""

    release: str
    build_id: str


def read_image(path: Path) -> ImageFacts:
    """Read a bzImage (Documentation/arch/x86/boot.rst: HdrS at 0x202, kernel_version at 0x20e, payload at 0x248)."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from None
    if len(data) < 0x300 or data[0x202:0x206] != b"HdrS":
        raise BadInput(f"{path} is no x86 kernel image", mend="give a bzImage (vmlinuz)")
    (version_at,) = struct.unpack_from("<H", data, 0x20E)
    text = data[version_at + 0x200 : version_at + 0x300] if version_at else b""  # 0: it does not tell
    release = text.split(b"\0")[0].decode(errors="replace").split(" ")[0]
    if "/" in release:
        raise BadInput(f"{path} tells a release that is no name: {release!r}")  # folders are called by it
    setup_sectors = data[0x1F1] or 4
    offset, length = struct.unpack_from("<II", data, 0x248)
    start = (setup_sectors + 1) * 512 + offset
    if not length or start + length > len(data):
        raise BadInput(f"{path} is cut short: its compressed kernel does not end inside the file")
    return ImageFacts(release, _build_id(_decompress(data[start : start + length], path), path))


def _lz4_legacy(data: bytes, most: int) -> bytes:
    """The format of `lz4 -l`, that the kernel's build uses: blocks of at most 8 MiB, each after its size."""
    out: list[bytes] = []
    at = 4
    while at + 4 <= len(data) and len(out) << 23 <= most:
        (size,) = struct.unpack_from("<I", data, at)
        if not size or at + 4 + size > len(data):
            break
        out.append(lz4.block.decompress(data[at + 4 : at + 4 + size], uncompressed_size=8 << 20))
        at += 4 + size
    return b"".join(out)


# magic -> decompressor. The payload ends in four bytes of the uncompressed size (gzip has them in its own format, the
# others get them from the build, scripts/Makefile.lib size_append), so none may insist on the end of its stream.
# Each gets the size that the payload tells, and makes at most a byte more: a small file can hold any amount of zeros.
DECOMPRESSORS: dict[bytes, Callable[[bytes, int], bytes]] = {
    b"\x1f\x8b": lambda data, size: zlib.decompressobj(wbits=31).decompress(data, size + 1),
    b"\xfd7zXZ": lambda data, size: lzma.LZMADecompressor().decompress(data, size + 1),
    b"\x28\xb5\x2f\xfd": lambda data, size: zstandard.ZstdDecompressor().stream_reader(data[:-4]).read(size + 1),
    b"\x02\x21\x4c\x18": _lz4_legacy,
}
VMLINUX = 1 << 30  # bytes at most


def _decompress(payload: bytes, path: Path) -> bytes:
    size = int.from_bytes(payload[-4:], "little")
    for magic, decompress in DECOMPRESSORS.items():
        if payload.startswith(magic):
            try:
                vmlinux = decompress(payload, min(size, VMLINUX))
            except (zlib.error, EOFError, lzma.LZMAError, zstandard.ZstdError, lz4.block.LZ4BlockError) as error:
                raise BadInput(f"{path}: the compressed kernel is damaged ({error})") from None
            if len(vmlinux) != size:
                raise BadInput(f"{path}: the compressed kernel is damaged ({len(vmlinux)} bytes instead of {size})")
            return vmlinux
    raise BadInput(f"{path}: unknown compression {payload[:4].hex()}", mend="gzip, xz, zstd and lz4 are understood")


def _build_id(vmlinux: bytes, path: Path) -> str:
    try:
        for segment in ELFFile(io.BytesIO(vmlinux)).iter_segments("PT_NOTE"):
            assert isinstance(segment, NoteSegment)
            for note in segment.iter_notes():
                # other owners (Xen) use the same type number
                if note["n_name"] == "GNU" and note["n_type"] == "NT_GNU_BUILD_ID":
                    return str(note["n_desc"])
    except (ELFError, ConstructError, ValueError, OverflowError) as error:  # pyelftools lets all four through
        raise BadInput(f"{path}: the kernel inside is no ELF file ({error})") from None
    return ""
