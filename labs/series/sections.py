"""Functions as hunk headers name them: the nearest line above that begins in the first column with a letter."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from functools import cached_property

_NAME = re.compile(r"([A-Za-z_]\w*)\(")
_TYPE = re.compile(r"(?:(?:static|const|pub|typedef) )*(?:struct|enum|union|class|impl|type|func|fn|def|interface) \w")
_LABEL = re.compile(r"[A-Za-z_]\w*:(?!:)\s*(?:$|/[/*])")
LONG = 400  # bytes of a line that are looked at
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


class Sections:
    """The functions of one file, found once; lines count from 0."""

    def __init__(self, lines: Sequence[bytes]) -> None:
        self._lines = lines
        self._named: dict[str, list[int]] = {}

    @cached_property
    def _starts(self) -> list[int]:
        return [at for at, line in enumerate(self._lines) if begins_function(line)]

    def _text(self, at: int) -> str:
        return self._lines[at][:LONG].decode(errors="replace").rstrip()

    def homes(self, section: str) -> list[int]:
        """The lines that `section` names. Other languages indent what git names (`def` in a class): there only the very
        words count."""
        if section not in self._named:
            words = section.rstrip("\ufffd").strip().encode()
            found = [at for at in self._starts if same(section, self._text(at))]
            if len(words) >= 4:
                lines = enumerate(self._lines)
                found += [at for at, line in lines if line[:1].isspace() and line.strip().startswith(words)]
            self._named[section] = sorted(found)
        return self._named[section]

    def around(self, index: int, section: str = "") -> tuple[bool, str]:
        """Whether line `index` is in what `section` names, and the function that it is in."""
        start = _last_before(self._starts, index)
        home = _last_before(self.homes(section), index) if section else -1
        nearest = max(start, home)
        return home >= 0 and home >= start, self._text(nearest) if nearest >= 0 else ""


def _last_before(numbers: Sequence[int], limit: int) -> int:
    at = bisect_left(numbers, limit)
    return numbers[at - 1] if at else -1
