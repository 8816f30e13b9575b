"""Functions as hunk headers name them: the nearest line above that begins in the first column with a letter."""

from __future__ import annotations

import re
from collections.abc import Sequence

_NAME = re.compile(r"([A-Za-z_]\w*)\(")
_TYPE = re.compile(r"(?:(?:static|const|pub|typedef) )*(?:struct|enum|union|class|impl|type|func|fn|def|interface) \w")
_LABEL = re.compile(r"[A-Za-z_]\w*:(?!:)\s*(?:$|/[/*])")
FAR = 20_000  # lines: no function is longer
_SHORTEST = 20  # characters: diff cuts a section at 40 or 80, so a long one may be the beginning of its line


def begins_function(line: bytes) -> bool:
    """git's and diff's own rule, less labels, which git's driver for C leaves out too (userdiff.c)."""
    first = line[:1]
    return (first.isalpha() or first in (b"_", b"$")) and not _LABEL.match(line[:200].decode(errors="replace"))


def names_function(section: str) -> bool:
    """Whether a section speaks of a function or type; in prose, Kconfig or a Makefile it is just some line."""
    return bool(_NAME.search(section) or _TYPE.match(section))


def same(section: str, line: str) -> bool:
    """Whether a section of a header is this line, or the line declares the same function in other words."""
    section, line = section.rstrip("\ufffd").strip(), line.strip()
    if section == line or (len(section) >= _SHORTEST and line.startswith(section)):
        return True
    ours, theirs = _NAME.search(section), _NAME.search(line)
    # the name in front of the bracket of SYSCALL_DEFINE3(read, ...) is no function's own
    return bool(ours and theirs and ours[1] == theirs[1] and ours[1].upper() != ours[1])


def around(lines: Sequence[bytes], index: int, section: str = "") -> tuple[bool, str]:
    """The function that line `index` (from 0) is in, and whether it is the one that `section` names."""
    for at in range(index - 1, max(-1, index - 1 - FAR), -1):
        line = lines[at]
        text = line[:400].decode(errors="replace").rstrip()
        starts = begins_function(line)
        if section and (starts or line[:1].isspace()) and text.strip() and _right(section, text, starts):
            return True, text
        if starts:
            return False, text
    return False, ""


def _right(section: str, text: str, starts: bool) -> bool:
    """Other languages indent what git names (`def` in a class): there only the very words count."""
    return same(section, text) if starts else len(section) >= 4 and section == text.strip()[: len(section)]


def elsewhere(lines: Sequence[bytes], section: str) -> int:
    """The line, from 1, where the function of `section` begins; 0 where the file has none such."""
    for number, line in enumerate(lines, 1):
        if begins_function(line) and same(section, line[:400].decode(errors="replace")):
            return number
    return 0
