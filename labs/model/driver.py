"""Run random cases, judge each by the model, and tell the smallest example of what it does not explain."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from labs.deadline import Deadline
from labs.invariant.verdict import Call, Step, Verdict, pure
from labs.model.act import NEVER_RETURNED, Case, Ran, Told
from labs.model.explain import Undecided, Wrong, reads, without, wrong
from labs.model.saved import dump
from labs.model.shrink import Attempt, cost, shrink
from labs.model.versions import Kernel

Run = Callable[[Sequence[Case]], list[Ran]]
SEQUENTIAL, CONCURRENT = "random sequence", "random concurrent sequence"  # the invariants' names
KINDS = 3  # of what is wrong: examples of the first ones are made smaller


@dataclass(frozen=True)
class Effort:
    """How hard to try for a small example: runs of all candidates of a round, and seconds in all."""

    runs: int = 400
    seconds: float = 20
    sequential: int = 8  # runs of a candidate without lanes: what dies by itself takes its time


@dataclass
class Judged:
    """What came of many runs."""

    wrongs: list[Wrong] = field(default_factory=list)
    sequences: int = 0
    steps: int = 0
    overlaps: int = 0  # steps that ran while a step of another lane ran
    undecided: int = 0

    def add(self, rans: Sequence[Ran], kernel: Kernel) -> None:
        for ran in rans:
            self.sequences += 1
            self.steps += len(list(ran))
            self.overlaps += overlaps(ran)
            try:
                found = wrong(ran, kernel)
            except Undecided:
                self.undecided += 1
                continue
            if found:
                self.wrongs.append(without(found, kernel, reads))

    def looked_at(self, concurrent: bool) -> dict[str, float]:
        seen: dict[str, float] = {"sequences": self.sequences, "steps": self.steps}
        return seen | ({"overlapping steps": self.overlaps} if concurrent else {})


def overlaps(ran: Ran) -> int:
    """Steps of lanes that ran while a step of another lane ran."""
    spans = [(number, seen) for number, lane in enumerate(ran.lanes) for _, seen in lane]
    return sum(
        any(lane != other and one.start < two.end and two.start < one.end for other, two in spans)
        for lane, one in spans
    )


Finding = tuple[Verdict, tuple[str, ...]]  # a verdict, and the names of the files that it is about


def examine(
    run: Run, batches: Iterable[Sequence[Case]], kernel: Kernel, *, concurrent: bool, replay: str, effort: Effort
) -> list[Finding]:
    """Run batches of cases until some are wrong, and judge them: a finding for each kind of what is wrong, or one.

    `replay`: the command that does the same again.
    """
    judged, rans = Judged(), []
    for cases in batches:
        rans += run(cases)
        judged.add(rans[-len(cases) :], kernel)
        if judged.wrongs:
            break
    if judged.wrongs:
        name, looked_at = name_of(concurrent), judged.looked_at(concurrent)
        examples = smallest(judged.wrongs, attempts(run, kernel, effort), kernel, effort.seconds)
        return [(failed(name, judged, looked_at, found, replay), files_of(found, kernel)) for found in examples]
    call = Call(f"driver.{explained.__name__}", {"rans": rans, "kernel": kernel, "concurrent": concurrent})
    return [(replace(_held(judged, concurrent), call=call), ())]


def name_of(concurrent: bool) -> str:
    return CONCURRENT if concurrent else SEQUENTIAL


@pure
def explained(rans: Sequence[Ran], kernel: Kernel, *, concurrent: bool) -> Verdict:
    """Judge runs that are there: does the model explain all of them?"""
    judged = Judged()
    judged.add(rans, kernel)
    if judged.wrongs:
        reason = f"{len(judged.wrongs)} of {judged.sequences} sequences are not explained: {judged.wrongs[0]}"
        return Verdict(name_of(concurrent), "fail", reason, judged.looked_at(concurrent))
    return _held(judged, concurrent)


def _held(judged: Judged, concurrent: bool) -> Verdict:
    name, looked_at = name_of(concurrent), judged.looked_at(concurrent)
    if judged.undecided:
        reason = f"nothing can be said of {judged.undecided} of {judged.sequences} sequences"
        return Verdict(name, "inconclusive", reason, looked_at)
    if not judged.steps or (concurrent and not judged.overlaps):
        return Verdict(name, "inconclusive", "no steps ran at the same time", looked_at)
    reason = f"the model explains all {judged.steps} steps of {judged.sequences} sequences"
    return Verdict(name, "pass", reason, looked_at)


def smallest(wrongs: Sequence[Wrong], attempt: Attempt, kernel: Kernel, seconds: float) -> list[Wrong]:
    """One small example of each kind of what is wrong."""
    deadline = Deadline(seconds, "making a sequence smaller")
    examples = []
    for kind in list(dict.fromkeys(found.kind for found in wrongs))[:KINDS]:
        first = min((found for found in wrongs if found.kind == kind), key=lambda found: cost(found.ran.case))
        stuck = first.seen.error == NEVER_RETURNED  # each run of it would leave a thread behind
        examples.append(first if stuck else shrink(first, attempt, kernel, deadline))
    return examples


def failed(name: str, judged: Judged, looked_at: dict[str, float], found: Wrong, replay: str) -> Verdict:
    case = found.ran.case
    size = len(case.acts)
    what = "fit no order of their operations" if case.lanes else "differ from the model"
    many = f"{sum(one.kind == found.kind for one in judged.wrongs)} of {judged.sequences} sequences {what}"
    figures = {"violations": float(len(judged.wrongs)), "operations of the smallest": float(size)}
    reason = f"{many}; in {size} operations: {in_line(case)}: {found}; again: {replay}"
    return Verdict(name, "fail", reason, looked_at, figures, steps(found), f"{case}\n\n{dump([found.ran])}")


def in_line(case: Case, most: int = 8) -> str:
    """A small case on one line, as 'mkdir a; [write a/cpu.max 'max' | write a/cpu.max.burst '500']; read a/cpu.max'."""
    if len(case.acts) > most:
        return "see there"
    lanes = " | ".join("; ".join(map(str, lane)) for lane in case.lanes if lane)
    return "; ".join([*map(str, case.before), *([f"[{lanes}]"] if lanes else []), *map(str, case.after)])


def files_of(found: Wrong, kernel: Kernel) -> tuple[str, ...]:
    """Files that it is about. Where luck decides, an act that the model could do without says nothing."""
    about = without(found, kernel, lambda told: True) if found.ran.lanes else found
    return tuple(sorted(about.files))


def attempts(run: Run, kernel: Kernel, effort: Effort) -> Attempt:
    """Try candidates: those with lanes many times, since what they show is a matter of luck."""

    def times(case: Case, share: int) -> int:
        if not case.lanes:
            return effort.sequential
        slow = 10 if case.processes else 1  # the start and end of a process take as long as many other operations
        return max(20, effort.runs // share // slow)

    def attempt(candidates: Sequence[Case]) -> list[Wrong | None]:
        counts = [times(case, len(candidates)) for case in candidates]
        rans = iter(run([case for case, count in zip(candidates, counts, strict=True) for _ in range(count)]))
        results: list[Wrong | None] = []
        for count in counts:
            judged = Judged()
            judged.add([next(rans) for _ in range(count)], kernel)
            results.append(min(judged.wrongs, key=lambda found: cost(found.ran.case), default=None))
        return results

    return attempt


def steps(found: Wrong) -> tuple[Step, ...]:
    """The counterexample: each step with its time, in ns from the first."""
    rows: list[tuple[str, Told]] = [("before", told) for told in found.ran.before]
    rows += [(f"lane {number}", told) for number, lane in enumerate(found.ran.lanes) for told in lane]
    rows += [("after", told) for told in found.ran.after]
    origin = min((seen.start for _, (_, seen) in rows if seen.start), default=0)
    note = f"the model allows {' or '.join(found.allowed)}" if found.allowed else ""
    return tuple(
        Step(
            thread,
            str(act),
            str(seen),
            max(0, seen.start - origin),
            max(0, seen.end - origin),
            note if (act, seen) == (found.act, found.seen) else "",
        )
        for thread, (act, seen) in rows
    )
