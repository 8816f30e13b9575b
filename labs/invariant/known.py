"""Known defects: a violation that the table explains, for this kernel, is told apart from one that is news."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime

from labs.catalog import Known
from labs.invariant.verdict import Verdict
from labs.version import in_range

Runtime = tuple[str, tuple[int, ...]]  # as ("runc", (1, 1, 5))


def today() -> date:
    return datetime.now(UTC).date()


def _has(row: Known, runtime: Runtime | None) -> bool:
    if not row.runtimes or runtime is None:
        return not row.runtimes
    return any(name == runtime[0] and in_range(runtime[1], low, high) for name, low, high in row.runtimes)


def explain(
    verdict: Verdict,
    rows: Iterable[Known],
    kernel: tuple[int, ...] | None,
    files: Sequence[str],
    runtime: Runtime | None = None,
    day: date | None = None,
) -> Verdict:
    """The verdict as `known` when a row explains it, else as it was.

    `kernel` is the upstream version that runs (None: not known, then nothing is explained), `files` the names of the
    files that were judged; a row must name all of them, so that it never hides another file's violation (and without a
    name it explains nothing). `runtime` is the container runtime's name and version; None: rows on runtimes explain
    nothing. A row that has expired on `day` (today) explains nothing either: the verdict's evidence then names it, for
    whoever looks whether it still holds.
    """
    day = day or today()
    if verdict.outcome != "fail" or kernel is None:
        return verdict
    for row in rows:
        if (
            verdict.invariant in row.invariants
            and files
            and set(files) <= set(row.files)
            and any(in_range(kernel, low, high) for low, high in row.ranges)
            and _has(row, runtime)
            and re.search(row.signature, verdict.reason)
        ):
            if day > row.expires:
                told = f"known defect {row.id} has expired on {row.expires}: look whether it still holds"
                verdict = replace(verdict, evidence=f"{verdict.evidence}\n{told}".strip())
                continue
            evidence = f"{verdict.evidence}\nknown defect {row.id}: {row.source}".strip()
            return replace(verdict, outcome="known", known=row.id, evidence=evidence)
    return verdict
