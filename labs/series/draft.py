"""A file's part of a patch while it is read: raw names and modes, and the checks that make a FileDiff of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

from labs.series.hunks import MADE_ANEW
from labs.series.identity import is_blob
from labs.series.names import NO_FILE, danger, strip_of, stripped
from labs.series.values import Binary, FileDiff, Hunk, Problem, Where

SUBMODULE = 0o160000


@dataclass
class Draft:
    """Names as written, with their prefixes."""

    where: Where
    git: bool = False
    pair: tuple[str, str] | None = None  # of the `diff --git` line
    old: str | None = None  # of `---`
    new: str | None = None  # of `+++`
    marks: list[str] = field(default_factory=list)  # both as written, even if their time says that there is no file
    moved: dict[str, str] = field(default_factory=dict)  # `rename from` and its like: these carry no prefix
    modes: dict[str, int] = field(default_factory=dict)  # `old mode`, `new file mode`, ..., `index`
    blobs: tuple[str, str] = ("", "")
    similarity: int = 100
    hunks: list[Hunk] = field(default_factory=list)
    binary: tuple[Binary, Binary] | None = None
    header: list[bytes] = field(default_factory=list)

    @property
    def source(self) -> str | None:
        return self.moved.get("rename from", self.moved.get("copy from"))

    @property
    def target(self) -> str | None:
        return self.moved.get("rename to", self.moved.get("copy to"))

    def sides(self) -> tuple[str, str] | None:
        """Both names as written, `/dev/null` for no file; None where none can be read."""
        old = self.old or (self.pair[0] if self.pair else None)
        new = self.new or (self.pair[1] if self.pair else None)
        if old is None or new is None:
            return None
        return (
            NO_FILE if "new file mode" in self.modes else old,
            NO_FILE if "deleted file mode" in self.modes else new,
        )

    def own_strip(self) -> int | None:
        """How many folders to strip from these names, if they tell."""
        if self.pair and self.source is not None:
            return 0 if self.pair[0] == self.source else 1
        if self.pair:
            return strip_of(*self.pair)
        return strip_of(self.marks[0], self.marks[1]) if len(self.marks) == 2 else None

    def written(self) -> Iterator[str]:
        """Every name anywhere in this part: each must be safe, whichever a tool would use."""
        yield from self.marks
        yield from self.pair or ()
        yield from self.moved.values()


def finish(draft: Draft, strip: int) -> FileDiff | Problem:
    """The FileDiff, or the first thing that is wrong with it."""
    for name in draft.written():
        if why := danger(name):
            return Problem(draft.where, f"{why}: refused", "a patch may touch only files inside its tree")
    paths = _paths(draft, strip)
    if isinstance(paths, str):
        return Problem(draft.where, paths, MADE_ANEW)
    old, new = paths
    made = FileDiff(
        old=old,
        new=new,
        where=draft.where,
        hunks=tuple(draft.hunks),
        old_mode=_mode(draft, "old mode", "deleted file mode"),
        new_mode=_mode(draft, "new mode", "new file mode"),
        old_blob=draft.blobs[0],
        new_blob=draft.blobs[1],
        binary=draft.binary,
        copy="copy to" in draft.moved,
        header=tuple(draft.header) if draft.git else (),
    )
    what = _incomplete(draft, made) or _impossible(made)
    return Problem(draft.where, what, MADE_ANEW) if what else made


def _mode(draft: Draft, *words: str) -> int:
    return next((draft.modes[word] for word in (*words, "index") if word in draft.modes), 0)


def _paths(draft: Draft, strip: int) -> tuple[str, str] | str:
    """Both paths inside the tree, empty for no file; a text if the names make no sense."""
    sides = draft.sides()
    if sides is None:
        return f"no name of a file in {draft.header[0][:60].decode(errors='replace')!r}" if draft.header else "no name"
    if sides == (NO_FILE, NO_FILE):
        return "both names are /dev/null"
    old, new = (stripped(name, strip) for name in sides)
    if old is None or new is None:
        short = sides[0] if old is None else sides[1]
        return f"name {short!r} has no {strip} leading folders to strip"
    if what := _disagreement(draft, old, new, strip):
        return what
    if draft.git or not old or not new or old == new:
        return old, new
    if old in (f"{new}.orig", f"{new}~"):
        return new, new
    return f"names of two files, {old!r} and {new!r}, without git's header of a rename"


def _disagreement(draft: Draft, old: str, new: str, strip: int) -> str:
    """Names that contradict each other: tools would differ in what they touch."""
    pair = [stripped(name, strip) for name in draft.pair] if draft.pair else [old or new, new or old]
    marks = [stripped(name, strip) if name else None for name in (draft.old, draft.new)]
    moved = [stripped(name, max(strip - 1, 0)) if name else None for name in (draft.source, draft.target)]
    for said, mark, place in zip(pair, marks, moved, strict=True):
        for name in (mark, place):
            if name and name != said and draft.git:
                return f"names disagree: {said!r} and {name!r}"
    if ("new file mode" in draft.modes and marks[0]) or ("deleted file mode" in draft.modes and marks[1]):
        return f"names disagree: {new or old!r} is new or deleted, and has a name on both sides"
    if draft.git and old and new and old != new and draft.target is None:
        return f"names disagree: {old!r} and {new!r}, and no rename"
    return ""


def _incomplete(draft: Draft, made: FileDiff) -> str:
    """What shows that a part of the text is missing."""
    if ("old mode" in draft.modes) != ("new mode" in draft.modes):
        return "one of 'old mode' and 'new mode' is missing"
    if any((f"{word} from" in draft.moved) != (f"{word} to" in draft.moved) for word in ("rename", "copy")):
        return "one name of a rename is missing"
    if draft.old and not draft.new:
        return "a '---' line without its '+++' line"
    if made.binary:
        full = all(len(blob) in (40, 64) for blob in draft.blobs)
        return "" if full else "binary data without a full 'index' line"
    if made.hunks:
        return ""
    if draft.old:
        return "names of files without a hunk"
    if draft.similarity < 100 or (all(draft.blobs) and made.old and made.new):
        return "a changed file without a hunk"
    if not made.old or not made.new:
        blob = made.old_blob if made.old else made.new_blob
        return "" if is_blob(b"", blob) else "a file's content is missing"
    return "" if draft.moved or "new mode" in draft.modes else "a file without a hunk"


def _impossible(made: FileDiff) -> str:
    if SUBMODULE in (made.old_mode & 0o170000, made.new_mode & 0o170000):
        return "submodules are not supported"
    for path, side in ((made.old, "old"), (made.new, "new")):
        if not path and any(getattr(hunk, side) for hunk in made.hunks):
            return f"/dev/null with {side} lines"
    for before, after in itertools.pairwise(made.hunks):
        if after.old_start < before.old_start + before.old_count or after.new_start < before.new_start:
            return f"hunk at line {after.where.line} overlaps the one before, or is out of order"
    return ""
