"""Bytes as found -> bytes with line ends of one kind: byte order marks, UTF-16, patches in CRLF."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable

_WIDE = ((codecs.BOM_UTF32_LE, "UTF-32"), (codecs.BOM_UTF16_LE, "UTF-16"), (codecs.BOM_UTF16_BE, "UTF-16"))
_STRUCTURE = re.compile(rb"^(?:diff |--- |\+\+\+ |@@ )[^\n]*\n", re.MULTILINE)
CRLF_NOTE = "patch CRLF"


def wide_encoding(data: bytes) -> str:
    """Name of an encoding that is not of bytes, if this is one; a diff saved so has lost the bytes that it meant."""
    named = next((name for mark, name in _WIDE if data.startswith(mark)), "")
    if named:
        return named
    start = data[:4096]
    zeros = max(start[0::2].count(0), start[1::2].count(0))
    return "UTF-16 without a mark" if zeros * 4 > len(start) else ""  # half of the bytes of ASCII in UTF-16


def without_mark(data: bytes) -> bytes:
    return data.removeprefix(codecs.BOM_UTF8)


def crlf_throughout(data: bytes) -> bool:
    """Whether the lines that make a diff (or all lines, where there is no diff) end in CRLF: it was converted.

    A diff of a CRLF file has such ends in hunk bodies only.
    """
    lines: Iterable[bytes] = _STRUCTURE.findall(data) or data.splitlines(keepends=True)
    return b"\r\n" in data and all(line.endswith(b"\r\n") for line in lines if line.endswith(b"\n"))


def unix_lines(data: bytes) -> tuple[bytes, bool]:
    """The data with LF ends if it was converted to CRLF as a whole; and whether it was."""
    if not crlf_throughout(data):
        return data, False
    return data.replace(b"\r\n", b"\n"), True
