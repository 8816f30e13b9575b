"""Make a failing case small: many smaller candidates in one guest call, the first that still fails is taken."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from labs.deadline import Deadline
from labs.model.act import Act, Case
from labs.model.cgroup import parent
from labs.model.explain import Wrong, refusals, without
from labs.model.fit import fit
from labs.model.versions import Kernel

FEW = 4  # candidates that share the runs of a round
Attempt = Callable[[Sequence[Case]], list[Wrong | None]]


def shrink(found: Wrong, attempt: Attempt, kernel: Kernel, deadline: Deadline) -> Wrong:
    """The smallest example of the same that was seen. `attempt` runs candidates, each as often as it takes."""
    # what the model alone could do without comes first; a run has to show that the kernel can, too
    needed = without(found, kernel, lambda told: True).ran.case
    for guesses in [[_flat(needed), needed]] * 3 + [[without(found, kernel, refusals).ran.case]]:
        better = _better(found, [fit(case, kernel) for case in guesses], attempt, deadline)
        if better is not found:
            found = better
            break
    while not deadline.expired:
        smaller = [fit(candidate, kernel) for candidate in candidates(found.ran.case)]
        better = _better(found, smaller, attempt, deadline)
        if better is found:
            break
        found = better
    return found


def _better(found: Wrong, cases: Sequence[Case], attempt: Attempt, deadline: Deadline) -> Wrong:
    """What the first of the cases shows that are smaller and show the same; few at once where luck decides."""
    smaller = [case for case in dict.fromkeys(cases) if cost(case) < cost(found.ran.case)]
    few = FEW if any(case.lanes for case in smaller) else len(smaller)
    for at in range(0, len(smaller), few or 1):
        best = _best(found, attempt(smaller[at : at + few]))
        if best is not found or deadline.expired:
            return best
    return found


def _best(found: Wrong, results: Sequence[Wrong | None]) -> Wrong:
    """The smallest among what was found and what shows the same."""
    same = [result for result in results if result is not None and result.kind == found.kind]
    return min([found, *same], key=lambda result: cost(result.ran.case))


def cost(case: Case) -> tuple[int, int, int]:
    """Fewer acts are better, then fewer lanes, then groups nearer to the sequence's own."""
    acts = case.acts
    return len(acts), sum(bool(lane) for lane in case.lanes), sum(len(act.group) for act in acts)


def candidates(case: Case) -> Iterator[Case]:
    """Smaller cases: without a lane, without a run of acts, with a group merged into its parent."""
    for number in range(len(case.lanes)):
        yield replace(case, lanes=(*case.lanes[:number], *case.lanes[number + 1 :]))
    for less in _shorter(case.before):
        yield replace(case, before=less)
    for number, lane in enumerate(case.lanes):
        for less in _shorter(lane):
            yield replace(case, lanes=(*case.lanes[:number], less, *case.lanes[number + 1 :]))
    for less in _shorter(case.after):
        yield replace(case, after=less)
    for group in {act.group for act in case.acts if act.group}:
        yield Case(
            _lifted(case.before, group), tuple(_lifted(lane, group) for lane in case.lanes), _lifted(case.after, group)
        )


def _shorter(acts: Sequence[Act]) -> Iterator[tuple[Act, ...]]:
    """Without each half, quarter and so on, down to without each single act."""
    size = len(acts)
    while size:
        for start in range(0, len(acts), size):
            yield (*acts[:start], *acts[start + size :])
        size //= 2


def _flat(case: Case) -> Case:
    """All in the sequence's own group, and nothing done that only made other groups."""
    for group in sorted({act.group for act in case.acts if act.group}, key=len, reverse=True):
        case = Case(
            _lifted(case.before, group), tuple(_lifted(lane, group) for lane in case.lanes), _lifted(case.after, group)
        )
    return replace(case, before=tuple(act for act in case.before if act.file != "cgroup.subtree_control"))


def _lifted(acts: Sequence[Act], group: str) -> tuple[Act, ...]:
    above = parent(group)
    return tuple(
        replace(act, group=above) if act.group == group else act
        for act in acts
        if not (act.group == group and act.name in ("mkdir", "rmdir"))
    )
