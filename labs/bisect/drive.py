"""Drive: ask a judge, log, decide, until there is an answer."""

from __future__ import annotations

from collections.abc import Callable

from labs.bisect.plan import Plan, effective
from labs.bisect.search import Answer, Ask, decide
from labs.bisect.step import Log, Step
from labs.bisect.subset import ONLY, Subset, smallest

Judge = Callable[[str], Step]


def _quiet(ask: Ask, step: Step) -> None:
    pass


def _nothing(name: str) -> None:
    pass


def _unknown(name: str) -> Step | None:
    return None


def bisect(
    plan: Plan,
    judge: Judge,
    log: Log,
    *,
    told: Callable[[Ask, Step], None] = _quiet,
    known: Callable[[str], Step | None] = _unknown,
    asking: Callable[[str], None] = _nothing,
) -> Answer:
    """Search to the end, going on from what the log has. What the judge raises ends it; the log resumes.

    `asking` is called before a judge is. `known` may answer the first question about a candidate from an earlier
    search: never one of a noisy search, and never the last look at the ends.
    """
    while isinstance(move := decide(plan, log.steps), Ask):
        name = plan.names[move.index]
        first = plan.runs == 1 and not any(step.candidate == name for step in log.steps)
        step = known(name) if first else None
        if step is None:
            asking(name)
            step = judge(name)
        log.add(step)
        told(move, step)
    return move


def reduce(plan: Plan, culprit: int, judge: Judge, log: Log, told: Callable[[Ask, Step], None] = _quiet) -> Subset:
    """The fewest patches, `culprit` among them, that show what the prefix that ends with it shows; from 1, in order.

    Candidates are called by their patches, as `only:1+4`. What the log has is not run again.
    """

    def shows(others: Subset) -> bool:
        name = called((*others, culprit))
        if not any(step.candidate == name for step in log.steps):
            log.add(judge(name))
            told(Ask(len(plan.names) - 1, f"without the rest of 1 to {culprit}", 1), log.steps[-1])
        return any(step.candidate == name and step.outcome == plan.high for step in effective(plan, log.steps))

    return (*smallest(range(1, culprit), shows), culprit)


def called(patches: Subset) -> str:
    """Name of a set of patches; one that is a prefix has the prefix's.

    >>> called((1, 4)), called((4,)), called((1, 2, 3))
    ('only:1+4', 'only:4', '3')
    """
    prefix = patches == tuple(range(1, len(patches) + 1))
    return str(patches[-1]) if prefix else ONLY + "+".join(map(str, patches))
