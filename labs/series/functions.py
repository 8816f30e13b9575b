"""Which C functions a series changes: those whose text differs before and after it, however the hunks are cut."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from labs.series.examining import steps
from labs.series.sections import begins_function
from labs.series.tree import Entry, View
from labs.series.values import Series

SOURCES = (".c", ".h")
_NAME = re.compile(rb"([A-Za-z_]\w*)\s*\(")
_SYSCALL = re.compile(rb"(?:COMPAT_)?SYSCALL_DEFINE\d\((\w+)")
_COMMENT = re.compile(rb"/\*.*?\*/|//[^\n]*", re.DOTALL)
_SPACE = re.compile(rb"\s+")


@dataclass(frozen=True)
class Changed:
    """A function that a patch changes or adds. `patch` counts from 1."""

    patch: int
    path: str
    function: str


def changed_functions(series: Series, tree: Path) -> tuple[Changed, ...]:
    """The functions of C files that are other than before, patch by patch; comments and white space do not count.

    Functions that go are not listed: nothing of them can run.
    """
    view, found = View(tree), []
    done, _ = steps(series, view)
    for number, one in enumerate(done, 1):
        for path in sorted(one.changes):
            if path.endswith(SOURCES):
                before, after = _functions(view.get(path)), _functions(one.changes[path])
                found += [Changed(number, path, name) for name in after if after[name] != before.get(name)]
        view = view.with_changes(one.changes)
    return tuple(found)


def _functions(entry: Entry | None) -> dict[str, bytes]:
    """Name -> the function's text, without what compiles to nothing."""
    found: dict[str, bytes] = {}
    for name, text in _bodies((entry.data if entry else b"").split(b"\n")):
        found[name] = found.get(name, b"") + _SPACE.sub(b" ", _COMMENT.sub(b" ", text))  # one a branch of #ifdef
    return found


def _bodies(lines: list[bytes]) -> Iterator[tuple[str, bytes]]:
    """Each definition: from the line that begins it, in the first column, to a brace in the first column."""
    start = -1
    for at, line in enumerate(lines):
        if begins_function(line) or line.startswith((b"#", b"/*")):
            start = at if begins_function(line) and not line.rstrip().endswith(b";") else -1
        elif line.startswith(b"}") and start >= 0:
            text = b"\n".join(lines[start : at + 1])
            if name := _name(text):
                yield name, text
            start = -1


def _name(text: bytes) -> str:
    """The function's name; empty for a structure, an array, a table."""
    head = text.partition(b"{")[0]
    if called := _SYSCALL.match(head):
        return f"__do_sys_{called[1].decode()}"
    names = [found for found in _NAME.findall(head) if not found.startswith(b"__attribute__")]
    return names[0].decode() if names and b"=" not in head else ""
