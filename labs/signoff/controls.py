"""Controls: an invariant is proven when it was seen to fail where it must. A suite that cannot fail proves nothing.

Three kinds: a cell of this sign-off in which a planted defect was switched on (and the same binary with it off); a
defect that `labs prove` has booted many times, with the same code; and faults planted into the evidence on which the
patched cell passed. The first two show that suite, probe and judge together see a fault; the last that the judge sees
one in evidence of just this size and shape.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from labs.catalog import known_defects
from labs.console import scan
from labs.errors import BadInput
from labs.invariant.verdict import JUDGES, Verdict
from labs.judged import Reader
from labs.model.act import Told
from labs.model.driver import explained
from labs.probe.history import READ, WRITE, Register
from labs.promise.faults import shortened, tally
from labs.prove.boots import Log
from labs.prove.tally import Clean, Row, clean, row
from labs.signoff.evidence import CellEvidence, Evidence, violated
from labs.untrusted import read, reading

Arguments = dict[str, Any]
PROOF, RESULT, ASKED = "proof", "prove.json", "plan.json"  # what labs prove has left, if it was given
LEAST = 20  # boots of a proof with a defect, and as many without any: fewer prove nothing
OOPS = "[  999.000000] BUG: kernel NULL pointer dereference, address: 0000000000000000\n"


@dataclass(frozen=True)
class Control:
    """One way in which an invariant was made to fail. `caught` of `planted` faults were."""

    invariant: str
    how: str
    planted: int
    caught: int

    @property
    def proven(self) -> bool:
        return 0 < self.planted == self.caught


def controls(evidence: Evidence) -> list[Control]:
    """All controls of the invariants that passed in a patched cell, by invariant."""
    invariants = dict.fromkeys(
        result.verdict.invariant
        for _, patched in evidence.pairs
        for result in patched.results
        if result.outcome == "pass" and result.verdict
    )
    tested = {(cell.planned.cell.kernel, cell.planned.cell.runtime) for _, cell in evidence.pairs}
    found = [*_cells(evidence), *_bases(evidence), *proven(evidence.folder, tested), *_planted(evidence)]
    return [one for invariant in invariants for one in found if one.invariant == invariant]


def proven(folder: Path, tested: Collection[tuple[str, str]]) -> list[Control]:
    """What a proof in the sign-off's folder says, counted again boot by boot; BadInput when it is malformed. Of another
    kernel and runtime than those that were `tested` it proves nothing."""
    path = folder / PROOF / RESULT
    if not path.is_file():
        return []
    with reading(f"{PROOF}/{RESULT}: is malformed"):
        rows = json.loads(read(path))["defects"]
        boots = Log.open(path.parent).boots
        asked = _asked(folder)
        of = (str(asked["kernel"]), str(asked["runtime"]))
        other = "" if of in tested else f"; it is of kernel {of[0]} and runtime {of[1]}, which are not tested here"
        named = dict.fromkeys((str(one["invariant"]), str(one["defect"])) for one in rows if one["invariant"])
        quiet = {one.invariant: one for one in clean(boots)}
        return [
            _row(name, row(name, defect, boots, (name,), _caught(defect)), quiet.get(name), other)
            for name, defect in named
            if any(boot.defect == defect for boot in boots)
        ]


def proof_code(folder: Path) -> str:
    """The digest of the code that a proof was made with; '' where there is no proof."""
    with reading(f"{PROOF}/{ASKED}: is malformed"):
        return str(_asked(folder)["source"]) if (folder / PROOF / ASKED).is_file() else ""


def _asked(folder: Path) -> dict[str, Any]:
    asked: dict[str, Any] = json.loads(read(folder / PROOF / ASKED))
    return asked


def _caught(defect: str) -> tuple[str, ...]:
    """The outcomes that show a defect: one that the base has by itself is in the table of known ones."""
    known = {one.id for one in known_defects()} & set(defect.split(" + "))
    return ("fail", "known") if known else ("fail",)


def _row(invariant: str, on: Row, quiet: Clean | None, other: str) -> Control:
    """One invariant against one defect: as caught as `labs prove` asks for, in enough boots, and quiet in as many."""
    boots, alarms = (quiet.boots, quiet.alarms) if quiet else (0, 0)
    how = f"labs prove: {on.defect} caught in {on.caught} of {on.boots} boots"
    how += f", false alarms in {on.alarms + alarms} of {on.off + boots} without it"
    few = f"; {LEAST} of each are needed" if min(on.boots, boots) < LEAST else ""
    return Control(invariant, how + few + other, 1, int(on.proven and not (alarms or few or other)))


def _bases(evidence: Evidence) -> Iterator[Control]:
    """The defect that the series mends, in its base."""
    for base, patched in evidence.pairs:
        for invariant in dict.fromkeys(r.verdict.invariant for r in violated(base.results) if r.verdict):
            held = [r for r in patched.judging(invariant) if r.case in {v.case for v in violated(base.results)}]
            if held and all(result.outcome == "pass" for result in held):
                yield Control(invariant, f"{base.id}: what the series mends", 1, 1)


def _cells(evidence: Evidence) -> Iterator[Control]:
    """Planted defects: on in one cell, off in another of the same binary."""
    for on in evidence.controls:
        if on.planned.cell.role != "patched":
            continue
        off = next((one for one in evidence.controls if _twin(on, one)), None)
        for invariant in on.planned.breaks:
            caught = any(result.outcome == "fail" for result in on.judging(invariant))
            quiet = off is None or not any(result.outcome == "fail" for result in off.judging(invariant))
            if on.judging(invariant):
                yield Control(invariant, f"planted defect {on.id}", 1, int(caught and quiet))


def _twin(on: CellEvidence, other: CellEvidence) -> bool:
    return other.planned.cell == replace(on.planned.cell, role="off")


def _planted(evidence: Evidence) -> Iterator[Control]:
    """Faults planted into what was judged in the patched cells, summed up by invariant."""
    counts: dict[str, tuple[int, int]] = {}
    for _, patched in evidence.pairs:
        if patched.record is None:
            continue
        reader = Reader(patched.record.path)
        for result in patched.results:
            if result.outcome == "pass" and result.verdict and result.judged:
                planted, caught = _of_call(reader, result.judged)
                before = counts.get(result.verdict.invariant, (0, 0))
                counts[result.verdict.invariant] = (before[0] + planted, before[1] + caught)
    for invariant, (planted, caught) in counts.items():
        if planted:
            yield Control(invariant, "planted in the evidence that it passed on", planted, caught)


def _of_call(reader: Reader, name: str) -> tuple[int, int]:
    """How many faults were planted into one call's arguments, and how many of them its judge called a violation."""
    try:
        with reading(name):
            return _planted_in(*reader.call(name))
    except BadInput:
        return 1, 0


def _planted_in(by: str, arguments: Arguments) -> tuple[int, int]:
    if by == "promise.judge":
        promise = shortened(arguments["promise"])
        clean = list(arguments["rounds"][0])[: len(promise.rows)]
        counted = tally(promise, clean)
        return counted.planted, counted.caught
    planter = PLANTERS.get(by)
    faults = list(planter(arguments)) if planter else []
    return len(faults), sum(_judged(by, fault).outcome == "fail" for fault in faults)


def _judged(by: str, arguments: Arguments) -> Verdict:
    return JUDGES[by](**arguments)


# One row a judge: its arguments -> the same with one fault each.


def _tail(register: Register, rows: list[tuple[int, int, int, int]], after: int) -> Register:
    """The register with more operations after all that was done: rows of (kind, value, errno, thread)."""
    tail = np.zeros(len(rows), register.operations.dtype)
    for number, (kind, value, error, thread) in enumerate(rows):
        start = after + 1000 * (2 * number + 1)
        tail[number] = (start, start + 500, value, error, thread, kind)
    return register.with_operations(np.concatenate((register.operations, tail)))


def _written(register: Register) -> list[tuple[int, int]]:
    """(thread, value) of each successful write, in order."""
    done = register.operations
    done = done[(done["kind"] == WRITE) & (done["errno"] == 0)]
    return [(int(row["thread"]), int(row["value"])) for row in done[-200:]]


def _on_registers(rows: Callable[[Register], list[tuple[int, int, int, int]]]) -> Callable[[Arguments], Any]:
    """Plant a tail of operations on each register in turn, for which `rows` gives some."""

    def plant(arguments: Arguments) -> Iterator[Arguments]:
        registers = list(arguments["registers"])
        after = max((int(one.operations["end"].max(initial=0)) for one in registers), default=0)
        for number, register in enumerate(registers):
            if made := rows(register):
                changed = [*registers[:number], _tail(register, made, after), *registers[number + 1 :]]
                yield {**arguments, "registers": changed}

    return plant


def _stale(register: Register) -> list[tuple[int, int, int, int]]:
    """A new write is followed by a read of what another write had set before it."""
    written = _written(register)
    pair = next(((new, old) for new in written for old in written if new[1] != old[1]), None)
    if pair is None:
        return []
    (thread, value), (_, old) = pair
    return [(WRITE, value, 0, thread), (READ, old, 0, thread)]


def _accepted(register: Register) -> list[tuple[int, int, int, int]]:
    """A value that must be refused is taken."""
    invalid = np.flatnonzero(register.expect)
    written = _written(register)
    return [(WRITE, int(invalid[0]), 0, written[0][0])] if len(invalid) and written else []


def _step(arguments: Arguments) -> Iterator[Arguments]:
    for number, step in enumerate(arguments["steps"][:5]):
        steps = list(arguments["steps"])
        yield {**arguments, "steps": [*steps[:number], replace(step, code=1), *steps[number + 1 :]]}


def _left(arguments: Arguments) -> Iterator[Arguments]:
    after: Mapping[str, Any] = arguments["after"]
    for kind, names in after.items():
        yield {**arguments, "after": {**after, kind: [*names, "planted"]}}


def _oops(arguments: Arguments) -> Iterator[Arguments]:
    yield {**arguments, "events": [*arguments["events"], *scan(OOPS)]}


def _unlimited(arguments: Arguments) -> Iterator[Arguments]:
    for number, start in enumerate(arguments["starts"]):
        for file in arguments["wanted"]:
            starts = list(arguments["starts"])
            starts[number] = replace(start, seen={**start.seen, file: "max"})
            yield {**arguments, "starts": starts}


def _again(arguments: Arguments) -> Iterator[Arguments]:
    """The first refused write is made a second time."""
    settings = list(arguments["settings"])
    for number, one in enumerate(settings):
        refused = [write for write in one.writes if write.errno in (errno.EINVAL, errno.ERANGE)]
        if one.step == "run" and one.refused and refused:
            changed = replace(one, writes=(*one.writes, refused[0]))
            yield {**arguments, "settings": [*settings[:number], changed, *settings[number + 1 :]]}


def _waited(arguments: Arguments) -> Iterator[Arguments]:
    for number, one in enumerate(arguments["meetings"]):
        meetings = list(arguments["meetings"])
        meetings[number] = replace(one, waited=True, before=one.before + 1000, after=1)
        yield {**arguments, "meetings": meetings}


def _unexplained(arguments: Arguments) -> Iterator[Arguments]:
    """What one act of a run told, before or after its lanes, is something else."""
    rans = list(arguments["rans"])
    for number, ran in enumerate(rans[:20]):
        for part in ("after", "before"):
            if changed := _other_text(getattr(ran, part)):
                yield {**arguments, "rans": [*rans[:number], replace(ran, **{part: changed}), *rans[number + 1 :]]}
                break


def _other_text(told: Sequence[Told]) -> tuple[Told, ...]:
    """The same with another text at the last act that told one; empty where none did."""
    at = next((at for at in reversed(range(len(told))) if told[at][1].text and not told[at][1].error), None)
    if at is None:
        return ()
    act, seen = told[at]
    return (*told[:at], (act, replace(seen, text="planted")), *told[at + 1 :])


PLANTERS: dict[str, Callable[[Arguments], Any]] = {
    "atomicity.linearizable": _on_registers(_stale),
    "atomicity.no_lost_update": _on_registers(_stale),
    "atomicity.rejected_write": _on_registers(_accepted),
    "hygiene.container_steps": _step,
    "hygiene.nothing_left": _left,
    "kernel_health.quiet_kernel": _oops,
    "limits.limits_in_force": _unlimited,
    "limits.refused_once": _again,
    "limits.no_waiting": _waited,
    f"driver.{explained.__name__}": _unexplained,
}
