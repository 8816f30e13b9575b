"""Readback: what a writer finds when it reads the file that it has just written.

The strongest evidence needs no theory of concurrency: one thread wrote, the same thread read, and nobody else wrote.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from labs.invariant import witness
from labs.invariant.verdict import Step
from labs.invariant.zones import Flags, Ints, codes, succeeded
from labs.probe.history import READ, WRITE, Register


@dataclass(frozen=True)
class Writes:
    """Start and end of successful writes, each in its own order: enough to count those within a window."""

    start: Ints
    end: Ints

    def within(self, begin: Ints, end: Ints) -> Ints:
        """How many writes were in flight at some time of each closed window, shape as `begin`."""
        begun = np.searchsorted(self.start, end, side="right")
        over = np.searchsorted(self.end, begin, side="left")
        return begun - over


@dataclass(frozen=True)
class Readbacks:
    """Rows of a register's operations, one entry a readback: `base` is an operation of a thread that took effect,
    `read` a later read of the same thread that must return the same value if nobody wrote in between."""

    base: Ints
    read: Ints

    def keep(self, flags: Flags) -> Readbacks:
        return Readbacks(self.base[flags], self.read[flags])

    def changed(self, register: Register) -> Readbacks:
        """Those whose read returned another value than the base wrote or read."""
        code = codes(register)
        return self.keep(code[self.base] != code[self.read])

    def windows(self, register: Register) -> tuple[Ints, Ints]:
        """From the start of the base to the end of the read."""
        return register.operations["start"][self.base], register.operations["end"][self.read]


@dataclass(frozen=True)
class Updates:
    """The readbacks of a register's only writer, and those that show a lost update."""

    register: Register
    coupled: tuple[Register, ...]  # other files of the same directory
    readbacks: Readbacks
    lost: Readbacks
    overlaps: int  # readbacks during which a coupled file was written
    witnessed: int  # as overlaps, of the lost ones

    @classmethod
    def of(cls, register: Register, group: Sequence[Register]) -> Updates:
        coupled = tuple(other for other in group if other is not register)
        writes = writes_of(coupled)
        readbacks = own_readbacks(register)
        lost = readbacks.changed(register)
        met, seen = (writes.within(*found.windows(register)) > 0 for found in (readbacks, lost))
        return cls(register, coupled, readbacks, lost, int(met.sum()), int(seen.sum()))

    def first_seen(self) -> int:
        """When the first read that shows a loss had returned, ns."""
        return int(self.register.operations["end"][self.lost.read].min())

    def counterexample(self) -> tuple[Step, ...]:
        """The lost write, the coupled write in flight meanwhile if there is one, and the read that shows the loss."""
        begin, end = self.lost.windows(self.register)
        met = writes_of(self.coupled).within(begin, end) > 0
        # A lost write that met a coupled one explains itself; of those the shortest has least besides.
        shown = int(np.lexsort((end - begin, ~met))[0])
        write, read = int(self.lost.base[shown]), int(self.lost.read[shown])
        other = _in_flight(self.coupled, int(begin[shown]), int(end[shown]))
        return witness.steps(
            (self.register, write, "succeeded"),
            *((coupled, row, "coupled; in flight meanwhile") for coupled, row in other),
            (self.register, read, "its own writer does not find it"),
        )


def _in_flight(registers: Sequence[Register], begin: int, end: int) -> list[tuple[Register, int]]:
    """The first write of some registers that was in flight during the window, if any."""
    for register in registers:
        operations = register.operations
        met = succeeded(operations, WRITE) & (operations["start"] <= end) & (operations["end"] >= begin)
        if met.any():
            return [(register, int(np.argmax(met)))]
    return []


def group_of(register: Register) -> str:
    """The directory of the file: one cgroup."""
    return register.path.rpartition("/")[0]


def by_group(registers: Iterable[Register]) -> dict[str, list[Register]]:
    """Registers of each cgroup. Those of one group are coupled: a write to one may touch what another shows."""
    groups: dict[str, list[Register]] = {}
    for register in registers:
        groups.setdefault(group_of(register), []).append(register)
    return groups


def writes_of(registers: Sequence[Register]) -> Writes:
    """All successful writes of some registers together."""
    parts = [register.operations[succeeded(register.operations, WRITE)] for register in registers]
    none = [np.zeros(0, dtype=np.int64)]
    starts = np.concatenate([part["start"] for part in parts] + none)
    ends = np.concatenate([part["end"] for part in parts] + none)
    return Writes(np.sort(starts), np.sort(ends))


def writers_of(register: Register) -> int:
    """How many threads have changed the register."""
    operations = register.operations
    return len(np.unique(operations["thread"][succeeded(operations, WRITE)]))


def own_readbacks(register: Register) -> Readbacks:
    """Each successful write whose thread's own next operation on the register is a read that succeeded."""
    operations = register.operations
    order, following = neighbours(register)
    wrote = succeeded(operations, WRITE)[order]
    read = succeeded(operations, READ)[following]
    return Readbacks(order[wrote & read], following[wrote & read])


def neighbours(register: Register) -> tuple[Ints, Ints]:
    """Rows of all neighbouring operations of one thread: each, and the next of the same thread."""
    thread = register.operations["thread"]
    order = np.argsort(thread, kind="stable")
    same = thread[order[1:]] == thread[order[:-1]]
    return order[:-1][same], order[1:][same]
