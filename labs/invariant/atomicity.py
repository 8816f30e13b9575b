"""Atomicity: each cgroup file that holds one value is judged as an atomic register.

Three invariants over the same registers: all that was read fits one order of the writes; a value that was written is
there when its writer looks; a write that is refused changes nothing. A register must hold *all* writes of its file:
a write that was made and not recorded looks like a violation.

A violation is a fail however little was seen; without one, too little seen is inconclusive: in all, or of one file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from labs.invariant.findings import KINDS, Findings, examine, torn_reads
from labs.invariant.readback import Updates, by_group, group_of, writers_of
from labs.invariant.refusal import REFUSAL_KINDS, Refusals
from labs.invariant.verdict import Verdict, pure
from labs.invariant.zones import overlaps
from labs.probe.history import Register

# Rule of three: n cases without a violation bound its rate at 3/n with 95 % confidence. With fewer a pass would
# still allow 3 violations in 1000 operations, or 3 in 100 of those that really met another thread.
MIN_OPERATIONS = 1000
MIN_OVERLAPS = 100
# What no file may lack, however much others have: reads and writes of each one by itself and, as threads meet by
# chance, meetings of each kind of file over all groups. 15 containers under emulation gave 110 and more, and 63.
MIN_EACH = 20
MIN_MET = 5
# Of each kind of file: refusing a value is deterministic, and 20 meet each of its few invalid values more than once.
MIN_REJECTED = 20

Count = tuple[str, Mapping[str, int]]  # a file, or a kind of file, and how often what was seen of it


@pure
def linearizable(
    registers: Sequence[Register], *, minimum_operations: int = MIN_OPERATIONS, minimum_overlaps: int = MIN_OVERLAPS
) -> Verdict:
    """Judge "linearizable register" over all registers together; O(n log n), a million operations in under a second.

    Holds for a value that is one word stored under a lock, as cpu.weight (__sched_group_set_shares under
    shares_mutex, kernel/sched/fair.c, 6.1). Violations, counted in `figures`:

    torn       a text that nobody wrote whose fields each come, at their place, from texts that were written
    foreign    another text that nobody wrote, or whose write had not begun when the read ended
    reverted   an older value although an earlier read had already returned a newer one
    stale      an older value although a newer write had completed before the read began
    inversion  a value of which the above is not true and for which there still is no order of the writes

    `attribute` says what values must be and which reads are set aside as ambiguous. Failed operations have no effect.
    `looked_at` counts what was judged; overlaps are operations in flight together with one of another thread on the
    same register, at least one of the two a write.
    """
    findings = [examine(register) for register in registers]
    counts = {kind: sum(len(found.wrong[kind]) for found in findings) for kind in KINDS}
    counted = [count for found in findings for count in _counted(found)]
    looked_at = _looked_at(registers, findings, counted)
    figures = {kind: float(count) for kind, count in counts.items()}
    name, files = "linearizable register", _files(registers)
    worst = next((kind for kind in KINDS if counts[kind]), None)
    if worst:
        shown = next(found for found in findings if len(found.wrong[worst]))
        reason = f"{_listing(counts)} among {looked_at['reads']:.0f} reads of {files}"
        evidence = shown.register.path
        looked_at |= _until(registers, [found.first_seen() for found in findings])
        return Verdict(name, "fail", reason, looked_at, figures, shown.counterexample(worst), evidence)
    each = {"reads": MIN_EACH, "writes": MIN_EACH, "overlaps": min(MIN_MET, minimum_overlaps)}
    minimum = {**each, "operations": minimum_operations, "overlaps": minimum_overlaps}
    little = _too_little(looked_at, minimum, counted, each)
    if little:
        return Verdict(name, "inconclusive", little, looked_at, figures)
    reason = (
        f"{looked_at['operations']:.0f} operations on {files} fit one order; {looked_at['overlaps']:.0f} overlapped"
    )
    return Verdict(name, "pass", reason, looked_at, figures)


@pure
def no_lost_update(
    registers: Sequence[Register], *, minimum_operations: int = MIN_OPERATIONS, minimum_overlaps: int = MIN_OVERLAPS
) -> Verdict:
    """Judge "no lost update": what a file's only writer wrote is there when it reads the file as its next operation.

    Judges registers without a second writer thread. Pass all files of a directory together: they may be coupled.
    `looked_at` counts operations (writes read back) and overlaps (those during which a coupled file was written);
    `figures` give "lost F", "writes F" and "torn F" (reads by anybody) per file name F.

    Known to be violated by cpu.max and cpu.max.burst from 5.14 to 7.3.4: cpu_max_write reads period and burst, and
    cpu_burst_write_u64 reads period and quota, before tg_set_cfs_bandwidth takes cfs_constraints_mutex, so each may
    write back what the other has just replaced; cpu_max_show reads without cfs_b->lock (kernel/sched/core.c).
    """
    judged = [register for register in registers if writers_of(register) <= 1]  # none is too little seen, and told
    groups = by_group(registers)
    updates = [Updates.of(register, groups[group_of(register)]) for register in judged]
    figures: Counter[str] = Counter()
    for update in updates:
        figures[f"lost {update.register.name}"] += len(update.lost.read)
        figures[f"writes {update.register.name}"] += len(update.readbacks.read)
        figures[f"torn {update.register.name}"] += len(torn_reads(update.register))
    looked_at: dict[str, float] = {
        "operations": sum(len(update.readbacks.read) for update in updates),
        "overlaps": sum(update.overlaps for update in updates),
        "registers": len(judged),
        "registers of several writers": sum(writers_of(register) > 1 for register in registers),
    }
    name, counts = "no lost update", {key: float(count) for key, count in figures.items()}
    losing = [update for update in updates if len(update.lost.read)]
    if losing:
        files = sorted({update.register.name for update in losing})
        reason = ", ".join(
            f"{figures[f'lost {file}']} of {figures[f'writes {file}']} writes of {file}" for file in files
        )
        shown = max(losing, key=lambda update: update.witnessed)
        looked_at |= _until(registers, [update.first_seen() for update in losing])
        return Verdict(name, "fail", f"lost {reason}", looked_at, counts, shown.counterexample(), shown.register.path)
    each = {"writes read back": MIN_EACH, "overlaps": min(MIN_MET, minimum_overlaps)}
    counted = [(update.register.path, {"writes read back": len(update.readbacks.read)}) for update in updates]
    counted += [(update.register.name, {"overlaps": update.overlaps}) for update in updates]
    little = _too_little(looked_at, {"operations": minimum_operations, "overlaps": minimum_overlaps}, counted, each)
    if little:
        return Verdict(name, "inconclusive", little, looked_at, counts)
    reason = f"{looked_at['operations']:.0f} writes of {_files(judged)} were there when read back"
    return Verdict(name, "pass", f"{reason}; {looked_at['overlaps']:.0f} overlapped", looked_at, counts)


@pure
def rejected_write(registers: Sequence[Register], *, minimum_rejected: int = MIN_REJECTED) -> Verdict:
    """Judge "rejected write leaves the old value", from the errno that each value must give (Register.expect).

    Violations, counted in `figures`:

    accepted     an invalid value was taken
    wrong errno  an invalid value was refused with another error than promised
    refused      a valid value was refused
    leaked       a read returned the text of an invalid value
    changed      a writer's next read after its rejected write did not return what it had last written or read,
                 though in between nobody wrote this file or another of the same directory (they may be coupled)

    A write to a group that was removed meanwhile (ENODEV, ENOENT) is no violation. `looked_at` counts rejected
    writes and undisturbed readbacks; without any of the latter nobody saw the old value, and that is inconclusive.

    Promised by the range checks ahead of any store, as in cpu_weight_write_u64: -ERANGE, and cpu_max_write: -EINVAL
    (kernel/sched/core.c, 6.1).
    """
    groups = by_group(registers)
    refusals = [Refusals.of(register, groups[group_of(register)]) for register in registers]
    counts = {kind: sum(len(found.wrong[kind]) for found in refusals) for kind in REFUSAL_KINDS}
    looked_at: dict[str, float] = {
        "operations": sum(len(register.operations) for register in registers),
        "rejected": sum(found.rejected for found in refusals),
        "undisturbed": sum(found.undisturbed for found in refusals),
        "registers": len(registers),
    }
    figures = {kind: float(count) for kind, count in counts.items()}
    name = "rejected write leaves the old value"
    worst = next((kind for kind in REFUSAL_KINDS if counts[kind]), None)
    if worst:
        shown = next(found for found in refusals if len(found.wrong[worst]))
        reason = f"{_listing(counts)} on {_files(registers)}"
        return Verdict(name, "fail", reason, looked_at, figures, shown.counterexample(worst), shown.register.path)
    minimum = {"rejected": minimum_rejected, "undisturbed": min(MIN_MET, minimum_rejected)}
    each = {**minimum, "undisturbed": min(1, minimum_rejected)}  # that nobody writes meanwhile is rare on a busy host
    counted = [
        (found.register.name, {"rejected": found.rejected, "undisturbed": found.undisturbed}) for found in refusals
    ]
    little = _too_little(looked_at, minimum, counted, each)
    if little:
        return Verdict(name, "inconclusive", little, looked_at, figures)
    reason = f"{looked_at['rejected']:.0f} invalid writes of {_files(registers)} were refused as promised"
    return Verdict(name, "pass", f"{reason}; {looked_at['undisturbed']:.0f} looked at after", looked_at, figures)


def _counted(found: Findings) -> list[Count]:
    """What was seen of a file: of itself, and of its kind."""
    clusters, operations = found.clusters, found.register.operations
    own = {"reads": len(clusters.read_row) + len(clusters.unwritten), "writes": len(clusters.write_row) - 1}
    return [
        (found.register.path, own),
        (found.register.name, {"overlaps": overlaps(operations[operations["errno"] == 0])}),
    ]


def _looked_at(
    registers: Sequence[Register], findings: Sequence[Findings], counted: Iterable[Count]
) -> dict[str, float]:
    filled = [register.operations for register in registers if len(register.operations)]
    seen = Counter({"reads": 0, "writes": 0, "overlaps": 0})
    for _, counts in counted:
        seen.update(counts)
    begin = min((int(operations["start"][0]) for operations in filled), default=0)
    return {
        "operations": seen["reads"] + seen["writes"],
        "reads": seen["reads"],
        "writes": seen["writes"],
        "overlaps": seen["overlaps"],
        "ambiguous": sum(found.clusters.ambiguous for found in findings),
        "failed": sum(int(np.count_nonzero(operations["errno"])) for operations in filled),
        "registers": len(registers),
        "seconds": (max((int(operations["end"].max()) for operations in filled), default=0) - begin) / 1e9,
    }


def _until(registers: Sequence[Register], seen: Sequence[int | None]) -> dict[str, float]:
    """How long it took, and how many operations had ended, until the first violation had been seen."""
    first = min(at for at in seen if at is not None)
    filled = [register.operations for register in registers if len(register.operations)]
    begin = min(int(operations["start"][0]) for operations in filled)
    ended = sum(int(np.count_nonzero(operations["end"] <= first)) for operations in filled)
    return {"seconds until seen": (first - begin) / 1e9, "operations until seen": float(ended)}


def _too_little(
    looked_at: Mapping[str, float],
    minimum: Mapping[str, int],
    counted: Iterable[Count],
    each: Mapping[str, int],
) -> str:
    """What was seen too rarely, in all or else of one file, as a reason; empty if all was seen often enough."""
    files: dict[str, Counter[str]] = {}
    for file, counts in counted:
        files.setdefault(file, Counter()).update(counts)
    few = _few("", looked_at, minimum) or [line for file in files for line in _few(f"{file}: ", files[file], each)]
    return f"too little seen: {'; '.join(few)}" if few else ""


def _few(file: str, counts: Mapping[str, float], minimum: Mapping[str, int]) -> list[str]:
    return [
        f"{file}{counts[what]:.0f} {what}, needs {least}"
        for what, least in minimum.items()
        if what in counts and counts[what] < least
    ]


def _listing(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)


def _files(registers: Sequence[Register]) -> str:
    return ", ".join(sorted({register.name for register in registers})) or "no file"
