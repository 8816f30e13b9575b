"""Lists of patches: quilt's `series` with options and comments, and `series.conf` with guards."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from labs.series.names import danger
from labs.series.values import Problem, Where

_DISABLED = re.compile(r"#+\s*([^\s#]+\.(?:patch|diff|mbox))\b")


@dataclass(frozen=True)
class Entry:
    """One line: a file beside the list, the folders to strip (None: as the names tell) and whether to undo it."""

    file: str
    where: Where
    strip: int | None = 1
    reverse: bool = False


@dataclass(frozen=True)
class Listed:
    entries: tuple[Entry, ...]
    disabled: tuple[str, ...]  # notes
    problems: tuple[Problem, ...]


def quilt(text: str, name: str) -> Listed:
    """Read quilt's format: `file [-pN] [-R] [# comment]` a line; a file without -p is for `patch -p1`."""
    made: list[Entry | Problem] = []
    disabled: list[str] = []
    for number, line in enumerate(text.split("\n"), 1):
        where, line = Where(name, number), line.strip()
        if commented := _DISABLED.match(line):
            disabled.append(f"{where}: {commented[1]} is disabled")
        words = re.sub(r"(?:^|\s)#.*", "", line).split()
        if words:
            made.append(_entry(words, where))
    return _listed(made, disabled)


def _listed(made: Sequence[Entry | Problem], disabled: Sequence[str]) -> Listed:
    entries = tuple(one for one in made if isinstance(one, Entry))
    return Listed(entries, tuple(disabled), tuple(one for one in made if isinstance(one, Problem)))


def _entry(words: Sequence[str], where: Where) -> Entry | Problem:
    strip, reverse = 1, False
    if why := danger(words[0]):
        return Problem(where, f"{why}: refused", "patches stand beside or below their list")
    options = iter(words[1:])
    for option in options:
        level = next(options, "") if option == "-p" else option.removeprefix("-p")
        if option == "-R":
            reverse = True
        elif option.startswith("-p") and level == "ab":
            strip = 1
        elif option.startswith("-p") and level.isdecimal() and len(level) < 3:
            strip = int(level)
        else:
            return Problem(where, f"option {option} of {words[0]} is not known", "there are -pN and -R")
    return Entry(words[0], where, strip, reverse)


def guards(text: str, name: str) -> Listed:
    """Read `series.conf`: guards before a file switch it. No symbol is defined here, so `+x` is off and `-x` is on.

    A lone `-` is off always; so is one after a blank, which people write by mistake and never notice.
    """
    made: list[Entry | Problem] = []
    disabled: list[str] = []
    for number, line in enumerate(text.split("\n"), 1):
        where = Where(name, number)
        words = re.sub(r"(?:^|\s)#.*", "", line).split()
        marks = [word for word in words if word[0] in "+-"]
        files = [word for word in words if word[0] not in "+-"]
        if len(files) > 1 or (marks and not files):
            made.append(Problem(where, "not one file a line", "write: guards, then the name of a file"))
        elif files and any(mark == "-" or mark[0] == "+" for mark in marks):
            disabled.append(f"{where}: {files[0]} is disabled by {' '.join(marks)}")
        elif files:
            made.append(_entry(files, where))
    return _listed(made, disabled)
