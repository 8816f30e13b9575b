"""Drive: ask a judge, log, decide, until there is an answer."""

from __future__ import annotations

from collections.abc import Callable

from labs.bisect.plan import Plan
from labs.bisect.search import Answer, Ask, decide
from labs.bisect.step import Log, Step

Judge = Callable[[str], Step]


def _quiet(ask: Ask, step: Step) -> None:
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
) -> Answer:
    """Search to the end, going on from what the log has. What the judge raises ends it; the log resumes.

    `known` may answer the first question about a candidate from an earlier search: never one of a noisy search, and
    never the last look at the ends.
    """
    while isinstance(move := decide(plan, log.steps), Ask):
        name = plan.names[move.index]
        first = plan.runs == 1 and not any(step.candidate == name for step in log.steps)
        step = (known(name) if first else None) or judge(name)
        log.add(step)
        told(move, step)
    return move
