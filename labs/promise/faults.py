"""Planted faults: recorded clean outcomes of a promise, with one thing wrong at a time. Pure; no guest.

A promise that does not miss any of them can be violated visibly: each checked row by its errno and by its text, each
relation by some change of the outcomes that it compares.
"""

from __future__ import annotations

import errno as errors
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from labs.probe.script import NEVER, Outcome
from labs.promise import Promise, Row, judge

LONG, SHOWN = 1000, 200  # a script of more rows is a repetition: faults are planted in the first ones
Recorded = list[tuple[int, str, int, int]]  # of each row: errno, text, start and end in us from the first start


@dataclass(frozen=True)
class Tally:
    """What was planted for one promise: faults of rows and of relations, and those that judging them missed."""

    promise: str
    rows: int
    relations: int
    missed: tuple[str, ...]

    @property
    def planted(self) -> int:
        return self.rows + self.relations

    @property
    def caught(self) -> int:
        return self.planted - len(self.missed)


def shortened(promise: Promise) -> Promise:
    """The promise with the beginning of a long script."""
    return replace(promise, rows=promise.rows[:SHOWN]) if len(promise.rows) > LONG else promise


def to_record(outcomes: Sequence[Outcome]) -> Recorded:
    """Outcomes of one round in few words, for a file."""
    origin = min((outcome.start for outcome in outcomes if outcome.start), default=0)

    def short(at: int) -> int:
        return (at - origin) // 1000 + 1 if at else 0

    return [(o.errno, o.text, short(o.start), short(o.end)) for o in outcomes]


def from_record(promise: Promise, rows: Sequence[Sequence[int | str]]) -> list[Outcome]:
    """The outcomes that were recorded; ValueError when the promise has other rows by now."""
    return [
        Outcome(row.op, int(error), str(text), int(start) * 1000, int(end) * 1000)
        for row, (error, text, start, end) in zip(promise.rows, rows, strict=True)
    ]


def kept(promise: Promise, outcomes: Sequence[Outcome]) -> list[Outcome]:
    """What a kernel that keeps the promise would have given where this one did not: exactly what a row says."""
    return [
        replace(outcome, errno=0, text=row.text if isinstance(row.text, str) else outcome.text)
        if row.errno == "" and row.wrong(outcome)
        else outcome
        for row, outcome in zip(promise.rows, outcomes, strict=True)
    ]


def tallies(promises: Iterable[Promise], recorded: Mapping[str, Sequence[Sequence[int | str]]]) -> list[Tally]:
    """One tally for each promise of a family, from its file of records (promise name -> rows); none recorded: zeros."""
    return [
        tally(promise, kept(promise, from_record(promise, recorded[promise.name])))
        if promise.name in recorded
        else Tally(promise.name, 0, 0, ())
        for promise in map(shortened, promises)
    ]


def tally(promise: Promise, clean: Sequence[Outcome]) -> Tally:
    """Plant every fault and see which ones the judge does not call a violation."""
    missed = []
    rows = relations = 0
    for at, what, outcome in _of_rows(promise, clean):
        rows += 1
        if not _fails(promise, [*clean[:at], outcome, *clean[at + 1 :]]):
            missed.append(f"row {at}, {promise.rows[at].op}: {what}")
    for number in range(len(promise.relations)):
        relations += 1
        if not any(_breaks(promise, number, changed) for changed in _of_relations(promise, clean)):
            missed.append(f"relation {number}")
    return Tally(promise.name, rows, relations, tuple(missed))


def _fails(promise: Promise, outcomes: Sequence[Outcome]) -> bool:
    return judge(promise, [outcomes]).outcome == "fail"


def _breaks(promise: Promise, number: int, outcomes: Sequence[Outcome]) -> bool:
    """Whether this relation calls the outcomes wrong, while no row does."""
    alone = replace(promise, relations=(promise.relations[number],))
    return _fails(alone, outcomes) and not _fails(replace(promise, relations=()), outcomes)


def _of_rows(promise: Promise, clean: Sequence[Outcome]) -> Iterator[tuple[int, str, Outcome]]:
    """One wrong errno, one lost return and one wrong text for each row that checks them."""
    for at, (row, outcome) in enumerate(zip(promise.rows, clean, strict=True)):
        if row.op.name == "-" or row.setup:
            continue
        if row.errno is not None:
            yield at, "another errno", replace(outcome, errno=0 if "" not in _allowed(row) else errors.EIO)
            yield at, "never returns", replace(outcome, errno=NEVER)
        if row.text is not None:
            yield at, "another text", replace(outcome, errno=0, text=_wrong_text(row, outcome))


def _wrong_text(row: Row, outcome: Outcome) -> str:
    """A text that the row refuses; if no candidate is refused, one that will be told as missed."""
    named = (getattr(row.text, "__doc__", None) or "").replace(",", " ").split() if callable(row.text) else []
    candidates = ["?", "", *named, *_renumbered(outcome.text)]
    return next((text for text in candidates if row.wrong(replace(outcome, errno=0, text=text))), outcome.text)


def _renumbered(text: str) -> list[str]:
    """The text with all its numbers small, or large."""
    return [re.sub(r"\d+", number, text) for number in ("0", "999999999999")]


def _of_relations(promise: Promise, clean: Sequence[Outcome]) -> Iterator[list[Outcome]]:
    """Outcomes of keyed rows changed one at a time, then all at once, so that each row by itself is still allowed."""
    keyed = [at for at, row in enumerate(promise.rows) if row.key]
    for at in keyed:
        for changed in _variants(promise.rows[at], clean[at]):
            yield [*clean[:at], changed, *clean[at + 1 :]]
    for error in {name for at in keyed for name in _allowed(promise.rows[at])}:
        outcomes = list(clean)
        for at in keyed:
            if error in _allowed(promise.rows[at]):
                outcomes[at] = replace(clean[at], errno=getattr(errors, error) if error else 0)
        yield outcomes


def _variants(row: Row, outcome: Outcome) -> Iterator[Outcome]:
    for error in _allowed(row):
        yield replace(outcome, errno=getattr(errors, error) if error else 0)
    for text in ("?", "", *_renumbered(outcome.text)):
        yield replace(outcome, errno=0, text=text)


def _allowed(row: Row) -> list[str]:
    """Names of the errnos that the row may give; '' is success."""
    return row.errno.split(" ") if row.errno else [""]
