"""Zones of a register's history: which write dictated each read, and which values cannot both be put in order.

Gibbons and Korach, "Testing shared memories", SIAM J. Comput. 26(4), 1997: a write and its reads form a cluster with
two marks, the earliest end and the latest start of its operations. One cluster must come before another when its
earliest end lies before the other's latest start. A history is linearizable if no read ends before its write began
and no two clusters must each come before the other. Sorting finds such pairs, so all is O(n log n).

Times are in ns from the register's first operation. One operation precedes another only if it ended strictly before
the other began; those that touch are concurrent, because the clock may give two events the same reading.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labs.probe.history import FAILED, INITIAL, READ, WRITE, Register

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Clusters:
    """The successful writes of one register, and each judged read with the write that dictated it.

    Writes are numbered from 1 in order of start; 0 stands for what the file held before, written at minus infinity.
    Reads are in order of start. Rows are indices into Register.operations; row -1 is the virtual write.
    """

    write_row: Ints  # (writes + 1,)
    write_start: Ints
    write_end: Ints
    read_row: Ints  # (reads,)
    read_start: Ints
    read_end: Ints
    dictating: Ints  # number of the write that gave the value
    unwritten: Ints  # rows of reads whose text nobody had begun to write
    ambiguous: int  # reads left out because two writes could have dictated them

    def keep(self, reads: Flags) -> Clusters:
        """The same with only the marked reads."""
        return replace(
            self,
            read_row=self.read_row[reads],
            read_start=self.read_start[reads],
            read_end=self.read_end[reads],
            dictating=self.dictating[reads],
        )


def codes(register: Register) -> Ints:
    """Value index of each operation; of values with the same text, the initial one included, the first stands for all.

    Reads are told apart by their text alone, so the agent cannot know which of them it saw.
    """
    found: Ints = _code_of(register)[register.operations["value"].astype(np.int64) - FAILED]
    return found


def _code_of(register: Register) -> Ints:
    """Code of every value index from FAILED up, shape (2 + values + foreign,)."""
    first: dict[str, int] = {}
    code = [first.setdefault(text, index) for index, text in enumerate(register.values + register.foreign)]
    return np.array([FAILED, first.get(register.initial, INITIAL), *code], dtype=np.int64)


def succeeded(operations: NDArray[Any], kind: int) -> Flags:
    """Which operations are reads (or writes) that took effect; a write that gave an error wrote nothing."""
    flags: Flags = (operations["kind"] == kind) & (operations["errno"] == 0) & (operations["value"] != FAILED)
    return flags


def attribute(register: Register) -> Clusters:
    """Find the dictating write of each read: the latest write of that value that began before the read ended.

    Values are unique only within a cycle of their writer, so an earlier write of the same value is possible too, but
    only while the writer's next write after it had not completed when the read began: then the read spans a whole
    cycle of its writer, constrains next to nothing, and is left out (`ambiguous`). In a correct history every other
    read has just this one possible write. So this never raises a false alarm; it may miss a stale read that is late
    by exactly a whole number of cycles.

    Raises ValueError if operations are not in order of start or if two threads write the same value.
    """
    operations = register.operations
    if len(operations) == 0:
        nothing = np.zeros(0, dtype=np.int64)
        before = np.full(1, -1, dtype=np.int64)
        return Clusters(before, before, before, nothing, nothing, nothing, nothing, nothing, 0)
    start = operations["start"] - operations["start"][0]
    end = operations["end"] - operations["start"][0]
    if np.any(start[1:] < start[:-1]):
        raise ValueError(f"{register.path}: operations are not in order of start")
    code = codes(register)
    write = np.flatnonzero(succeeded(operations, WRITE))
    read = np.flatnonzero(succeeded(operations, READ))
    home = int(_code_of(register)[INITIAL - FAILED])
    dictating, ambiguous = _dictating(
        register, code[write], start[write], end[write], code[read], start[read], end[read], home
    )
    judged = (dictating >= 0) & ~ambiguous
    return Clusters(
        write_row=np.concatenate(([-1], write)),
        write_start=np.concatenate(([-1], start[write])),
        write_end=np.concatenate(([-1], end[write])),
        read_row=read[judged],
        read_start=start[read[judged]],
        read_end=end[read[judged]],
        dictating=dictating[judged],
        unwritten=read[dictating < 0],
        ambiguous=int(ambiguous.sum()),
    )


def _dictating(
    register: Register,
    wrote: Ints,
    write_start: Ints,
    write_end: Ints,
    saw: Ints,
    read_start: Ints,
    read_end: Ints,
    home: int,
) -> tuple[Ints, Flags]:
    """For each read the number of its write (0: initial, -1: none) and whether another write could be it as well.

    `home` is the code of the initial text.
    """
    at_home = saw == home
    if len(wrote) == 0:
        return np.where(at_home, 0, -1), np.zeros(len(saw), dtype=np.bool_)
    # One sortable key of value and time; int64 holds 10,000 values over ten days of nanoseconds.
    span = int(max(write_start.max(), read_end.max(initial=0))) + 1
    key = (wrote + 1) * span + write_start
    order = np.argsort(key)
    thread = register.operations["thread"][succeeded(register.operations, WRITE)]
    same_value = wrote[order[1:]] == wrote[order[:-1]]
    if np.any(same_value & (thread[order[1:]] != thread[order[:-1]])):
        raise ValueError(f"{register.path}: one value is written by two threads")

    place = np.searchsorted(key[order], (saw + 1) * span + read_end, side="right") - 1
    latest = order[np.maximum(place, 0)]
    found = (place >= 0) & (wrote[latest] == saw)
    earlier = order[np.maximum(place - 1, 0)]
    repeated = found & (place > 0) & (wrote[earlier] == saw)
    overwritten = np.where(repeated, _next_end(thread, write_end)[earlier], write_end.min())
    ambiguous = (repeated | (found & at_home)) & (overwritten >= read_start)
    return np.where(found, latest + 1, np.where(at_home, 0, -1)), ambiguous


def _next_end(thread: NDArray[Any], end: Ints) -> Ints:
    """When the same thread's next write ended; NEVER for its last."""
    order = np.argsort(thread, kind="stable")
    following = np.full(len(end), NEVER, dtype=np.int64)
    same = thread[order[1:]] == thread[order[:-1]]
    following[order[:-1][same]] = end[order[1:][same]]
    return following


def stale_reads(clusters: Clusters) -> Flags:
    """Reads that began after a write had completed that is newer than their own: it began after theirs completed."""
    ends, newest_start = _newest(clusters.write_end, clusters.write_start)
    before = np.searchsorted(ends, clusters.read_start, side="left") - 1  # at least 0: the virtual write
    flags: Flags = newest_start[np.maximum(before, 0)] > clusters.write_end[clusters.dictating]
    return flags


def reverted_reads(clusters: Clusters) -> Flags:
    """Reads that began after another read had already returned a value newer than theirs: the file went back."""
    if len(clusters.read_end) == 0:
        return np.zeros(0, dtype=np.bool_)
    ends, newest_seen = _newest(clusters.read_end, clusters.write_start[clusters.dictating])
    before = np.searchsorted(ends, clusters.read_start, side="left") - 1
    flags: Flags = (before >= 0) & (newest_seen[np.maximum(before, 0)] > clusters.write_end[clusters.dictating])
    return flags


def _newest(end: Ints, start: Ints) -> tuple[Ints, Ints]:
    """Ends in order, and for each the greatest `start` among all operations that ended until then."""
    order = np.argsort(end)
    return end[order], np.maximum.accumulate(start[order])


def conflicts(clusters: Clusters) -> Ints:
    """Pairs of clusters that must each come before the other, shape (pairs, 2); none: the history is linearizable.

    A cluster is a forward zone if its earliest end lies before its latest start. Two clusters conflict if both are
    forward and overlap, or if one is forward and holds the other whole. Each cluster is listed once at most, with
    that earlier forward zone that lasts longest.
    """
    first_end, last_start = clusters.write_end.copy(), clusters.write_start.copy()
    np.minimum.at(first_end, clusters.dictating, clusters.read_end)
    np.maximum.at(last_start, clusters.dictating, clusters.read_start)

    forward = np.flatnonzero(first_end < last_start)
    if len(forward) == 0:
        return np.zeros((0, 2), dtype=np.int64)
    forward = forward[np.argsort(first_end[forward], kind="stable")]
    reach = np.maximum.accumulate(last_start[forward])
    record = np.where(last_start[forward] == reach, np.arange(len(forward)), 0)
    holder = forward[np.maximum.accumulate(record)]  # the zone that reaches so far

    overlapping = np.flatnonzero(reach[:-1] > first_end[forward[1:]])
    pairs = [np.stack((holder[overlapping], forward[overlapping + 1]), axis=1)]
    backward = np.flatnonzero(first_end >= last_start)
    before = np.searchsorted(first_end[forward], last_start[backward], side="left") - 1
    held = (before >= 0) & (reach[np.maximum(before, 0)] > first_end[backward])
    pairs.append(np.stack((holder[before[held]], backward[held]), axis=1))
    return np.concatenate(pairs)


def overlaps(operations: NDArray[Any]) -> int:
    """How many operations were in flight together with one of another thread, at least one of the two a write.

    Reads that only meet reads test nothing and are not counted. `operations` in order of start; those of one thread
    follow each other, so they never meet.
    """
    if len(operations) == 0:
        return 0
    start, end = operations["start"], operations["end"]
    is_write = operations["kind"] == WRITE
    latest_end = np.maximum.accumulate(end)
    latest_write_end = np.maximum.accumulate(np.where(is_write, end, start[0]))
    next_write = np.minimum.accumulate(np.where(is_write, start, NEVER)[::-1])[::-1]
    met = np.zeros(len(operations), dtype=np.bool_)
    met[1:] |= np.where(is_write[1:], latest_end[:-1], latest_write_end[:-1]) > start[1:]
    met[:-1] |= np.where(is_write[:-1], start[1:], next_write[1:]) < end[:-1]
    return int(met.sum())
