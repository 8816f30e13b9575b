"""One patch on one view of a tree: the state of every file, and of the patch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from labs.series.binary import result as applied_to
from labs.series.content import KEEP, Change, Landing, change
from labs.series.identity import is_blob
from labs.series.plain import CRLF_NOTE
from labs.series.tree import Entry, Outside, Unfit, View, link_danger
from labs.series.values import LINK, FileDiff, Patch

# The worst state of a file is the patch's; a patch is worth applying only if every file is.
WORST = ("malformed", "target absent", "conflict", "ambiguous", "partly applied")


@dataclass(frozen=True)
class FileOutcome:
    """`state` is apply, done or one of WORST; `changes` are the files after."""

    state: str
    detail: str = ""
    changes: tuple[tuple[str, Entry | None], ...] = ()
    landings: tuple[Landing, ...] = ()


@dataclass(frozen=True)
class Step:
    """A patch's state as people see it, why, and what it would change."""

    state: str
    detail: str
    changes: dict[str, Entry | None]
    landings: tuple[Landing, ...]

    @property
    def fuzz(self) -> int:
        return max((landing.fuzz for landing in self.landings), default=0)

    @property
    def applicable(self) -> bool:
        return self.state == "clean" or self.state.startswith(("offset", "fuzz"))


def step(patch: Patch, view: View, policy: str = KEEP) -> Step:
    """What `patch` would do to `view`, which stays as it is. `policy` is the series' line_endings."""
    if patch.problems:
        return Step("malformed", "; ".join(str(problem) for problem in patch.problems), {}, ())
    outcomes = [_file(diff, view, policy, CRLF_NOTE in patch.notes) for diff in patch.files]
    states = [outcome.state for outcome in outcomes]
    detail = "; ".join(dict.fromkeys(outcome.detail for outcome in outcomes if outcome.detail))
    worst = next((state for state in WORST if state in states), "")
    if worst:
        return Step(worst, detail, {}, ())
    if set(states) == {"done"}:
        return Step("already applied", detail, {}, ())
    if "done" in states:
        there = ", ".join(d.path for d, state in zip(patch.files, states, strict=True) if state == "done")
        missing = ", ".join(d.path for d, state in zip(patch.files, states, strict=True) if state != "done")
        return Step("partly applied", f"{patch.where}: there already: {there}; not there: {missing}", {}, ())
    changes = [one for outcome in outcomes for one in outcome.changes]
    landings = tuple(landing for outcome in outcomes for landing in outcome.landings)
    merged = {
        **{path: entry for path, entry in changes if entry is None},
        **{p: e for p, e in changes if e is not None},
    }
    if inside := _inside_a_file(merged):
        return Step("malformed", f"{patch.where}: {inside}: refused", {}, ())
    return Step(_state(landings), detail, merged, landings)


def _inside_a_file(changes: dict[str, Entry | None]) -> str:
    """A patch that makes a file or link and another file below it."""
    made = {path for path, entry in changes.items() if entry is not None}
    for path in made:
        above = next((str(parent) for parent in PurePosixPath(path).parents if str(parent) in made), "")
        if above:
            return f"{path} would be inside {above}, which is no folder"
    return ""


def _state(landings: Sequence[Landing]) -> str:
    fuzz = max((landing.fuzz for landing in landings), default=0)
    offset = max((landing.offset for landing in landings), key=abs, default=0)
    return f"fuzz {fuzz}" if fuzz else f"offset {offset}" if offset else "clean"


def _kind(diff: FileDiff) -> Callable[[FileDiff, View, str, bool], FileOutcome]:
    if diff.copy and diff.undone:
        return _uncopied
    if not diff.old:
        return _added
    if not diff.new:
        return _deleted
    return _changed if diff.old == diff.new else _moved


def _file(diff: FileDiff, view: View, policy: str, converted: bool) -> FileOutcome:
    try:
        return _kind(diff)(diff, view, policy, converted)
    except Outside as error:
        return FileOutcome("malformed", f"{diff.where}: {error}: refused")
    except Unfit as error:
        return FileOutcome("conflict", f"{diff.where}: {error}")


def _permissions(diff: FileDiff, old: int) -> int:
    """The mode after: only the executable bits follow the patch, as in git, everything else stays."""
    if diff.new_mode & 0o170000 == LINK:
        return LINK
    base = 0o644 if old == LINK else old
    if not diff.new_mode or (diff.old_mode == diff.new_mode and old != LINK):
        return base
    return base | (base & 0o444) >> 2 if diff.new_mode & 0o100 else base & ~0o111


def _whole(diff: FileDiff) -> bytes:
    """The content of a new file, or with the diff reversed of a deleted one."""
    if diff.binary:
        return applied_to(diff.binary[0], b"") or b""
    return b"".join(line for hunk in diff.hunks for line in hunk.new)


def _added(diff: FileDiff, view: View, policy: str, converted: bool) -> FileOutcome:
    data, there = _whole(diff), view.get(diff.new)
    if diff.binary and not is_blob(data, diff.new_blob):
        return FileOutcome("malformed", f"{diff.where}: binary data of {diff.new} does not make what 'index' says")
    mode = LINK if diff.new_mode & 0o170000 == LINK else 0o755 if diff.new_mode & 0o100 else 0o644
    if mode == LINK and (why := link_danger(diff.new, data)):
        return FileOutcome("malformed", f"{diff.where}: {why}: refused")
    if there is None:
        return FileOutcome("apply", "", ((diff.new, Entry(data, mode)),))
    if there.is_link == (mode == LINK) and _equal(there.data, data):
        return FileOutcome("done", f"{diff.new} is there already")
    return FileOutcome("conflict", f"{diff.where}: {diff.new} exists, with other content than the patch makes")


def _equal(one: bytes, other: bytes) -> bool:
    return one == other or one.replace(b"\r\n", b"\n") == other.replace(b"\r\n", b"\n")


def _deleted(diff: FileDiff, view: View, policy: str, converted: bool) -> FileOutcome:
    there = view.get(diff.old)
    if there is None:
        return FileOutcome("done", f"{diff.old} is gone already")
    whole = is_blob(there.data, diff.old_blob) if diff.binary else _equal(there.data, _whole(diff.reversed()))
    if whole:
        return FileOutcome("apply", "", ((diff.old, None),))
    return FileOutcome("conflict", f"{diff.where}: {diff.old} to delete has other content than the patch says")


def _content(diff: FileDiff, entry: Entry, policy: str, converted: bool) -> Change:
    """What becomes of a file's bytes; `apply` with the same bytes where the patch only changes name or mode."""
    if diff.binary:
        if is_blob(entry.data, diff.new_blob):
            return Change("done", f"{diff.path} is the file after the patch, by its hash")
        made = applied_to(diff.binary[0], entry.data) if is_blob(entry.data, diff.old_blob) else None
        if made is None or not is_blob(made, diff.new_blob):
            return Change("conflict", f"{diff.where}: {diff.old} is not the file that the binary patch was made for")
        return Change("apply", "", made)
    return change(entry.data, diff, policy, converted) if diff.hunks else Change("apply", "", entry.data)


def _changed(diff: FileDiff, view: View, policy: str, converted: bool) -> FileOutcome:
    entry = view.get(diff.old)
    if entry is None:
        plain_diff = not (diff.header or diff.old_blob or diff.new_blob)
        if plain_diff and diff.hunks and not diff.hunks[0].old:  # diff -N names both sides of a new file
            return FileOutcome("apply", "", ((diff.new, Entry(_whole(diff), 0o644)),))
        return FileOutcome("target absent", f"{diff.where}: there is no {diff.old} in the tree")
    if entry.is_link != (LINK in (diff.old_mode & 0o170000, diff.new_mode & 0o170000)) and (
        entry.is_link or diff.hunks
    ):
        return FileOutcome("conflict", f"{diff.where}: {diff.old} and the patch differ: one is a symbolic link")
    after, mode = _content(diff, entry, policy, converted), _permissions(diff, entry.mode)
    if mode == LINK and after.state == "apply" and (why := link_danger(diff.new, after.data)):
        return FileOutcome("malformed", f"{diff.where}: {why}: refused")
    moved_bits = mode != entry.mode
    if not diff.hunks and not diff.binary:
        state = "apply" if moved_bits else "done"
        return FileOutcome(
            state, "" if moved_bits else f"{diff.path} has that mode", ((diff.new, Entry(entry.data, mode)),)
        )
    if after.state == "done" and moved_bits:
        return FileOutcome("partly applied", f"{diff.where}: {diff.path} has the content already, but not the mode")
    if after.state != "apply":
        return FileOutcome(after.state, after.detail)
    return FileOutcome("apply", after.detail, ((diff.new, Entry(after.data, mode)),), after.landings)


def _moved(diff: FileDiff, view: View, policy: str, converted: bool) -> FileOutcome:
    """A rename or a copy."""
    source, target = view.get(diff.old), view.get(diff.new)
    word = "copy" if diff.copy else "rename"
    if target is not None and (source is None or diff.copy):
        undone = _content(diff.reversed(), target, policy, converted)
        if undone.state == "apply":
            return FileOutcome("done", f"{diff.new} is there already")
        return FileOutcome("conflict", f"{diff.where}: {diff.new} exists, and is not what the {word} makes")
    if source is None:
        return FileOutcome("target absent", f"{diff.where}: there is no {diff.old} in the tree")
    if target is not None:
        return FileOutcome("conflict", f"{diff.where}: {diff.new} to {word} to exists")
    if source.is_link:
        return FileOutcome("conflict", f"{diff.where}: {diff.old} is a symbolic link; to {word} one is not supported")
    after = _content(diff, source, policy, converted)
    if after.state != "apply":
        state = "partly applied" if after.state == "done" else after.state
        return FileOutcome(state, after.detail)
    gone = () if diff.copy else ((diff.old, None),)
    made = Entry(after.data, _permissions(diff, source.mode))
    return FileOutcome("apply", after.detail, (*gone, (diff.new, made)), after.landings)


def _uncopied(diff: FileDiff, view: View, policy: str, converted: bool) -> FileOutcome:
    """The copy `old` of `new` goes."""
    there = view.get(diff.old)
    if there is None:
        return FileOutcome("done", f"{diff.old} is gone already")
    after = _content(diff, there, policy, converted)
    if after.state != "apply":
        return FileOutcome("conflict", f"{diff.where}: {diff.old} is not the copy that the patch makes")
    return FileOutcome("apply", after.detail, ((diff.old, None),))
