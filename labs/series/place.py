"""Where a hunk fits: offset, fuzz, and whether more than one place is as good. Rules of GNU patch, less its guesses.

GNU patch takes the nearest place. Here a place counts only if it is the line that the header names (moved as the hunk
before moved), or the only one in the function that the header names, or the only one at all.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from labs.series.sections import Sections, begins_function, names_function
from labs.series.values import Hunk

MAX_FUZZ = 2  # patch's own default limit
COMMON = 1000  # a line that stands more often than this tells nothing
MANY = 20_000  # places after which no more are looked for


class Text:
    """A file's content, by lines and by bytes."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.lines = data.splitlines(keepends=True) if b"\r" not in data else _lines(data)
        self.sections = Sections(self.lines)
        self.starts = list(itertools.accumulate(map(len, self.lines), initial=0))

    def places(self, block: bytes, low: int) -> list[int]:
        """Indexes of the lines from `low` on where a block of whole lines stands; at most MANY."""
        found: list[int] = []
        at = self.data.find(block, self.starts[min(low, len(self.lines))])
        while at >= 0 and len(found) < MANY:
            end = at + len(block)
            if (at == 0 or self.data[at - 1] == 10) and (block.endswith(b"\n") or end == len(self.data)):
                found.append(bisect_left(self.starts, at))
            at = self.data.find(block, at + 1)
        return found


@lru_cache(maxsize=4)
def text_of(data: bytes) -> Text:
    """The same for the same bytes: a series asks for a file once a patch, and more often where a patch does not fit."""
    return Text(data)


def _lines(data: bytes) -> list[bytes]:
    parts = data.split(b"\n")
    return [part + b"\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


@dataclass(frozen=True)
class Spot:
    """A hunk's place: lines[index : index + len(old)] become `new`. `offset` is in lines from where its header says."""

    index: int
    old: tuple[bytes, ...]
    new: tuple[bytes, ...]
    offset: int
    fuzz: int
    function: str


@dataclass(frozen=True)
class Miss:
    """A hunk without a place: `conflict` or `ambiguous`; `line` (from 1) is where the file differs."""

    state: str
    why: str
    line: int


def start_of(hunk: Hunk) -> int:
    """Index of the hunk's first old line; a hunk without old lines names the line before it."""
    return hunk.old_start - 1 if hunk.old_count else hunk.old_start


def locate(text: Text, hunk: Hunk, drift: int, low: int, fuzz: int = 0) -> Spot | Miss:
    """The place of a hunk from line `low` on; `drift` is the offset of the hunk before it in the same file."""
    expected = start_of(hunk) + drift
    context = [line[:1] == b" " for line in hunk.lines]
    front = len(list(itertools.takewhile(bool, context)))
    back = len(list(itertools.takewhile(bool, reversed(context)))) if front < len(context) else 0
    most = max(front, back)
    cut_front, cut_back = max(0, fuzz + front - most), max(0, fuzz + back - most)
    cut_front, cut_back = min(cut_front, front, fuzz), min(cut_back, back, fuzz)
    old = hunk.old[cut_front : len(hunk.old) - cut_back]
    new = hunk.new[cut_front : len(hunk.new) - cut_back]
    if not old and text.lines:
        return Miss("ambiguous", "it has no context, so it fits everywhere", expected + 1)
    found = text.places(b"".join(old), low) if old else [0]
    if len(found) == MANY:
        return Miss("ambiguous", f"it fits in {MANY} places and more", expected + 1)
    if fuzz + front < most and hunk.old_start <= 1:  # fewer lines before than after: it begins the file
        found = [index for index in found if index == 0]
    ends = (fuzz + back < most) or bool(new and not new[-1].endswith(b"\n"))
    if ends:
        found = [index for index in found if index + len(old) == len(text.lines)]
    chosen = _choose(text, hunk, [index - cut_front for index in found], expected)
    if isinstance(chosen, Miss):
        return chosen
    removes = front < len(hunk.lines) and any(line[:1] == b"-" for line in _first_change(hunk)[front:])
    _, function = text.sections.around(max(chosen, 0) + front + removes, hunk.section)
    return Spot(chosen + cut_front, old, new, chosen - start_of(hunk), fuzz, function)


def _first_change(hunk: Hunk) -> Sequence[bytes]:
    """The context before the first change, and that change."""
    changed = itertools.dropwhile(lambda line: line[:1] == b" ", hunk.lines)
    run = list(itertools.takewhile(lambda line: line[:1] != b" ", changed))
    return [*itertools.takewhile(lambda line: line[:1] == b" ", hunk.lines), *run]


def _names_its_function(hunk: Hunk) -> bool:
    """Whether the hunk's own lines say in which function its first change is: then the header names the one before."""
    return any(line[:1] in b" -" and begins_function(line[1:]) for line in _first_change(hunk))


def _choose(text: Text, hunk: Hunk, found: Sequence[int], expected: int) -> int | Miss:
    """The one place that counts; see the head of this file."""
    if not found:
        return _mismatch(text, hunk, expected)
    strict = names_function(hunk.section) and not _names_its_function(hunk)
    right = [index for index in found if text.sections.around(max(index, 0), hunk.section)[0]]
    if strict and not right and (homes := text.sections.homes(hunk.section)):
        _, other = text.sections.around(max(found[0], 0))
        home = f"{hunk.section!r}, at line {homes[0] + 1}"
        why = f"it fits only in another function ({other or 'none'}); its header names {home}"
        return Miss("conflict", why, homes[0] + 1)
    for pool in (right, found) if strict and right else (found, right):
        if expected in pool:
            return expected
        if len(pool) == 1:
            return pool[0]
        if strict and pool is right:
            break
    lines = ", ".join(str(index + 1) for index in (right or found)[:8])
    return Miss("ambiguous", f"it fits equally well at lines {lines}", expected + 1)


def _alignment(text: Text, hunk: Hunk, expected: int) -> int:
    """Where most of the hunk's old lines stand in the order of the hunk, as near to `expected` as may be."""
    places: dict[bytes, list[int]] = {line: [] for line in hunk.old if len(line.strip()) > 2}
    for at, line in enumerate(text.lines):
        if line in places and len(places[line]) < COMMON:
            places[line].append(at)
    votes = Counter(at - index for index, line in enumerate(hunk.old) for at in places.get(line, ()))
    return max(votes, key=lambda start: (votes[start], -abs(start - expected)), default=expected)


def _mismatch(text: Text, hunk: Hunk, expected: int) -> Miss:
    """Why it does not fit: the first line that differs where it fits best."""
    expected = _alignment(text, hunk, expected)
    for index, line in enumerate(hunk.old):
        at = expected + index
        there = text.lines[at] if 0 <= at < len(text.lines) else None
        if there != line:
            wanted = _shown(line)
            if there is None:
                return Miss("conflict", f"the file has no line {at + 1}; the patch has {wanted}", max(at, 0) + 1)
            if there.rstrip() == line.rstrip():
                return Miss("conflict", f"line {at + 1} differs in white space or line end only: {wanted}", at + 1)
            return Miss("conflict", f"line {at + 1} is {_shown(there)}, the patch has {wanted}", at + 1)
    return Miss("conflict", "it fits here, but belongs to the very beginning or end of the file", expected + 1)


def _shown(line: bytes) -> str:
    return repr(line.decode(errors="replace").strip()[:60])


def replaced(text: Text, spots: Sequence[Spot]) -> bytes:
    """The content with every hunk in its place; spots are in order and do not overlap."""
    made: list[bytes] = []
    at = 0
    for spot in spots:
        made += [*text.lines[at : spot.index], *spot.new]
        at = spot.index + len(spot.old)
    return b"".join([*made, *text.lines[at:]])
