"""`series.toml`: what a series is meant to do, and which files it has for which versions. All of it is optional.

title = "cpu.max: parse and apply under one lock"
intent = "fix"                      # fix, backport or defect (a planted fault)
component = "kernel"                # kernel, runc, crun, ...
mends = ["readback:cpu.max"]        # invariants that must hold with it, ids of known defects that must be gone
breaks = []                         # invariants that must fail with it (a defect)
upstream = ["commit 49217ea147df"]
line_endings = "keep"               # keep: as the target file has them; refuse: a difference is a conflict
files = ["0001-lock.patch"]         # in order; without it, what the folder holds

[parameters]                        # for whoever builds and boots it
"cglab.torn_us" = 20

[[branch]]                          # low <= version < high; an empty bound is open
low = "6.1"
high = "6.2"
files = ["6.1/0001-lock.patch"]
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from labs.errors import BadInput
from labs.series.names import danger
from labs.series.quilt import Entry
from labs.series.values import INTENTS, Where
from labs.version import in_range

NAME = "series.toml"
LINE_ENDINGS = ("keep", "refuse")
_TEXTS = ("title", "intent", "component", "line_endings")
_LISTS = ("mends", "breaks", "upstream", "files")


@dataclass(frozen=True)
class BranchFiles:
    low: str
    high: str
    entries: tuple[Entry, ...]


@dataclass(frozen=True)
class Manifest:
    title: str = ""
    intent: str = "fix"
    component: str = ""
    line_endings: str = "keep"
    mends: tuple[str, ...] = ()
    breaks: tuple[str, ...] = ()
    upstream: tuple[str, ...] = ()
    entries: tuple[Entry, ...] = ()
    branches: tuple[BranchFiles, ...] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict)


def read_manifest(text: str, name: str) -> Manifest:
    """Read a series.toml; BadInput names the key that is wrong."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"{name}: {error}") from None
    known = (*_TEXTS, *_LISTS, "branch", "parameters")
    for key in table:
        if key not in known:
            raise BadInput(f"{name}: key {key!r} is not known", mend=f"one of: {', '.join(known)}")
    texts = {key: _text(table[key], key, name) for key in _TEXTS if key in table}
    lists = {key: _texts(table.get(key, []), key, name) for key in _LISTS}
    for key, allowed in (("intent", INTENTS), ("line_endings", LINE_ENDINGS)):
        if texts.get(key, allowed[0]) not in allowed:
            raise BadInput(f"{name}: {key} = {texts[key]!r}", mend=f"one of: {', '.join(allowed)}")
    parameters, rows = table.get("parameters", {}), table.get("branch", [])
    if not isinstance(parameters, dict) or not isinstance(rows, list):
        raise BadInput(f"{name}: parameters is a table, branch a list of tables", mend="write [parameters], [[branch]]")
    return Manifest(
        title=texts.get("title", ""),
        intent=texts.get("intent", "fix"),
        component=texts.get("component", ""),
        line_endings=texts.get("line_endings", "keep"),
        mends=lists["mends"],
        breaks=lists["breaks"],
        upstream=lists["upstream"],
        entries=_entries(lists["files"], text, name),
        branches=tuple(_branch(row, text, name) for row in rows),
        parameters=parameters,
    )


def _text(value: object, key: str, name: str) -> str:
    if not isinstance(value, str):
        raise BadInput(f"{name}: {key} must be text, not {value!r}")
    return value


def _texts(value: object, key: str, name: str) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise BadInput(f"{name}: {key} must be a list of texts, not {value!r}")
    return tuple(_text(one, key, name) for one in value)


def _branch(row: object, text: str, name: str) -> BranchFiles:
    if not isinstance(row, dict) or not row.keys() <= {"low", "high", "files"} or not row.get("files"):
        raise BadInput(f"{name}: a branch has low, high and files, not {row!r}")
    low, high = (_text(row.get(key, ""), key, name) for key in ("low", "high"))
    try:
        in_range((0, 0, 0), low, high)
    except ValueError:
        raise BadInput(f"{name}: branch from {low!r} to {high!r}: not versions", mend="write them as 6.1.192") from None
    return BranchFiles(low, high, _entries(_texts(row["files"], "files", name), text, name))


def _entries(files: tuple[str, ...], text: str, name: str) -> tuple[Entry, ...]:
    """Where a file is named in the text serves messages only: the first line that holds its name."""
    lines = text.split("\n")
    made = []
    for file in files:
        line = next((number for number, one in enumerate(lines, 1) if file in one), 0)
        if why := danger(file):
            raise BadInput(f"{Where(name, line)}: {why}: refused", mend=f"patches stand beside or below {NAME}")
        made.append(Entry(file, Where(name, line), strip=None))
    return tuple(made)
