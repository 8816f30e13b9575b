"""The stable patch-id: names a change whatever its line numbers and white space; as `git patch-id --stable` has it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

_SPACE = re.compile(rb"[ \t\n\v\f\r]+")


def file_digest(text: bytes) -> bytes:
    """SHA-1 of one file's diff (header, then hunk bodies) without white space: git's unit of the sum."""
    return hashlib.sha1(_SPACE.sub(b"", text), usedforsecurity=False).digest()


def patch_id(digests: Iterable[bytes]) -> str:
    """The sum of the digests as little-endian numbers, so that the order of the files does not matter.

    Source: builtin/patch-id.c of git, flush_one_hunk().
    """
    total = sum(int.from_bytes(digest, "little") for digest in digests) % (1 << 160)
    return total.to_bytes(20, "little").hex()


def series_id(patch_ids: Iterable[str]) -> str:
    """One patch: its own id. Several: SHA-1 of the ids in order, one a line, because order matters between patches."""
    ids = list(patch_ids)
    if len(ids) == 1:
        return ids[0]
    return hashlib.sha1("".join(f"{one}\n" for one in ids).encode(), usedforsecurity=False).hexdigest()


def blob_digest(data: bytes, length: int = 40) -> str:
    """git's name of a file's content; 64 digits in SHA-256 repositories, 40 in all others."""
    name = "sha256" if length > 40 else "sha1"
    return hashlib.new(name, b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def is_blob(data: bytes, blob: str) -> bool:
    """Whether an `index` line's blob, full or abbreviated, is this content. Nothing said proves nothing."""
    return len(blob) >= 7 and set(blob) != {"0"} and blob_digest(data, len(blob)).startswith(blob)
