"""Refusal: what became of writes that had to be refused, and of those that had to be taken."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from labs.invariant import witness
from labs.invariant.readback import Readbacks, neighbours, writes_of
from labs.invariant.verdict import Step
from labs.invariant.zones import Flags, Ints, codes, succeeded
from labs.probe.history import READ, WRITE, Register

REFUSAL_KINDS = ("accepted", "wrong errno", "refused", "leaked", "changed")

# The group was removed meanwhile: kernfs_fop_write_iter (fs/kernfs/file.c, 6.1) gives ENODEV when kernfs_get_active
# fails, and opening a path that is gone gives ENOENT.
GONE = (errno.ENODEV, errno.ENOENT)


@dataclass(frozen=True)
class Refusals:
    """One register judged. `wrong` holds, per kind, rows of writes or reads, or numbers of `readbacks` (changed)."""

    register: Register
    rejected: int  # writes that were refused just as they had to be
    undisturbed: int  # readbacks after a rejected write during which nobody wrote
    readbacks: Readbacks  # those
    wrong: dict[str, Ints]

    @classmethod
    def of(cls, register: Register, group: Sequence[Register]) -> Refusals:
        """Judge one register; `group` holds all registers of its directory, itself included."""
        code, must = register.operations["errno"], expected(register)
        write = register.operations["kind"] == WRITE
        other = write & (code != must) & ~np.isin(code, GONE)
        readbacks = undisturbed_readbacks(register, group)
        seen = codes(register)
        wrong = {
            "accepted": np.flatnonzero(write & (must != 0) & (code == 0)),
            "wrong errno": np.flatnonzero(other & (must != 0) & (code != 0)),
            "refused": np.flatnonzero(other & (must == 0)),
            "leaked": np.flatnonzero(succeeded(register.operations, READ) & np.isin(seen, _invalid(register))),
            "changed": np.flatnonzero(seen[readbacks.base] != seen[readbacks.read]),
        }
        rejected = int(np.count_nonzero(write & (must != 0) & (code == must)))
        return cls(register, rejected, len(readbacks.read), readbacks, wrong)

    def counterexample(self, kind: str) -> tuple[Step, ...]:
        """The write itself, the read with the write of its value, or the readback with the rejected write in it."""
        row = int(self.wrong[kind][0])
        if kind == "leaked":
            return witness.steps(*self._source(row), (self.register, row, "an invalid value was read"))
        if kind == "changed":
            base, read = int(self.readbacks.base[row]), int(self.readbacks.read[row])
            return witness.steps(
                (self.register, base, "the value before"),
                (self.register, self._rejected_before(read), "rejected"),
                (self.register, read, "not the value before, and nobody else wrote"),
            )
        must = int(expected(self.register)[row])
        promise = f"must give {errno.errorcode.get(must, must)}" if must else "must succeed"
        return witness.steps((self.register, row, promise))

    def _source(self, read: int) -> list[witness.Noted]:
        """The last write of the value that was read, if it began before the read ended."""
        operations = self.register.operations
        began = (operations["kind"] == WRITE) & (operations["start"] <= operations["end"][read])
        rows = np.flatnonzero(began & (operations["value"] == operations["value"][read]))
        return [(self.register, int(rows[-1]), "invalid")] if len(rows) else []

    def _rejected_before(self, read: int) -> int:
        previous, following = neighbours(self.register)
        return int(previous[np.flatnonzero(following == read)[0]])


def expected(register: Register) -> Ints:
    """The errno that each write must give, one entry an operation; 0 for reads."""
    value = register.operations["value"].astype(np.int64)
    must = np.zeros(len(value), dtype=np.int64)
    writes = register.operations["kind"] == WRITE
    must[writes] = register.expect[value[writes]]
    return must


def undisturbed_readbacks(register: Register, group: Sequence[Register]) -> Readbacks:
    """Reads that follow their thread's own rejected write, with that thread's last operation that took effect, if
    nobody wrote a file of the group from the start of that operation to the end of the read.

    Other failed operations may lie between; they change nothing either.
    """
    operations = register.operations
    previous, read = neighbours(register)
    rejected = (operations["kind"] == WRITE) & (operations["errno"] != 0) & (expected(register) != 0)
    base = _last_effective(register)[previous]
    fits = rejected[previous] & succeeded(operations, READ)[read] & (base >= 0)
    found = Readbacks(base[fits], read[fits])
    own = succeeded(operations, WRITE)[found.base]  # the base itself is within its window
    return found.keep(writes_of(group).within(*found.windows(register)) == own)


def _last_effective(register: Register) -> Ints:
    """Row of each thread's last operation, up to and with each row, that took effect; -1 if there is none."""
    operations = register.operations
    thread = operations["thread"]
    order = np.argsort(thread, kind="stable")
    effective: Flags = (succeeded(operations, WRITE) | succeeded(operations, READ))[order]
    place = np.maximum.accumulate(np.where(effective, np.arange(len(order)), -1))
    row = np.where(place >= 0, order[np.maximum(place, 0)], -1)
    last = np.full(len(order), -1, dtype=np.int64)
    last[order] = np.where(thread[row] == thread[order], row, -1)
    return last


def _invalid(register: Register) -> Ints:
    """Values that must be refused and whose text no valid value and not the initial one shares."""
    valid = {register.initial, *(text for text, must in zip(register.values, register.expect, strict=True) if not must)}
    return np.array([i for i, text in enumerate(register.values) if text not in valid], dtype=np.int64)
