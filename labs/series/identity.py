"""The stable patch-id: names a change whatever its line numbers and white space; as `git patch-id --stable` has it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass

_SPACE = re.compile(rb"[ \t\n\v\f\r]+")


@dataclass(frozen=True)
class Part:
    """What git patch-id reads of a file: header lines without `index`, then hunk bodies or the names of both blobs."""

    header: bytes
    body: bytes
    binary: bool = False


def patch_id(parts: Iterable[Part]) -> str:
    """The sum of the files' SHA-1s as little-endian numbers, so that the order of the files does not matter.

    Three things in it look odd and are git's: a file without hunks is hashed together with the next one, after binary
    data the `diff` line is left out, and binary data at the end adds the hash of nothing.
    Source: get_one_patchid() in builtin/patch-id.c, git 2.39.
    """
    texts = [b""]
    after_hunks = after_binary = False
    for part in parts:
        if after_hunks:
            texts.append(b"")
        texts[-1] += part.header.partition(b"\n")[2] if after_binary else part.header
        texts[-1] += part.body
        if part.binary:
            texts.append(b"")
        after_hunks, after_binary = bool(part.body) and not part.binary, part.binary
    return _sum(hashlib.sha1(_SPACE.sub(b"", text), usedforsecurity=False).digest() for text in texts)


def _sum(digests: Iterable[bytes]) -> str:
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
