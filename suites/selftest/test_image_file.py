"""Reading a kernel image: release and build-id out of small bzImages laid out as the kernel's build does it."""

from __future__ import annotations

import gzip
import lzma
import os
import random
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import lz4.block
import pytest
import zstandard

from labs.build.kernel import ImageFacts, kernel_artifacts, read_image
from labs.errors import BadInput
from labs.source.debian import Archive
from labs.source.kernels import Kernel, find_kernel
from labs.store import Store

ID = bytes(range(100, 120))
RELEASE = "6.1.0-57-cloud-amd64"
BANNER = f"{RELEASE} (debian-kernel@lists.debian.example) #1 SMP Debian 6.1.192-3".encode()


def note(owner: bytes, kind: int, value: bytes) -> bytes:
    name = owner + b"\0"
    return struct.pack("<III", len(name), len(value), kind) + _padded(name) + _padded(value)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


NOTES = note(b"Xen", 3, b"\x01\x02\x03\x04") + note(b"Linux", 257, b"6.1") + note(b"GNU", 3, ID)


def elf(notes: bytes = NOTES, size: int = 20_000) -> bytes:
    """A vmlinux of one segment of notes and some text; elf(5)."""
    header = struct.pack(
        "<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 2, 62, 1, 0, 64, 0, 0, 64, 56, 1, 64, 0, 0
    )  # fmt: skip
    segment = struct.pack("<IIQQQQQQ", 4, 4, 64 + 56, 0, 0, len(notes), len(notes), 4)
    return header + segment + notes + random.Random(1).randbytes(size // 2) + bytes(size // 2)


def _lz4_legacy(data: bytes) -> bytes:
    blocks = [lz4.block.compress(data[at : at + (8 << 20)], store_size=False) for at in range(0, len(data), 8 << 20)]
    return b"\x02\x21\x4c\x18" + b"".join(struct.pack("<I", len(block)) + block for block in blocks)


def _sized(compress: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    """With the uncompressed size behind it; scripts/Makefile.lib, size_append."""
    return lambda data: compress(data) + struct.pack("<I", len(data))


# gzip alone has the size in its own format, and nothing appended (scripts/Makefile.lib, cmd_gzip).
COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "xz": _sized(lambda data: lzma.compress(data, check=lzma.CHECK_CRC32)),
    "zstd": _sized(zstandard.ZstdCompressor(write_content_size=False, write_checksum=True).compress),
    "lz4": _sized(_lz4_legacy),
}
compression = pytest.mark.parametrize("name", COMPRESSIONS)


def bzimage(payload: bytes, banner: bytes = BANNER, setup_sectors: int = 4) -> bytes:
    """Documentation/arch/x86/boot.rst: a setup part of sectors, the payload some way into the protected-mode part."""
    setup = bytearray((setup_sectors + 1) * 512)
    setup[0x1F1] = setup_sectors
    setup[0x200:0x202] = b"\xeb\x6a"  # the jump over the header
    setup[0x202:0x206] = b"HdrS"
    offset = 0x400
    struct.pack_into("<H", setup, 0x20E, 0x300 - 0x200 if banner else 0)
    setup[0x300 : 0x300 + len(banner) + 1] = banner + b"\0"
    struct.pack_into("<II", setup, 0x248, offset, len(payload))
    return bytes(setup) + bytes(offset) + payload + b"what follows the payload"


@pytest.fixture
def image(tmp_path: Path) -> Callable[[bytes], Path]:
    def write(data: bytes) -> Path:
        (tmp_path / "bzImage").write_bytes(data)
        return tmp_path / "bzImage"

    return write


def refused(path: Path) -> str:
    with pytest.raises(BadInput) as caught:
        read_image(path)
    assert "\n" not in str(caught.value) and str(path) in str(caught.value)
    return str(caught.value)


Image = Callable[[bytes], Path]


@compression
@pytest.mark.parametrize("setup_sectors", [4, 31])
def test_release_and_build_id(image: Image, name: str, setup_sectors: int) -> None:
    path = image(bzimage(COMPRESSIONS[name](elf()), setup_sectors=setup_sectors))
    assert read_image(path) == ImageFacts(RELEASE, ID.hex())


@pytest.mark.parametrize("name", ["gzip", "xz", "zstd"])
def test_a_kernel_larger_than_it_tells_is_not_unpacked(image: Image, name: str) -> None:
    """A few kilobytes can hold any amount of zeros."""
    payload = COMPRESSIONS[name](bytes(64 << 20))
    path = image(bzimage(payload[:-4] + struct.pack("<I", 1000)))
    tracemalloc.start()
    assert "is damaged" in refused(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 << 20


def test_a_release_is_no_path(image: Image) -> None:
    assert "tells a release that is no name" in refused(image(bzimage(b"", banner=b"6.1/../../../x (a@b)")))


def test_lz4_of_several_blocks(image: Image) -> None:
    assert read_image(image(bzimage(COMPRESSIONS["lz4"](elf(size=18 << 20))))).build_id == ID.hex()


def test_no_sectors_told_means_four(image: Image) -> None:
    data = bytearray(bzimage(COMPRESSIONS["xz"](elf())))
    data[0x1F1] = 0
    assert read_image(image(bytes(data))).build_id == ID.hex()


def test_a_kernel_without_release_and_build_id(image: Image) -> None:
    path = image(bzimage(COMPRESSIONS["gzip"](elf(note(b"Xen", 3, b"1234"))), banner=b""))
    assert read_image(path) == ImageFacts("", "")


@pytest.mark.parametrize(
    "data",
    [b"", b"this is no kernel\n" * 100, b"MZ" + bytes(0x1000), elf(), b"HdrS" * 1000, gzip.compress(elf())],
    ids=["empty", "text", "zeroes", "vmlinux", "magic elsewhere", "gzip"],
)
def test_what_is_no_kernel_image(image: Image, data: bytes) -> None:
    assert "is no x86 kernel image; give a bzImage (vmlinuz)" in refused(image(data))


@compression
def test_a_file_cut_anywhere(image: Image, name: str) -> None:
    data = bzimage(COMPRESSIONS[name](elf(size=2000)))
    end = len(data) - len(b"what follows the payload")
    for size in [*range(0, end, 97), end - 1]:
        said = refused(image(data[:size]))
        assert size < 0x300 or "is cut short" in said


@compression
def test_a_payload_cut_anywhere(image: Image, name: str) -> None:
    """As when the kernel's build was cut short: the header knows nothing of it."""
    payload = COMPRESSIONS[name](elf(size=2000))
    for size in [*range(6, len(payload), 41), len(payload) - 4, len(payload) - 1]:
        assert "is damaged" in refused(image(bzimage(payload[:size]))), size


@compression
def test_a_payload_damaged_anywhere(image: Image, name: str) -> None:
    """Damage is either seen or without consequence: never another exception, never another build-id."""
    rng = random.Random(name)
    payload = COMPRESSIONS[name](elf(size=2000))
    seen = 0
    for at in rng.sample(range(len(payload)), 150):
        damaged = bytearray(payload)
        damaged[at] ^= 1 << rng.randrange(8)
        try:
            found = read_image(image(bzimage(bytes(damaged))))
        except BadInput:
            seen += 1
        else:
            assert found.build_id in (ID.hex(), "") or name == "lz4"  # lz4 blocks carry no check of their content
    assert seen > (5 if name == "lz4" else 20)


@pytest.mark.parametrize("payload", [b"BZh9" + bytes(100), b"\x89LZO" + bytes(100), b"plain text" * 20])
def test_an_unknown_compression_is_named(image: Image, payload: bytes) -> None:
    said = refused(image(bzimage(payload)))
    assert payload[:4].hex() in said and "gzip, xz, zstd and lz4 are understood" in said


@compression
@pytest.mark.parametrize(
    "inner", [b"", b"no ELF file" * 50, elf()[:30], elf()[:100]], ids=["empty", "text", "cut", "cut2"]
)
def test_what_is_inside_is_no_elf_file(image: Image, name: str, inner: bytes) -> None:
    assert "no ELF file" in refused(image(bzimage(COMPRESSIONS[name](inner))))


def test_hostile_elf_files(image: Image) -> None:
    """Numbers of segments, offsets and sizes that point nowhere are refused in one line, whatever they are."""
    rng = random.Random(5)
    for _ in range(300):
        inner = bytearray(elf(size=0))
        for _ in range(rng.randrange(1, 6)):
            inner[rng.randrange(4, 64 + 56 + 40)] = rng.choice([0, 1, 0x7F, 0x80, 0xFF])
        path = image(bzimage(gzip.compress(bytes(inner), 1)))
        try:
            read_image(path)
        except BadInput as error:
            assert "\n" not in str(error)


def test_artifacts_of_a_file(image: Image, tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    path = image(bzimage(COMPRESSIONS["zstd"](elf())))
    kernel = find_kernel(f"path:{path}", Archive(store))
    made = kernel_artifacts(store, Archive(store), kernel)
    assert (made.release, made.build_id) == (RELEASE, ID.hex())
    assert made.vmlinuz.read_bytes() == path.read_bytes() and made.system_map is None
    assert kernel_artifacts(store, Archive(store), kernel) == made


def test_a_bad_file_makes_nothing(image: Image, tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    with pytest.raises(BadInput, match="no x86 kernel image"):
        find_kernel(f"path:{image(b'text')}", Archive(store))
    with pytest.raises(BadInput, match="no x86 kernel image"):
        kernel_artifacts(store, Archive(store), Kernel("path:text", path=image(b"text")))
    assert store.entries() == [] and not list((store.root / "tmp").iterdir())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(image: Image) -> None:
    path = image(b"x")
    path.chmod(0)
    assert "cannot be read: Permission denied" in refused(path)


def test_a_folder_is_no_image(tmp_path: Path) -> None:
    assert "cannot be read: Is a directory" in refused(tmp_path)
