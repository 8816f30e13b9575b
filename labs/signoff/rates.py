"""How often an invariant was violated: what a zero in so many operations is worth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from scipy.stats import binomtest, fisher_exact

from labs.invariant.findings import KINDS
from labs.report.record import CaseResult
from labs.signoff.evidence import Evidence
from labs.untrusted import reading

CONFIDENCE = 0.95
LEVEL = 0.01  # of a chance that is not believed


@dataclass(frozen=True)
class Share:
    """`wrong` of `seen` operations of one kind; `low` and `high` are the ends of Clopper and Pearson's interval.

    Operations are not independent of each other: the interval tells what was looked at, and is no law of the kernel.
    """

    cell: str
    purpose: str
    case: str
    what: str
    wrong: int
    seen: int
    low: float
    high: float

    @property
    def rate(self) -> float:
        return self.wrong / self.seen


def shares(evidence: Evidence) -> list[Share]:
    """Of all cases of base and patched cells that count; those in which neither was ever wrong are left out."""
    found = [
        _share(cell.id, cell.planned.purpose, result.case, *counted)
        for pair in evidence.pairs
        for cell in pair
        for result in cell.results
        for counted in _counts(result)
    ]
    wrong = {(share.case, share.what) for share in found if share.wrong}
    return [share for share in found if (share.case, share.what) in wrong]


def _share(cell: str, purpose: str, case: str, what: str, wrong: int, seen: int) -> Share:
    interval = binomtest(wrong, seen).proportion_ci(CONFIDENCE, "exact")
    return Share(cell, purpose, case, what, wrong, seen, float(interval.low), float(interval.high))


def _counts(result: CaseResult) -> list[tuple[str, int, int]]:
    """As `_counted`; BadInput where they are no counts."""
    with reading(f"{result.case}: its counts are none"):
        counted = list(_counted(result))
        for what, wrong, seen in counted:
            if not 0 <= wrong <= seen:
                raise ValueError(f"{wrong} of {seen} {what}")
        return counted


def _counted(result: CaseResult) -> Iterator[tuple[str, int, int]]:
    """(what, wrong, seen) of a verdict's figures."""
    if not result.verdict:
        return
    figures: Mapping[str, float] = result.verdict.figures
    for name in figures:
        file = name.removeprefix("writes ")
        if file != name and figures[name]:
            yield f"lost writes of {file}", int(figures.get(f"lost {file}", 0)), int(figures[name])
    reads = result.verdict.looked_at.get("reads", 0)
    if reads and set(KINDS) <= figures.keys():
        wrong = sum(figures[kind] for kind in KINDS)
        yield "reads that fit no order", int(min(wrong, reads)), int(reads)


def kinds(result: CaseResult) -> frozenset[str]:
    """In which ways a case was violated, as its verdict counts them."""
    figures: Mapping[str, float] = result.verdict.figures if result.verdict else {}
    return frozenset(name for name, count in figures.items() if count and (name in KINDS or name.startswith("lost ")))


def chance(more: Iterable[CaseResult], fewer: Iterable[CaseResult]) -> float | None:
    """How likely a difference as that between the two is, at least, if both violate equally often (Fisher, one-sided).

    Counts of several cases are summed up. With several kinds of operation it is by the clearest of them (Bonferroni).
    None where nothing is counted: a promise is broken, or it is not.
    """
    tables: dict[str, Counter[str]] = {}
    for side, results in (("more", more), ("fewer", fewer)):
        for what, wrong, seen in (counted for result in results for counted in _counts(result)):
            tables.setdefault(what, Counter()).update({f"{side} wrong": wrong, f"{side} right": seen - wrong})
    values = [
        fisher_exact([[t["more wrong"], t["more right"]], [t["fewer wrong"], t["fewer right"]]], "greater").pvalue
        for t in tables.values()
        if t["more wrong"] or t["fewer wrong"]
    ]
    return min(1.0, min(values) * len(values)) if values else None
