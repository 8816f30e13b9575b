"""The nouns: Series -> Patch -> FileDiff -> Hunk, and Problem. All frozen; text of diffs stays bytes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any

from labs.errors import BadInput
from labs.series.identity import Part, patch_id, series_id
from labs.version import in_range, upstream_of

INTENTS = ("fix", "backport", "defect")
LINK = 0o120000  # git's mode of a symbolic link


@dataclass(frozen=True)
class Where:
    """A place in an input: file and line, from 1. In a decoded mail the line counts in the decoded text."""

    file: str
    line: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


@dataclass(frozen=True)
class Problem:
    """What makes an input malformed, where, and what mends it."""

    where: Where
    what: str
    mend: str = ""

    def __str__(self) -> str:
        return f"{self.where}: {self.what}" + (f"; {self.mend}" if self.mend else "")


class Malformed(BadInput):
    """A series that must not touch any tree; `problems` holds all that is wrong with it."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        first = problems[0]
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        super().__init__(f"{first.where}: {first.what}{more}", mend=first.mend, evidence="\n".join(map(str, problems)))
        self.problems = problems


@dataclass(frozen=True)
class Hunk:
    """One hunk. A line is its tag (` `, `-`, `+`) and its bytes with the line end, which only a last line may lack."""

    old_start: int
    old_count: int
    new_start: int
    new_count: int
    section: str  # what the header says after the second @@: the function that the hunk is in
    lines: tuple[bytes, ...]
    where: Where

    @cached_property
    def old(self) -> tuple[bytes, ...]:
        return tuple(line[1:] for line in self.lines if line[:1] in b" -")

    @cached_property
    def new(self) -> tuple[bytes, ...]:
        return tuple(line[1:] for line in self.lines if line[:1] in b" +")

    def reversed(self) -> Hunk:
        swap = {b"-": b"+", b"+": b"-", b" ": b" "}
        lines = tuple(swap[line[:1]] + line[1:] for line in self.lines)
        return Hunk(self.new_start, self.new_count, self.old_start, self.old_count, self.section, lines, self.where)


@dataclass(frozen=True)
class Binary:
    """git's binary data in one direction: the whole file, or a delta against the old one."""

    delta: bool
    data: bytes


@dataclass(frozen=True)
class FileDiff:
    """What a patch does to one file. `old` and `new` are paths inside the tree, empty where there is no such file."""

    old: str
    new: str
    where: Where
    hunks: tuple[Hunk, ...] = ()
    old_mode: int = 0  # as git writes it, 0o100644; 0: not said
    new_mode: int = 0
    old_blob: str = ""
    new_blob: str = ""
    binary: tuple[Binary, Binary] | None = None  # forward, backward
    copy: bool = False
    undone: bool = False  # turned around: to undo a copy is no copy
    header: tuple[bytes, ...] = ()  # git's own header lines, without `index`; empty for other diffs

    @property
    def path(self) -> str:
        return self.new or self.old

    def reversed(self) -> FileDiff:
        return FileDiff(
            self.new,
            self.old,
            self.where,
            tuple(hunk.reversed() for hunk in self.hunks),
            self.new_mode,
            self.old_mode,
            self.new_blob,
            self.old_blob,
            (self.binary[1], self.binary[0]) if self.binary else None,
            self.copy,
            not self.undone,
        )

    def _header(self) -> bytes:
        if self.header:
            return b"\n".join(self.header)
        old, new = (f"{side}/{name or self.path}" for side, name in (("a", self.old), ("b", self.new)))
        lines = [f"diff --git {old} {new}"]
        lines += [] if self.old else [f"new file mode {self.new_mode or 0o100644:o}"]
        lines += [] if self.new else [f"deleted file mode {self.old_mode or 0o100644:o}"]
        if self.hunks:
            lines += [f"--- {old if self.old else '/dev/null'}", f"+++ {new if self.new else '/dev/null'}"]
        return "\n".join(lines).encode(errors="surrogateescape")

    def part(self) -> Part:
        """What git patch-id hashes of this file."""
        if self.binary:
            return Part(self._header(), (self.old_blob + self.new_blob).encode(), binary=True)
        return Part(self._header(), b"".join(line for hunk in self.hunks for line in hunk.lines))


@dataclass(frozen=True)
class Patch:
    """One patch as found. `message` is what a commit would say; `raw` the bytes of the mail or file it came from."""

    subject: str
    author: str
    message: str
    files: tuple[FileDiff, ...]
    raw: bytes = field(repr=False)
    where: Where
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()

    @cached_property
    def id(self) -> str:
        """Stable patch-id of the diff in git's form, whatever form it was found in."""
        return patch_id(diff.part() for diff in self.files)

    def reversed(self) -> Patch:
        return dataclasses.replace(self, files=tuple(diff.reversed() for diff in self.files))


@dataclass(frozen=True)
class Branch:
    """The patches for versions `low <= version < high`; an empty bound is open."""

    low: str
    high: str
    patches: tuple[Patch, ...]


@dataclass(frozen=True)
class Series:
    """An ordered set of patches to one component, with what it is meant to do."""

    name: str
    patches: tuple[Patch, ...]
    title: str = ""
    component: str = "kernel"
    intent: str = "fix"
    mends: tuple[str, ...] = ()
    breaks: tuple[str, ...] = ()
    upstream: tuple[str, ...] = ()
    parameters: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    line_endings: str = "keep"  # keep: take the target file's; refuse: a difference is a conflict
    branches: tuple[Branch, ...] = ()
    problems: tuple[Problem, ...] = ()  # of the series as a whole, as a missing patch
    notes: tuple[str, ...] = ()  # what was left out on purpose: covers, replies, disabled entries

    @cached_property
    def id(self) -> str:
        """Stable patch-id of the whole: the patch's own for one, the digest of all in order for several."""
        return series_id(patch.id for patch in self.patches)

    def for_version(self, version: str) -> Series:
        """The series as it is for a version such as `6.1.192-3`; BadInput where it has no patches for it."""
        for branch in self.branches:
            if in_range(upstream_of(version), branch.low, branch.high):
                return dataclasses.replace(self, patches=branch.patches, branches=())
        if self.branches and not self.patches:
            known = ", ".join(f"{branch.low or 'oldest'} up to {branch.high or 'newest'}" for branch in self.branches)
            raise BadInput(f"series {self.name} has no patches for {version}", mend=f"it has some for: {known}")
        return dataclasses.replace(self, branches=())


def require_patches(series: Series) -> None:
    """BadInput for a series that has patches only for versions and none was chosen: nothing must not look clean."""
    if not series.patches and not series.problems:
        raise BadInput(f"series {series.name} has no patches of its own", mend="choose a version with for_version")


def by_component(series: tuple[Series, ...]) -> dict[str, Series]:
    """Series that patch the same component become one, in the order given, so that they are examined on each other."""
    merged: dict[str, Series] = {}
    for one in series:
        first = merged.get(one.component)
        merged[one.component] = one if first is None else _joined(first, one)
    return merged


def _joined(first: Series, second: Series) -> Series:
    if first.branches or second.branches:
        raise BadInput("series with branches cannot be joined", mend="choose a version with for_version first")
    defect = "defect" in (first.intent, second.intent)
    return Series(
        name=f"{first.name}+{second.name}",
        title=f"{first.title} + {second.title}",
        component=first.component,
        intent="defect" if defect else first.intent,
        line_endings="refuse" if "refuse" in (first.line_endings, second.line_endings) else "keep",
        parameters=MappingProxyType({**first.parameters, **second.parameters}),
        **{
            name: getattr(first, name) + getattr(second, name)
            for name in ("patches", "mends", "breaks", "upstream", "problems", "notes")
        },
    )
