"""Markdown of cells and their outcomes, for the summary page of a CI run: computed from records only."""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Iterable, Sequence

from labs.invariant.verdict import SEVERITY, worst
from labs.report.gather import CellOutcome
from labs.report.record import CellRecord
from labs.report.required import Unmet
from labs.report.text import clean, identity, reason

LENGTH = 240  # characters of a reason; the whole is in the record
ROWS = 300  # CI services refuse a summary of more than a mebibyte
SHOWN = ("kernel-release", "runtime-version", "series-patch-id", "accelerator")


def markdown(title: str, cells: Sequence[CellOutcome], against: Sequence[Unmet] | None = None, link: str = "") -> str:
    """A headline with the worst outcome, or with whether it may ship; a row a cell; a row a case with more to tell
    than that it passed or was skipped.

    `against` is what stands against shipping (None: that was not asked); `link` where the evidence can be had.
    """
    results = [result for one in cells for result in one.results]
    headline = worst([result.outcome for result in results])
    if against is not None:  # a planted fault that was caught is a fail, and no reason not to ship
        headline = "may not ship" if against else "may ship"
    parts = [f"## {headline}: {plain(title)}"]
    if against is not None:
        parts.append(_verdict(against))
    parts.append(rows_of(("cell", "outcome", "cases", "what ran", "record"), [_cell_row(one, link) for one in cells]))
    bad = [
        (code(one.cell), code(result.case), result.outcome, plain(reason(result)))
        for one in cells
        for result in sorted(one.results, key=lambda result: SEVERITY.index(result.outcome))
        if not {result.outcome, *result.earlier} <= {"pass", "skip"}
    ]
    if bad:
        parts += ["### What did not just pass", rows_of(("cell", "case", "outcome", "reason"), bad)]
    return "\n\n".join(parts) + "\n"


def _verdict(against: Sequence[Unmet]) -> str:
    if not against:
        return "**May ship:** all that must have passed has."
    rows = [(code(one.cell), code(one.case), one.outcome, plain(one.why)) for one in against]
    return f"**May not ship:** {len(against)} against it.\n\n{rows_of(('cell', 'case', 'outcome', 'why'), rows)}"


def _cell_row(one: CellOutcome, link: str) -> tuple[str, ...]:
    counts = Counter(result.outcome for result in one.results)
    told = ", ".join(f"{counts[outcome]} {outcome}" for outcome in SEVERITY if counts[outcome])
    facts = identity(CellRecord(one.run, one.cell).facts()) if one.run else {}
    ran = ", ".join(f"{name} {facts[name]}" for name in SHOWN if name in facts)
    record = code(one.run.path.name) if one.run else ""
    record = f"[{record}]({link})" if record and link else record
    return (code(one.cell), worst([result.outcome for result in one.results]), told, plain(ran), record)


def rows_of(head: Sequence[str], rows: Sequence[Iterable[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows[:ROWS]]
    told = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    return told if len(rows) <= ROWS else f"{told}\n\n... and {len(rows) - ROWS} more"


def plain(text: str) -> str:
    """Text that stays text, in one line, whatever a guest has put into it."""
    line = " ".join(clean(text).split())
    line = line if len(line) <= LENGTH else line[: LENGTH - 1] + "…"
    return re.sub(r"([\\`*_\[\]|~!#@])", r"\\\1", html.escape(line, quote=False))


def code(name: str) -> str:
    """A name as code, which nothing in it can end."""
    return f"`{' '.join(clean(name).split()).replace('`', chr(39)).replace('|', chr(92) + '|')}`"
