"""One file's hunks against one file's content: to apply, there already, half there, or why not."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from labs.series.identity import is_blob
from labs.series.place import MAX_FUZZ, Miss, Spot, Text, locate, replaced, start_of, text_of
from labs.series.values import FileDiff, Hunk, Where

KEEP, REFUSE = "keep", "refuse"


@dataclass(frozen=True)
class Landing:
    """Where a hunk came to lie: line (from 1) in the file before the patch, and the function of its first change."""

    path: str
    line: int
    offset: int
    fuzz: int
    function: str
    hunk: Where


@dataclass(frozen=True)
class Change:
    """What becomes of a file's content. `state`: apply, done, partly applied, conflict, ambiguous."""

    state: str
    detail: str = ""
    data: bytes = b""
    landings: tuple[Landing, ...] = ()


def _ending(data: bytes) -> str:
    """`CRLF`, `LF`, or nothing where lines differ or none has an end."""
    ends, crlf = data.count(b"\n"), data.count(b"\r\n")
    return "" if not ends or 0 < crlf < ends else "CRLF" if crlf else "LF"


def _with_ending(hunk: Hunk, ending: str) -> Hunk:
    end = b"\r\n" if ending == "CRLF" else b"\n"
    lines = tuple(
        line.removesuffix(b"\n").removesuffix(b"\r") + end if line.endswith(b"\n") else line for line in hunk.lines
    )
    return dataclasses.replace(hunk, lines=lines)


def fitted(hunks: Sequence[Hunk], text: Text, policy: str, converted: bool) -> tuple[Sequence[Hunk], str, bool]:
    """The hunks with the file's line ends, a note if that changed them, and whether the policy forbids it.

    Only where both are of one kind throughout: a file of mixed ends, or a patch that changes ends, is taken as it is.
    `converted` tells that the patch as a whole was in CRLF; its hunks have LF ends by now.
    """
    tree = _ending(text.data)
    patch = _ending(b"".join(line for hunk in hunks for line in hunk.lines))
    found = "CRLF" if converted else patch
    if not tree or not patch:
        return hunks, "", False
    note = f"patch {found}, tree {tree}" if found != tree else ""
    fixed = hunks if patch == tree else [_with_ending(hunk, tree) for hunk in hunks]
    return fixed, note, bool(note) and policy == REFUSE


def _locate_all(text: Text, hunks: Sequence[Hunk], fuzz: int = 0) -> list[Spot | Miss]:
    """A place for each hunk, in order and apart; `fuzz` is the most that one may need."""
    found: list[Spot | Miss] = []
    drift = low = 0
    for hunk in hunks:
        place: Spot | Miss = locate(text, hunk, drift, low)
        for more in range(1, fuzz + 1):
            if isinstance(place, Spot):
                break
            fuzzy = locate(text, hunk, drift, low, more)
            place = fuzzy if isinstance(fuzzy, Spot) else place
        found.append(place)
        if isinstance(place, Spot):
            drift, low = place.offset, place.index + len(place.old)
    return found


def _proven(text: Text, diff: FileDiff, hunks: Sequence[Hunk]) -> list[Spot] | None:
    """All hunks at their very lines in the very file that the `index` line names: no search is needed."""
    if not is_blob(text.data, diff.old_blob):
        return None
    spots = []
    for hunk in hunks:
        start, old = start_of(hunk), hunk.old
        if tuple(text.lines[start : start + len(old)]) != old:
            return None
        searched = locate(text, hunk, 0, 0)
        function = searched.function if isinstance(searched, Spot) else hunk.section
        spots.append(Spot(start, old, hunk.new, 0, 0, function))
    return spots


def change(data: bytes, diff: FileDiff, policy: str = KEEP, converted: bool = False) -> Change:
    """What `diff` does to `data`; never a guess. Fuzz is tried last, and told in the landings."""
    text = text_of(data)
    hunks, note, forbidden = fitted(diff.hunks, text, policy, converted)
    if forbidden:
        return Change("conflict", f"{diff.where}: {note}: line ends differ, and series.toml says to refuse that")
    if is_blob(data, diff.new_blob):
        return Change("done", f"{diff.path} is the file after the patch, by its hash")
    if spots := _proven(text, diff, hunks):
        return _applied(text, diff, hunks, spots, note)
    forward = _locate_all(text, hunks)
    backward = _locate_all(text, [hunk.reversed() for hunk in hunks])
    states = [_hunk_state(ahead, back) for ahead, back in zip(forward, backward, strict=True)]
    if set(states) == {"apply"}:
        return _applied(text, diff, hunks, [spot for spot in forward if isinstance(spot, Spot)], note)
    if set(states) == {"done"}:
        return Change("done", f"{diff.path} has it already")
    if set(states) == {"apply", "done"}:
        there = ", ".join(str(h.where) for h, state in zip(hunks, states, strict=True) if state == "done")
        return Change("partly applied", f"{diff.path} has some of it already: {there}")
    tied = any(isinstance(ahead, Spot) and state == "ambiguous" for ahead, state in zip(forward, states, strict=True))
    if "done" not in states and not tied:  # less context would only hide what more could not tell
        fuzzy = [spot for spot in _locate_all(text, hunks, MAX_FUZZ) if isinstance(spot, Spot)]
        if len(fuzzy) == len(hunks):
            return _applied(text, diff, hunks, fuzzy, note)
    return _refused(diff, hunks, forward, states)


def _hunk_state(ahead: Spot | Miss, back: Spot | Miss) -> str:
    """apply, done, conflict or ambiguous. Where a hunk and its reverse both fit, the nearer one is meant."""
    if isinstance(ahead, Spot) and isinstance(back, Spot):
        if abs(ahead.offset) == abs(back.offset):
            return "ambiguous"
        return "apply" if abs(ahead.offset) < abs(back.offset) else "done"
    if isinstance(ahead, Spot):
        return "apply"
    return "done" if isinstance(back, Spot) else ahead.state


def _refused(diff: FileDiff, hunks: Sequence[Hunk], forward: Sequence[Spot | Miss], states: Sequence[str]) -> Change:
    told = []
    for number, (hunk, place, state) in enumerate(zip(hunks, forward, states, strict=True), 1):
        if state in ("conflict", "ambiguous"):
            line, why = (place.line, place.why) if isinstance(place, Miss) else (place.index + 1, "it fits both ways")
            told.append(f"{hunk.where}: hunk {number} does not fit {diff.old}:{line}: {why}")
    if "done" in states:
        told.append(f"{states.count('done')} of {len(states)} hunks of {diff.path} are there already")
    return Change("conflict" if "conflict" in states else "ambiguous", "; ".join(told))


def _applied(text: Text, diff: FileDiff, hunks: Sequence[Hunk], spots: Sequence[Spot], note: str) -> Change:
    """The content after, proved by taking the hunks out again."""
    data = replaced(text, spots)
    after, drift, undo = text_of(data), 0, []
    for spot in spots:
        undo.append(dataclasses.replace(spot, index=spot.index + drift, old=spot.new, new=spot.old))
        drift += len(spot.new) - len(spot.old)
    there = all(tuple(after.lines[one.index : one.index + len(one.old)]) == one.old for one in undo)
    if not there or replaced(after, undo) != text.data:
        return Change("conflict", f"{diff.where}: the result for {diff.path} cannot be undone: its lines run together")
    landings = tuple(
        Landing(diff.path, spot.index + 1, spot.offset, spot.fuzz, spot.function, hunk.where)
        for spot, hunk in zip(spots, hunks, strict=True)
    )
    if is_blob(text.data, diff.old_blob) and diff.new_blob and not is_blob(data, diff.new_blob) and not note:
        note = f"{diff.path} is not what the 'index' line says: the patch was edited after it was made"
    return Change("apply", note, data, landings)
