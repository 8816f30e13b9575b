"""sign-off.html: one file that needs no network, no script and nothing beside it; of the document and its patches."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from labs.invariant.verdict import SEVERITY
from labs.report.html import Case, environment
from labs.report.plots import Effect, Rate, effects_svg, rates_svg, spacetime
from labs.report.record import CaseResult, replace_file
from labs.report.text import clean

PATCH_BYTES = 256 << 10  # of one patch on the page
LINES = {"+": "added", "-": "removed", "@": "hunk"}  # first character of a line of a patch -> its class


@dataclass(frozen=True)
class Line:
    kind: str
    text: str


def write_page(made: Mapping[str, Any], digest: str, evidence: Path, path: Path) -> None:
    replace_file(path, render(made, digest, evidence).encode())


def render(made: Mapping[str, Any], digest: str, evidence: Path) -> str:
    """The page's text; `digest` is that of sign-off.json, `evidence` the folder that has the patches."""
    cases = _cases(made)
    shown = [one for number, cell in enumerate(made["cells"]) for one in _shown(number, cell)]
    return _ENVIRONMENT.get_template("sign-off.html.j2").render(
        made=made,
        digest=digest,
        kind=KINDS[made["decision"]],
        compared=_compared(made),
        matrix={case: row for case, row in cases.items() if set(row.values()) not in ({"pass"}, {"skip"})},
        skipped=[case for case, row in cases.items() if set(row.values()) == {"skip"}],
        counts={cell["id"]: _counts(cell) for cell in made["cells"]},
        shown=shown,
        plot=Markup(rates_svg(_rates(made), "Base and patched")) if made["shares"] else "",
        latency=[(one, Markup(_effects(one))) for one in made["latency"]],
        patches=[(one, _lines(evidence / one["file"])) for one in made["series"]["patches"]],
        functions=[(cell, one) for cell in made["cells"] if cell["purpose"] == "patched" for one in cell["functions"]],
        invariants=_invariants(made),
        command=shlex.join(["labs", *made["asked"]["command"]]),
    )


KINDS = {"signed": "pass", "not proven": "inconclusive", "refused": "fail"}  # decision -> the class that colours it


def _compared(made: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [cell for cell in made["cells"] if cell["purpose"] in ("base", "patched")]


def _cases(made: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Case -> cell -> outcome, for base and patched cells."""
    rows: dict[str, dict[str, str]] = {}
    for cell in _compared(made):
        for case in cell["cases"]:
            rows.setdefault(case["case"], {})[cell["id"]] = case["outcome"]
    return rows


def _counts(cell: Mapping[str, Any]) -> list[tuple[str, int]]:
    counted = Counter(case["outcome"] for case in cell["cases"])
    return [(outcome, counted[outcome]) for outcome in SEVERITY if counted[outcome]]


def _invariants(made: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Invariant -> what base and patched cells gave, and its controls."""
    found: dict[str, dict[str, Any]] = {}
    for cell in _compared(made):
        for case in cell["cases"]:
            if case["verdict"] and case["outcome"] != "skip":
                row = found.setdefault(case["verdict"]["invariant"], {"base": Counter(), "patched": Counter()})
                row[cell["purpose"]][case["outcome"]] += 1
    for row in found.values():
        row["controls"] = []
    for control in made["controls"]:
        found[control["invariant"]]["controls"].append(control)
    return found


def _shown(number: int, cell: Mapping[str, Any]) -> list[Case]:
    """What base and patched cells violated; of the others only what speaks against signing is told, by its reason."""
    made = []
    for at, row in enumerate(cell["cases"]):
        if cell["purpose"] in ("base", "patched") and row["outcome"] in ("fail", "known", "error"):
            result = CaseResult.from_json({name: value for name, value in row.items() if name != "earlier"})
            steps = result.verdict.counterexample if result.verdict else ()
            accelerator = str(cell["facts"].get("accelerator", "unknown"))
            made.append(
                Case(f"case-{number}-{at}", cell["id"], accelerator, result, spacetime(steps) if steps else None)
            )
    return made


def _rates(made: Mapping[str, Any]) -> list[Rate]:
    """A row a share, the two of a case beside each other."""
    rows = sorted(made["shares"], key=lambda one: (one["case"], one["what"], one["purpose"]))
    return [
        Rate(f"{one['purpose']}, {one['what']}\n{one['case']}", one["purpose"], one["wrong"] / one["seen"], *_ends(one))
        for one in rows
    ]


def _ends(share: Mapping[str, Any]) -> tuple[float, float]:
    return share["low"], share["high"]


def _effects(told: Mapping[str, Any]) -> str:
    """The rows of a comparison as a plot; nothing where none was judged."""
    rows = [
        Effect(f"{one['measure']} {one['quantile']}", one["outcome"], one["effect"], one["low"], one["high"])
        for one in told["rows"]
    ]
    return effects_svg(rows, told["bound"], f"{told['b']} against {told['a']}") if rows else ""


def _lines(path: Path) -> list[Line]:
    if not path.is_file():
        return [Line("removed", "the patch is missing")]
    with path.open("rb") as file:
        text = clean(file.read(PATCH_BYTES).decode(errors="replace"))
    return [Line(LINES.get(line[:1], "context"), line) for line in text.split("\n")]


def _change(part: float) -> str:
    """0.051 as '+5.10'; what rounds to nothing has no sign."""
    words = f"{100 * part:+.2f}"
    return words[1:] if float(words) == 0 else words


_ENVIRONMENT = environment("labs.signoff")
_ENVIRONMENT.filters["change"] = _change
