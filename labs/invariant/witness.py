"""Witness: the smallest set of operations that shows a violation, as the Steps of a counterexample."""

from __future__ import annotations

import errno

import numpy as np

from labs.invariant.verdict import Step
from labs.invariant.zones import Clusters, Ints
from labs.probe.history import WRITE, Register

INITIAL_ROW = -1  # the virtual write of what the file held before the run

Noted = tuple[Register, int, str]  # register, row of its operations, why the step matters


def steps(*noted: Noted) -> tuple[Step, ...]:
    """The operations as Steps in order of start, times in ns from the first of them."""
    real = [register.operations[row] for register, row, _ in noted if row != INITIAL_ROW]
    origin = min((int(operation["start"]) for operation in real), default=0)
    ordered = sorted(
        noted, key=lambda item: -1 if item[1] == INITIAL_ROW else int(item[0].operations[item[1]]["start"])
    )
    return tuple(_step(register, row, note, origin) for register, row, note in ordered)


def _step(register: Register, row: int, note: str, origin: int) -> Step:
    if row == INITIAL_ROW:
        return Step("before the run", f"initial {register.name}", register.initial, 0, 0, note)
    operation = register.operations[row]
    kind = "write" if operation["kind"] == WRITE else "read"
    code = int(operation["errno"])
    outcome = f"gave {errno.errorcode.get(code, code)}" if code else ""
    return Step(
        thread=f"thread {operation['thread']}",
        operation=f"{kind} {register.name}",
        value=register.text(int(operation["value"])),
        start=int(operation["start"]) - origin,
        end=int(operation["end"]) - origin,
        note="; ".join(part for part in (outcome, note) if part),
    )


def stale(register: Register, clusters: Clusters, reads: Ints) -> tuple[Step, ...]:
    """Old write, newer completed write, and the one of `reads` that came soonest after its write."""
    read = _soonest(clusters, reads)
    write = clusters.dictating[read]
    completed = clusters.write_end < clusters.read_start[read]
    newer = int(np.argmax(np.where(completed, clusters.write_start, -2)))
    return steps(
        (register, int(clusters.write_row[write]), "the old value"),
        (register, int(clusters.write_row[newer]), "newer; completed before the read began"),
        (register, int(clusters.read_row[read]), "returned the old value"),
    )


def reverted(register: Register, clusters: Clusters, reads: Ints) -> tuple[Step, ...]:
    """Old write, newer write, a read that saw the newer, and the one of `reads` that came soonest after its write."""
    read = _soonest(clusters, reads)
    write = clusters.dictating[read]
    before = clusters.read_end < clusters.read_start[read]
    seen = int(np.argmax(np.where(before, clusters.write_start[clusters.dictating], -2)))
    newer = clusters.dictating[seen]
    return steps(
        (register, int(clusters.write_row[write]), "the old value"),
        (register, int(clusters.write_row[newer]), "newer; began after the old write had completed"),
        (register, int(clusters.read_row[seen]), "saw the newer value; completed before the last read began"),
        (register, int(clusters.read_row[read]), "went back to the old value"),
    )


def _soonest(clusters: Clusters, reads: Ints) -> int:
    waited = clusters.read_end[reads] - clusters.write_start[clusters.dictating[reads]]
    return int(reads[np.argmin(waited)])


def inversion(register: Register, clusters: Clusters, pair: Ints) -> tuple[Step, ...]:
    """The writes of both values and, of each value, the operation that ended first and the one that began last."""
    rows: dict[int, str] = {}
    for cluster in pair:
        write = int(clusters.write_row[cluster])
        value = repr(
            register.initial if write == INITIAL_ROW else register.text(int(register.operations[write]["value"]))
        )
        mine = np.flatnonzero(clusters.dictating == cluster)
        marks = [write]
        if len(mine):
            marks.append(int(clusters.read_row[mine[np.argmin(clusters.read_end[mine])]]))
            marks.append(int(clusters.read_row[mine[np.argmax(clusters.read_start[mine])]]))
        rows |= dict.fromkeys(marks, f"one order needs {value} first, the other last")
    return steps(*((register, row, note) for row, note in rows.items()))


def unwritten(register: Register, clusters: Clusters, row: int) -> tuple[Step, ...]:
    """The last write that completed before the read, and the read of a text that nobody had begun to write."""
    began = register.operations["start"][row] - register.operations["start"][0]
    completed = np.where(clusters.write_end < began, clusters.write_end, -2)
    last = int(clusters.write_row[int(np.argmax(completed))])
    return steps((register, last, "the last completed write"), (register, row, "nobody had begun to write this"))


def torn(register: Register, clusters: Clusters, row: int) -> tuple[Step, ...]:
    """The latest write of each field of the torn text that began before the read ended, and the read."""
    read = register.operations[row]
    fields = register.text(int(read["value"])).split()
    parts: dict[int, list[str]] = {}
    for position, part in enumerate(fields):
        parts.setdefault(_latest_with(register, clusters, row, position, part), []).append(part)
    sources: list[Noted] = [(register, at, f"its {' '.join(texts)} was read") for at, texts in parts.items()]
    return steps(*sources, (register, row, "fields of different writes"))


def _latest_with(register: Register, clusters: Clusters, row: int, position: int, part: str) -> int:
    """Row of the latest write, begun before the read at `row` ended, whose text has `part` as that field."""
    fitting = [i for i, text in enumerate(register.values) if text.split()[position : position + 1] == [part]]
    written = clusters.write_row[1:]
    began = register.operations["start"][written] <= register.operations["end"][row]
    source = written[began & np.isin(register.operations["value"][written], fitting)]
    return int(source[-1]) if len(source) else INITIAL_ROW
