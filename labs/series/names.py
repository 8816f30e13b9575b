"""File names as diffs write them: quoted, stamped with a time, with leading folders to strip; never out of the tree."""

from __future__ import annotations

import re

NO_FILE = "/dev/null"
_ESCAPES = {"a": 7, "b": 8, "t": 9, "n": 10, "v": 11, "f": 12, "r": 13, '"': 34, "\\": 92}
_QUOTED = re.compile(rb'"((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(rb"\\([0-3][0-7]{2}|.)", re.DOTALL)
_STAMP = re.compile(r"\s(?:\d{4}-\d\d-\d\d \d\d:\d\d|[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d )[^/]*$")
_EPOCH = re.compile(r"(?:1970-01-01|1969-12-31|Jan  1 [\d:]+ 1970|Dec 31 [\d:]+ 1969)")


def unquoted(field: bytes) -> tuple[str, bytes]:
    """The name at the start of `"C-quoted name" rest`, and the rest; a bad escape is kept as it stands."""
    found = _QUOTED.match(field)
    if not found:
        return field.decode(errors="surrogateescape"), b""

    def byte(escape: re.Match[bytes]) -> bytes:
        text = escape[1].decode("latin-1")
        return bytes([int(text, 8)]) if text.isdigit() and len(text) == 3 else bytes([_ESCAPES.get(text, ord(text))])

    return _ESCAPE.sub(byte, found[1]).decode(errors="surrogateescape"), field[found.end() :]


def file_name(field: bytes) -> tuple[str, bool]:
    """The name in a `--- ` or `+++ ` line, without its time; and whether that time says that there is no such file.

    >>> file_name(b"a/x.c\\t2026-01-02 03:04:05"), file_name(b"b/gone\\t1970-01-01 00:00:00.000000000 +0000")
    (('a/x.c', False), ('b/gone', True))
    """
    field = field.rstrip(b"\r\n")
    if field.startswith(b'"'):
        return unquoted(field)[0], False
    name, _, stamp = field.decode(errors="surrogateescape").partition("\t")
    found = None if stamp else _STAMP.search(name)
    if found:
        name, stamp = name[: found.start()], found[0]
    return name.rstrip(" "), bool(_EPOCH.search(stamp))


def git_pair(field: bytes) -> tuple[str, str] | None:
    """Both names of a `diff --git` line, or None where spaces make it impossible to tell them apart."""
    field = field.rstrip(b"\r\n")
    if field.startswith(b'"'):
        first, rest = unquoted(field)
        return first, unquoted(rest.lstrip(b" "))[0]
    if field.endswith(b'"'):
        first_raw, _, rest = field.partition(b' "')
        return first_raw.decode(errors="surrogateescape"), unquoted(b'"' + rest)[0]
    text = field.decode(errors="surrogateescape")
    if text.count(" ") == 1:
        first, _, second = text.partition(" ")
        return first, second
    middle = len(text) // 2  # the same name twice: the space between is the middle
    first, second = text[:middle], text[middle + 1 :]
    same = text[middle : middle + 1] == " " and first.partition("/")[2] == second.partition("/")[2]
    return (first, second) if same else None


def danger(name: str) -> str:
    """Why a name as written must not be used, or nothing. Looked at before stripping: `../x` is no way to write `x`."""
    if name == NO_FILE:
        return ""
    if name.startswith("/"):
        return f"path {name!r} is absolute"
    parts = name.split("/")
    if ".." in parts:
        return f"path {name!r} leaves the tree"
    if any(part in ("", ".") for part in parts):
        return f"path {name!r} has an empty part"
    if any(part.lower() == ".git" for part in parts):
        return f"path {name!r} is inside git's own folder"
    if any(ord(char) < 32 or ord(char) == 127 for char in name):
        return f"path {name!r} holds control characters"
    return ""


def strip_of(old: str, new: str) -> int | None:
    """How many leading folders two names carry that are not in the tree; None where one name alone does not tell."""
    if NO_FILE in (old, new):
        return 1 if (new if old == NO_FILE else old).startswith(("a/", "b/")) else None
    first, second = old.partition("/"), new.partition("/")
    if not first[1] or not second[1]:
        return 0
    return 0 if first[0] == second[0] else 1


def stripped(name: str, strip: int) -> str | None:
    """A name without its first `strip` folders, empty for no file; None if it has no more than those.

    >>> stripped("a/kernel/fork.c", 1), stripped("fork.c", 1)
    ('kernel/fork.c', None)
    """
    if name == NO_FILE:
        return ""
    parts = name.split("/")
    return "/".join(parts[strip:]) if len(parts) > strip else None
