"""The page: a run as one HTML file that needs no network, no script and nothing beside it."""

from __future__ import annotations

import json
import os
import shlex
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from labs.invariant.verdict import SEVERITY, worst
from labs.report import text
from labs.report.plots import Diagram, latencies, latency_svg, spacetime
from labs.report.record import CaseResult, CellRecord, Run, replace_file

CONSOLE_LINES, CONSOLE_BYTES = 60, 32_768
BROKEN = ("fail", "error", "not-run")  # outcomes for which the guest's console may tell why


@dataclass(frozen=True)
class Case:
    """One case as the page shows it."""

    anchor: str
    cell: str
    accelerator: str
    result: CaseResult
    diagram: Diagram | None


@dataclass(frozen=True)
class Cell:
    """One cell as the page shows it."""

    id: str
    anchor: str
    outcome: str
    accelerator: str
    cases: tuple[Case, ...]
    facts: dict[str, Any]
    artifacts: dict[str, Any]
    latency: Markup
    console: str


def write_page(run: Run, path: Path) -> None:
    """Write the page, whole or not at all."""
    replace_file(path, render(run).encode())


def render(run: Run) -> str:
    """The page's text; equal records give equal text."""
    cells = [_cell(index, record) for index, record in enumerate(run.cells())]
    cases = [case for cell in cells for case in cell.cases]
    counts = Counter(case.result.outcome for case in cases)
    return _ENVIRONMENT.get_template("page.html.j2").render(
        run=run,
        cells=cells,
        outcome=worst(list(counts)),
        counts=[(outcome, counts[outcome]) for outcome in SEVERITY if counts[outcome]],
        overview=_overview(cells) if len(cells) > 1 else {},
        findings=sorted(
            (case for case in cases if case.result.outcome != "pass"),
            key=lambda case: SEVERITY.index(case.result.outcome),
        ),
        accelerators=sorted({cell.accelerator for cell in cells}),
        command=shlex.join(run.command),
    )


def _cell(index: int, record: CellRecord) -> Cell:
    facts = record.facts()
    accelerator = str(facts["accelerator"])
    results = record.results()
    cases = tuple(
        Case(f"case-{index}-{number}", record.id, accelerator, result, _diagram(result))
        for number, result in enumerate(results)
    )
    rows = latencies(results)
    title = f"{record.id}, accelerator {accelerator}" + (": not measurable" if accelerator == "tcg" else "")
    return Cell(
        id=record.id,
        anchor=f"cell-{index}",
        outcome=worst([result.outcome for result in results]),
        accelerator=accelerator,
        cases=cases,
        facts=facts,
        artifacts=record.artifacts(),
        latency=Markup(latency_svg(rows, title) if rows else ""),  # matplotlib escapes the texts it is given
        console=_tail(record.console_path) if any(result.outcome in BROKEN for result in results) else "",
    )


def _diagram(result: CaseResult) -> Diagram | None:
    return spacetime(result.verdict.counterexample) if result.verdict and result.verdict.counterexample else None


def _overview(cells: list[Cell]) -> dict[str, dict[str, Case]]:
    """Case name -> cell id -> case."""
    rows: dict[str, dict[str, Case]] = {}
    for cell in cells:
        for case in cell.cases:
            rows.setdefault(case.result.case, {})[cell.id] = case
    return rows


def _tail(path: Path) -> str:
    """The last lines of a console that may be huge, or absent because the guest never started."""
    if not path.exists():
        return ""
    with path.open("rb") as console:
        console.seek(max(0, path.stat().st_size - CONSOLE_BYTES), os.SEEK_SET)
        lines = console.read().decode(errors="replace").splitlines()
    return "\n".join(lines[-CONSOLE_LINES:])


def _finalize(value: object) -> object:
    """Every text on the page passes here: what no file can hold is replaced; escaping follows."""
    return value if isinstance(value, Markup) else text.clean(str(value))


def _fact(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def environment(*packages: str) -> Environment:
    """Templates of these packages, and of this one: all text escaped, whatever a guest has put into it."""
    made = Environment(
        loader=ChoiceLoader([PackageLoader(package, ".") for package in (*packages, "labs.report")]),
        autoescape=True,
        finalize=_finalize,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "seen": text.seen,
        "reason": text.reason,
        "number": text.number,
        "fact": _fact,
        "identity": text.identity,
    }
    return made


_ENVIRONMENT = environment()
