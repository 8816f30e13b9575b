"""Base and patched compared by how long operations take: labs/compare does it, in the sign-off's folder."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labs.compare.cells import begin, go_on, resumed
from labs.compare.judge import Comparison
from labs.compare.record import CompareRecord
from labs.errors import BadInput, LabError
from labs.matrix import Cell
from labs.untrusted import read

log = logging.getLogger("labs")

FOLDER, TROUBLE = "latency", "trouble.txt"
SUITE = Path("suites/latency")
BOUND, BOOTS = 0.05, 10  # a slowdown that is not minded; rounds at most


@dataclass(frozen=True)
class Compared:
    """One comparison, judged now from its raw samples; `result` as labs compare words it."""

    base: str
    patched: str
    result: str
    reason: str
    told: dict[str, Any]
    failed: tuple[tuple[str, str], ...] = ()  # side, and how the kernel under test failed in one of its boots


def measure(base: Cell, patched: Cell, folder: Path, seed: int, bound: float) -> None:
    """Compare two cells, or go on with their comparison. Trouble is left there in words, and ends nothing."""
    place = folder / FOLDER / patched.id
    try:
        place.mkdir(parents=True, exist_ok=True)
        (place / TROUBLE).unlink(missing_ok=True)
        begun = sorted(place.glob("compare-*/compare.json"))
        cells = {"A": base, "B": patched}
        record, sides = (
            resumed(begun[-1].parent) if begun else begin(cells, place, SUITE, boots=BOOTS, bound=bound, seed=seed)
        )
        go_on(record, sides)
    except LabError as error:
        log.warning("no comparison of %s: %s", patched.id, error)
        (place / TROUBLE).write_text(f"{error}\n")


def compared(folder: Path) -> list[Compared]:
    """Every comparison in a sign-off's folder; BadInput where a record is malformed, or a raw file not as it was."""
    return [_judged(CompareRecord(path.parent)) for path in sorted(folder.glob(f"{FOLDER}/*/compare-*/compare.json"))]


def _judged(record: CompareRecord) -> Compared:
    try:
        asked = record.asked()
        result: Comparison = record.comparison() if record.boots() else _nothing(record)
        failed = tuple((line.side, f"round {line.round}: {line.trouble}") for line in record.boots() if line.failed)
        return Compared(asked.a, asked.b, result.word, result.reason, record.told(result), failed)
    except Exception as error:  # as untrusted.reading says
        raise BadInput(f"{record.path.name}: cannot be judged again: {error}") from None


def _nothing(record: CompareRecord) -> Comparison:
    asked = record.asked()
    return Comparison(4, "nothing was measured", asked.bound, asked.alpha, 0, asked.boots, (), {}, done=False)


def trouble(folder: Path, patched: str) -> str:
    path = folder / FOLDER / patched / TROUBLE
    return read(path).decode(errors="replace").strip() if path.is_file() else ""
