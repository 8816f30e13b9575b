"""Hunks as they stand in text: the header's counts against the body, because tools believe the header."""

from __future__ import annotations

import re
from collections.abc import Sequence

from labs.series.values import Hunk, Problem, Where

_HEADER = re.compile(rb"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@ ?(.*)", re.DOTALL)
_TAGS = (b" ", b"+", b"-", b"\\")
MADE_ANEW = "make the patch anew with git format-patch"


def is_signature(lines: Sequence[bytes], at: int) -> bool:
    """Whether line `at` is the `-- ` under a mail and not a removed `- `: what follows is no line of a diff."""
    if at >= len(lines) or lines[at].rstrip(b"\r\n") not in (b"-- ", b"--"):
        return False
    after = lines[at + 1] if at + 1 < len(lines) else b""
    return bool(after.strip()) and not after.startswith((*_TAGS, b"@@", b"diff "))


def _starts_file(lines: Sequence[bytes], at: int) -> bool:
    return lines[at].startswith(b"--- ") and at + 1 < len(lines) and lines[at + 1].startswith(b"+++ ")


def _wrong(line: bytes, missing: str) -> tuple[str, str]:
    """What is wrong with a line that should have been part of a hunk's body, and the mend."""
    if not line or line.startswith((b"diff ", b"@@", b"-- ", b"--\n", b"From ")):
        return f"the hunk ends early: its header promises {missing} more", "the file is cut or was edited by hand"
    if line[:1] == b"\t":
        return "a line of the hunk begins with a tab: white space was lost on the way", MADE_ANEW
    if not missing:
        return "the hunk's body is longer than its header says", "correct the counts, or " + MADE_ANEW
    return f"not a line of a hunk: {line[:40].decode(errors='replace').rstrip()!r}", MADE_ANEW


def read_hunk(lines: Sequence[bytes], at: int, where: Where) -> tuple[Hunk | None, int, Problem | None]:
    """Read the hunk whose header is line `at`; returns it, the index after it, and what is wrong with it.

    An empty line stands for an empty line of context: mailers strip its space.
    """
    header = _HEADER.fullmatch(lines[at].rstrip(b"\r\n"))
    if not header:
        return None, at + 1, Problem(where, "hunk header cannot be read", MADE_ANEW)
    old_start, new_start = int(header[1]), int(header[3])
    old_count, new_count = (int(count) if count is not None else 1 for count in (header[2], header[4]))
    body: list[bytes] = []
    old, new = old_count, new_count  # lines still to come
    index = at + 1
    while old > 0 or new > 0 or (index < len(lines) and lines[index].startswith(b"\\")):
        line = lines[index] if index < len(lines) else b""
        line = b" " + line if line in (b"\n", b"\r\n") else line
        tag = line[:1]
        if tag not in _TAGS or not tag or is_signature(lines, index):
            return None, index, _problem(where, index - at, line, old, new)
        if tag == b"\\":  # "\ No newline at end of file", in whatever language diff spoke
            if body:
                body[-1] = body[-1].removesuffix(b"\n")
        else:
            old -= tag in b" -"
            new -= tag in b" +"
            body.append(line)
            if not line.endswith(b"\n"):
                mend = "add the line end if the line is whole, otherwise " + MADE_ANEW
                return None, index + 1, Problem(_below(where, index - at), "the patch ends inside a line", mend)
        if old < 0 or new < 0:
            return None, index + 1, _problem(where, index - at, line, 0, 0)
        index += 1
    longer = index < len(lines) and lines[index].startswith((b" ", b"+", b"-"))
    if longer and lines[index].rstrip(b"\r\n") not in (b"-- ", b"--") and not _starts_file(lines, index):
        return None, index, _problem(where, index - at, lines[index], 0, 0)
    section = (header[5] or b"").decode(errors="replace").strip()
    hunk = Hunk(old_start, old_count, new_start, new_count, section, tuple(body), where)
    return hunk, index, _inner(hunk)


def _below(where: Where, lines: int) -> Where:
    return Where(where.file, where.line + lines)


def _problem(where: Where, offset: int, line: bytes, old: int, new: int) -> Problem:
    missing = " and ".join(f"{count} {side} lines" for count, side in ((old, "old"), (new, "new")) if count > 0)
    return Problem(_below(where, offset), *_wrong(line, missing))


def _inner(hunk: Hunk) -> Problem | None:
    """What no counting shows: a first line that cannot be, a line without its end in the middle."""
    if (hunk.old_start == 0 and hunk.old_count) or (hunk.new_start == 0 and hunk.new_count):
        return Problem(hunk.where, "hunk header has lines at line 0", MADE_ANEW)
    for side in (hunk.old, hunk.new):
        if any(not line.endswith(b"\n") for line in side[:-1]):
            return Problem(hunk.where, "'No newline at end of file' in the middle of a hunk", MADE_ANEW)
    return None
