"""git's binary patches: base 85 over zlib, the file as a whole or as a delta. Source: git, apply.c and delta.h."""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Sequence

from labs.series.values import Binary

LIMIT = 64 << 20  # bytes of one file, and of all binary data of a patch: it must not fill the memory
_START = re.compile(rb"(literal|delta) (\d{1,9})\s*")


def read_binary(lines: Sequence[bytes], at: int, room: int) -> tuple[tuple[Binary, Binary] | None, int]:
    """Read both directions after `GIT binary patch` at line `at`, and the index after them.

    None if damaged, or if they unpack to more than `room` bytes: a few zeros can be packed a thousand times.
    """
    forward, index = _one(lines, at + 1, room)
    if forward is None:
        return None, index
    backward, index = _one(lines, index, room - len(forward.data))
    return ((forward, backward) if backward is not None else None), index


def _one(lines: Sequence[bytes], at: int, room: int) -> tuple[Binary | None, int]:
    found = _START.fullmatch(lines[at]) if at < len(lines) else None
    if not found:
        return None, at
    packed, index = bytearray(), at + 1
    while index < len(lines) and lines[index].strip():
        chunk = _line(lines[index].rstrip(b"\r\n"))
        if chunk is None:
            return None, index
        packed += chunk
        index += 1
    if index == len(lines) or int(found[2]) > room:
        return None, index  # an empty line ends the data: without it the file is cut
    inflate = zlib.decompressobj()
    try:
        data = inflate.decompress(bytes(packed), int(found[2]) + 1)
    except zlib.error:
        return None, index
    whole = inflate.eof and len(data) == int(found[2])
    return (Binary(found[1] == b"delta", data) if whole else None), index + 1


def _line(line: bytes) -> bytes | None:
    """One line: its first letter is the number of bytes, A-Z for 1 to 26, a-z for 27 to 52."""
    letter = line[0]
    size = letter - 64 if 65 <= letter <= 90 else letter - 70 if 97 <= letter <= 122 else 0
    try:
        data = base64.b85decode(line[1:])
    except ValueError:
        return None
    return data[:size] if 0 < size <= len(data) < size + 4 else None


def result(binary: Binary, old: bytes) -> bytes | None:
    """The file after the patch; None if the delta was not made for `old`."""
    return _patched(binary.data, old) if binary.delta else binary.data


def _size(delta: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = delta[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def _patched(delta: bytes, old: bytes) -> bytes | None:
    made = bytearray()
    try:
        old_size, at = _size(delta, 0)
        new_size, at = _size(delta, at)
        if old_size != len(old) or new_size > LIMIT:
            return None
        while at < len(delta):
            order = delta[at]
            at += 1
            if order & 128:  # copy from the old file: four bits of offset bytes, three of size bytes
                numbers = [0] * 7
                for bit in range(7):
                    if order >> bit & 1:
                        numbers[bit] = delta[at]
                        at += 1
                start = int.from_bytes(bytes(numbers[:4]), "little")
                size = int.from_bytes(bytes(numbers[4:]), "little") or 0x10000
                if start + size > len(old):
                    return None
                made += old[start : start + size]
            elif order:
                made += delta[at : at + order]
                at += order
            else:
                return None
            if len(made) > new_size:
                return None
    except IndexError:
        return None
    return bytes(made) if len(made) == new_size else None
