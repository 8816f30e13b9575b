"""Synthetic histories: a real atomic register under threads, tails that plant one fault, and an exhaustive judge.

A clean history is what an atomic register gives: each operation takes effect at one moment within its interval, and a
read returns the last write that took effect. So overlaps are legal by construction and any alarm is a false one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labs.probe.history import FAILED, INITIAL, OPERATION, READ, WRITE, Register

EIO, ERANGE, EINVAL = 5, 34, 22
OLD, NEW = "50000 100000", "70000 200000"  # two values of cpu.max, for planted tails


@dataclass(frozen=True)
class Op:
    """One operation of a planted tail. Times in ns from the end of the clean part; `text` written or read."""

    thread: int
    kind: str  # "write" or "read"
    text: str
    start: int
    end: int
    errno: int = 0
    expect: int = 0


def register_of(ops: Sequence[Op], *, path: str = "/c/cpu.weight", initial: str = "100") -> Register:
    """A register with just these operations."""
    empty = Register(path, (), np.zeros(0, dtype=np.int16), initial, (), np.zeros(0, dtype=OPERATION))
    return with_tail(empty, ops)


def failing(register: Register) -> Register:
    """The same operations, every one of them in vain."""
    operations = register.operations.copy()
    operations["value"][operations["kind"] == READ] = FAILED
    operations["errno"] = EIO
    return register.with_operations(operations)


def last_end(registers: Sequence[Register]) -> int:
    return max((int(register.operations["end"].max(initial=0)) for register in registers), default=0)


def with_tail(register: Register, ops: Sequence[Op], *, after: int = 0) -> Register:
    """The register with more operations after all of its own and after the time `after`; texts are mapped to value
    indices as the agent does."""
    expect = {text: int(errno) for text, errno in zip(register.values, register.expect, strict=True)}
    expect |= {op.text: op.expect for op in ops if op.kind == "write"}
    values = tuple(expect)
    texts = [op.text for op in ops if op.text not in expect and op.text != register.initial]
    foreign = tuple(dict.fromkeys((*register.foreign, *texts)))
    index = {text: i for i, text in enumerate((*values, *foreign))}
    origin = max(last_end([register]), after) + 1000
    rows = [
        (
            origin + op.start,
            origin + op.end,
            index.get(op.text, INITIAL),
            op.errno,
            op.thread,
            WRITE if op.kind == "write" else READ,
        )
        for op in ops
    ]
    tail = np.sort(np.array(rows, dtype=OPERATION), order="start")
    shifted = register.operations.copy()
    shifted["value"][shifted["value"] >= len(register.values)] += len(values) - len(register.values)
    return replace(
        register,
        values=values,
        foreign=foreign,
        expect=np.array(list(expect.values()), dtype=np.int16),
        operations=np.concatenate((shifted, tail)),
    )


def atomic_register(
    seed: int,
    *,
    path: str = "/c/cpu.weight",
    writers: int = 2,
    readers: int = 2,
    operations: int = 2000,
    cycle: int = 12,
    invalid: int = 0,
    stalls: float = 0.01,
    initial_is_value: bool = False,
) -> Register:
    """A clean history of `writers` threads that write (and every other time read back) and `readers` that read.

    Each writer owns `cycle` valid values, then `invalid` ones that give ERANGE, and goes round in them. A share of
    `stalls` operations lasts some hundred times as long, as when the host takes the CPU away.
    """
    rng = np.random.default_rng(seed)
    each = operations // (writers + readers)
    texts = [f"{100 + w}{i:04} {200 + w}{i:04}" for w in range(writers) for i in range(cycle + invalid)]
    expect = np.array([0 if i < cycle else ERANGE for _ in range(writers) for i in range(cycle + invalid)], dtype="i2")
    parts = []
    for thread in range(writers + readers):
        part = _timed(rng, each, stalls)
        part["thread"] = thread
        if thread < writers:
            part["kind"][::2] = WRITE
            turn = np.arange(len(part["kind"][::2])) % (cycle + invalid)
            part["value"][::2] = thread * (cycle + invalid) + turn
            part["errno"][::2] = np.where(turn < cycle, 0, ERANGE)
        parts.append(part)
    table = np.concatenate(parts)
    _take_effect(rng, table)
    initial = texts[0] if initial_is_value else "max 100000"
    if initial_is_value:
        table["value"][(table["value"] == INITIAL)] = 0  # the agent knows texts only
    table = table[np.argsort(table["start"], kind="stable")]
    return Register(path, tuple(texts), expect, initial, (), table)


def _timed(rng: np.random.Generator, count: int, stalls: float) -> NDArray[Any]:
    """Operations of one thread, one after the other, with random lengths and pauses of about a microsecond."""
    lengths = rng.exponential(1000, count).astype(np.int64)
    lengths[rng.random(count) < stalls] *= 300
    pauses = rng.exponential(300, count).astype(np.int64)  # now and then 0: operations that touch
    table = np.zeros(count, dtype=OPERATION)
    table["end"] = np.cumsum(lengths + pauses)
    table["start"] = table["end"] - lengths
    return table


def _take_effect(rng: np.random.Generator, table: NDArray[Any]) -> None:
    """Give each read the value of the last successful write, every operation at a random moment of its interval."""
    moment = table["start"] + rng.random(len(table)) * (table["end"] - table["start"])
    order = np.argsort(moment, kind="stable")
    writes = (table["kind"] == WRITE) & (table["errno"] == 0)
    last = np.maximum.accumulate(np.where(writes[order], np.arange(len(order)), -1))
    held = np.where(last >= 0, table["value"][order[np.maximum(last, 0)]], INITIAL)
    reads = table["kind"][order] == READ
    table["value"][order[reads]] = held[reads]


def is_linearizable(register: Register) -> bool:
    """Try every order of the operations that real time allows; exact for any history of a few operations."""
    operations = register.operations
    texts = [register.text(int(operation["value"])) for operation in operations]
    wrote = [bool(operation["kind"] == WRITE) for operation in operations]
    before = [
        sum(1 << j for j in range(len(operations)) if operations["end"][j] < operations["start"][i])
        for i in range(len(operations))
    ]
    dead: set[tuple[int, str]] = set()

    def completes(done: int, held: str) -> bool:
        if done == (1 << len(operations)) - 1:
            return True
        if (done, held) in dead:
            return False
        for i, text in enumerate(texts):
            ready = not done >> i & 1 and before[i] & ~done == 0
            if ready and (wrote[i] or text == held) and completes(done | 1 << i, text):
                return True
        dead.add((done, held))
        return False

    return completes(0, register.initial)
