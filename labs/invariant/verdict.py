"""Verdict: one invariant judged over one body of evidence."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ParamSpec

# Worst first; a set of verdicts is as bad as its worst member.
SEVERITY = ("fail", "error", "not-run", "inconclusive", "unproven", "known", "pass", "skip")
NO_VERDICT = ("error", "not-run")  # infrastructure has ended the case, or it never began: nothing of what is tested
EXIT_CODE = {
    "fail": 1,
    "error": 3,
    "not-run": 3,
    "inconclusive": 4,
    "unproven": 4,
    "known": 0,
    "pass": 0,
    "skip": 0,
}


@dataclass(frozen=True)
class Step:
    """One operation of a counterexample: who did what, when (ns from the first step), and what came of it."""

    thread: str
    operation: str  # as 'write cpu.max' or 'read cpu.max.burst'
    value: str
    start: int
    end: int
    note: str = ""  # why this step matters, as 'completed before the read began'


@dataclass(frozen=True)
class Call:
    """The function that gave a verdict, and all that it was given: enough to judge again."""

    by: str  # a name in JUDGES
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Verdict:
    """Outcome of one invariant. `looked_at` says how much was seen, as {'operations': 812345, 'overlaps': 40211}."""

    invariant: str
    outcome: str
    reason: str
    looked_at: dict[str, float] = field(default_factory=dict)
    figures: dict[str, float] = field(default_factory=dict)  # measured values worth a table or a plot, units in the key
    counterexample: tuple[Step, ...] = ()
    evidence: str = ""  # raw text: console lines, standard error of a failed step
    known: str = ""  # id of the known defect that explains a violation
    call: Call | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.outcome not in SEVERITY:
            raise ValueError(f"no such outcome: {self.outcome}")

    def to_json(self) -> dict[str, Any]:
        row = asdict(replace(self, call=None))
        del row["call"]
        return row

    @classmethod
    def from_json(cls, row: dict[str, Any]) -> Verdict:
        return cls(**{**row, "counterexample": tuple(Step(**step) for step in row["counterexample"])})


def worst(outcomes: list[str]) -> str:
    """The outcome that decides for all; an empty list was never run.

    >>> worst(["pass", "known", "inconclusive"])
    'inconclusive'
    """
    return min(outcomes, key=SEVERITY.index, default="not-run")


P = ParamSpec("P")
JUDGES: dict[str, Callable[..., Verdict]] = {}


def pure(function: Callable[P, Verdict]) -> Callable[P, Verdict]:
    """Mark a function that judges by its arguments alone: its verdicts carry the call, so that it can be made again."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def judged(*args: P.args, **kwargs: P.kwargs) -> Verdict:
        given = dict(signature.bind(*args, **kwargs).arguments)
        return replace(function(*args, **kwargs), call=Call(name, given))

    name = f"{function.__module__.rpartition('.')[2]}.{function.__name__}"
    JUDGES[name] = judged
    return judged
