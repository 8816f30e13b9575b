"""bisect.html: a search as one page that needs no network and no script."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from labs.report.record import replace_file
from labs.report.text import clean

PAGE = "bisect.html"
WIDTH = 400  # of a certain candidate's bar, in CSS pixels


def write_page(folder: Path, row: dict[str, Any], lines: Sequence[str]) -> Path:
    """Write the page of what bisect.json says, whole or not at all, and give its path. Evidence is linked as the folder
    beside it has it."""
    answer = row["answer"] or {"boundaries": []}
    text = _ENVIRONMENT.get_template("bisect.html.j2").render(
        row=row, lines=lines, bars=bars(row), boundaries=answer["boundaries"]
    )
    replace_file(folder / PAGE, text.encode())
    return folder / PAGE


def bars(row: dict[str, Any]) -> list[dict[str, Any]]:
    """A bar for each candidate that was run or may be the one, in the axis' order."""
    ran: dict[str, Counter[str]] = {}
    for step in row["steps"]:
        ran.setdefault(step["candidate"], Counter())[step["outcome"]] += 1
    made = []
    for name in row["plan"]["names"]:
        probability, counts = row["probabilities"].get(name, 0.0), ran.get(name, Counter())
        if probability or counts:
            told = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
            words = [f"{probability:.3f}"] if probability else []
            most = max(counts, key=lambda outcome: counts[outcome], default="skip")
            label = "  ".join([*words, told]).strip()
            made.append({"name": name, "width": round(WIDTH * probability, 1), "label": label, "outcome": most})
    return made


_ENVIRONMENT = Environment(
    loader=ChoiceLoader([PackageLoader("labs.bisect", "."), PackageLoader("labs.report", ".")]),
    autoescape=True,
    finalize=lambda value: clean(value) if isinstance(value, str) and not hasattr(value, "__html__") else value,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
