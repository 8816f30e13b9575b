"""A case over the runs on record: what it gave each time, and whether it contradicts itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from labs.invariant.verdict import SEVERITY
from labs.report.record import CellRecord, Run
from labs.report.text import identity

TELLING = ("pass", "fail", "known")  # outcomes that say something of the kernel
SAME = ("build-id", "runtime-digest", "series-patch-id")


@dataclass(frozen=True)
class CaseHistory:
    """A case in one cell, over all runs of the very same kernel, runtime and series. `outcomes`: oldest first, each
    attempt for itself."""

    cell: str
    case: str
    build_id: str
    outcomes: tuple[str, ...]

    @property
    def flaky(self) -> bool:
        """Whether equal binaries gave unequal answers; `known` is a violation."""
        return len({"pass" if one == "pass" else "violated" for one in self.outcomes if one in TELLING}) > 1

    @property
    def counts(self) -> str:
        counted = Counter(self.outcomes)
        return ", ".join(f"{counted[outcome]} {outcome}" for outcome in SEVERITY if counted[outcome])


def histories(runs: Sequence[Run]) -> list[CaseHistory]:
    """Of every case that ever ran, in the order in which they were first seen; `runs` are oldest first."""
    found: dict[tuple[str, ...], list[str]] = {}
    for run in runs:
        for record in run.cells():
            same = _same(record)
            for result in record.results():
                if result.attempts:
                    found.setdefault((record.id, result.case, *same), []).extend((*result.earlier, result.outcome))
    return [CaseHistory(key[0], key[1], key[2], tuple(outcomes)) for key, outcomes in found.items()]


def _same(record: CellRecord) -> tuple[str, ...]:
    told = identity(record.facts())
    return tuple(told.get(name, "") for name in SAME)
