"""Whether the cells of a sign-off may be compared: sessions run one after the other, and names are looked up anew."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from labs.compare.record import CompareRecord
from labs.report.text import at
from labs.series.identity import series_id
from labs.signoff.controls import Control
from labs.signoff.evidence import CellEvidence, Evidence
from labs.signoff.latency import FOLDER
from labs.signoff.plan import EXTRA, PATCHED, Plan
from labs.signoff.reason import UNPROVEN, Reason, Said

# What a base and all other cells of its kernel must share -> where a cell tells it.
SHARED: dict[str, Callable[[CellEvidence], object]] = {
    "kernel": lambda cell: at(cell.artifacts, "kernel", "version"),
    "source": lambda cell: at(cell.artifacts, "kernel", "source_digest"),
    "config": lambda cell: at(cell.artifacts, "kernel", "config"),
    "compiler": lambda cell: at(cell.artifacts, "kernel", "compiler"),
    "runtime": lambda cell: at(cell.artifacts, "runtime", "version"),
    "image": lambda cell: at(cell.artifacts, "image_sha256"),
    "agent": lambda cell: at(cell.artifacts, "agent_sha256"),
    "accelerator": lambda cell: at(cell.facts, "accelerator"),
}


def same(evidence: Evidence, controls: Sequence[Control]) -> Said:
    """All cells are of one kernel, one lab, one seed, and the series in them is the one that was read."""
    for cell in evidence.cells:
        if cell.record is not None and cell.facts:
            for what, there, asked in [*_planned(evidence.plan, cell), *_shared(evidence, cell)]:
                if there != asked:
                    why = f"its {what} is {there or 'not told'}, not {asked or 'told either'}: it cannot be compared"
                    yield Reason(UNPROVEN, "same", cell.id, "", why)
    for base, patched in evidence.pairs:
        for side, cell in (("A", base), ("B", patched)):
            for path in sorted((evidence.folder / FOLDER / patched.id).glob("compare-*")):
                if _build_id(path, side) != at(cell.facts, "build_id"):
                    why = f"latencies were measured in another kernel, build-id {_build_id(path, side) or 'not told'}"
                    yield Reason(UNPROVEN, "same", cell.id, "", why)


def _planned(plan: Plan, cell: CellEvidence) -> Iterator[tuple[str, str, str]]:
    """(what, in this cell, as planned)"""
    assert cell.record
    run = cell.record.run
    yield "seed", str(run.seed), str(plan.seed)
    yield "test code", str(run.host.get("test_code", "")), plan.test_code
    if cell.planned.purpose in (PATCHED, EXTRA):
        yield "patch-id", at(cell.facts, "series", "patch_id"), _series(plan, cell.planned.kernel)


def _series(plan: Plan, kernel: str) -> str:
    """The patch-ids of the series as they were read, as a guest's facts have them."""
    mine = [patch for patch in plan.patches if patch.kernel == kernel]
    names = dict.fromkeys(patch.series for patch in mine)
    return "+".join(series_id(patch.patch_id for patch in mine if patch.series == name) for name in names)


def _shared(evidence: Evidence, cell: CellEvidence) -> Iterator[tuple[str, str, str]]:
    """(what, in this cell, in its base)"""
    base = evidence.base_of(cell)
    for what, told in SHARED.items():
        if base and base.facts and (what != "config" or cell.planned.purpose != EXTRA):  # an extra has another config
            yield what, str(told(cell)), str(told(base))


def _build_id(comparison: Path, side: str) -> str:
    artifacts: dict[str, Any] = CompareRecord(comparison).asked().artifacts
    return at(artifacts, side, "kernel", "build_id")
