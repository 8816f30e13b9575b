"""The build-id among ELF notes, as /sys/kernel/notes gives them."""

from __future__ import annotations

import pytest

from labs.guest import build_id


def note(owner: bytes, kind: int, value: bytes) -> bytes:
    name = owner + b"\0"
    head = len(name).to_bytes(4, "little") + len(value).to_bytes(4, "little") + kind.to_bytes(4, "little")
    return head + name + bytes(-len(name) % 4) + value + bytes(-len(value) % 4)


ID = bytes(range(20))
XEN = note(b"Xen", 3, b"\x01\x02\x03")
LINUX = note(b"Linux", 257, b"6.1.0")
GNU = note(b"GNU", 3, ID)
PROPERTY = note(b"GNU", 5, b"x" * 13)


@pytest.mark.parametrize("notes", [GNU, XEN + GNU, LINUX + XEN + PROPERTY + GNU + LINUX, note(b"GNUX", 3, b"no") + GNU])
def test_the_build_id_is_the_gnu_one(notes: bytes) -> None:
    assert build_id(notes) == ID.hex()


@pytest.mark.parametrize("notes", [b"", XEN, PROPERTY + LINUX, note(b"GNUX", 3, b"no"), b"\xff" * 40])
def test_no_build_id(notes: bytes) -> None:
    assert build_id(notes) == ""


def test_a_build_id_that_is_cut_is_none() -> None:
    whole = XEN + GNU
    assert {build_id(whole[:size]) for size in range(len(whole))} == {""}
