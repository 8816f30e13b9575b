"""A page over a folder of records: its runs, newest first, what came of each, and the way to its own page."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined

from labs.errors import BadInput
from labs.invariant.verdict import SEVERITY, worst
from labs.report.record import RUN_FILE, Run, replace_file
from labs.report.text import clean


@dataclass(frozen=True)
class Entry:
    """One run as the page shows it. `trouble` is why its record cannot be read; `page` is empty where it has none."""

    name: str
    outcome: str
    counts: tuple[tuple[str, int], ...] = ()
    cells: tuple[str, ...] = ()
    started: str = ""
    command: str = ""
    page: str = ""
    trouble: str = ""


def write_index(records: Path) -> Path:
    """Write `index.html` there and give its path; BadInput when there is no such folder."""
    if not records.is_dir():
        raise BadInput(f"{records} is no folder", mend="give --record DIR")
    paths = [path.parent for path in records.glob(f"*/{RUN_FILE}") if not path.parent.is_symlink()]
    entries = [_entry(path) for path in sorted(paths, key=lambda path: path.name, reverse=True)]
    page = _ENVIRONMENT.get_template("index.html.j2").render(entries=entries, folder=records.resolve().name)
    replace_file(records / "index.html", page.encode())
    return records / "index.html"


def _entry(path: Path) -> Entry:
    page = "report/index.html"
    link = quote(os.fsencode(f"{path.name}/{page}")) if (path / page).exists() else ""  # any bytes may be in a name
    try:
        run = Run.open(path)
        results = run.results()
    except (BadInput, ValueError, KeyError, TypeError, OSError) as error:
        return Entry(path.name, "error", page=link, trouble=str(error))
    counts = Counter(result.outcome for cases in results.values() for result in cases)
    return Entry(
        name=path.name,
        outcome=worst(list(counts)),
        counts=tuple((outcome, counts[outcome]) for outcome in SEVERITY if counts[outcome]),
        cells=tuple(results),
        started=run.started,
        command=shlex.join(run.command),
        page=link,
    )


_ENVIRONMENT = Environment(
    loader=PackageLoader("labs.report", "."),
    autoescape=True,
    finalize=lambda value: clean(value) if isinstance(value, str) and not hasattr(value, "__html__") else value,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
