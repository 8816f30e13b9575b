"""Planted defects: which series break which invariants, and in which cell that can be seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from labs import catalog, prepare
from labs.errors import BadInput
from labs.matrix import PATCHES, Cell, series_of
from labs.series import Series
from labs.source.debian import Archive

BUILT = "default"  # the config of clean cells: that of the planted ones, so that only the series differs


@dataclass(frozen=True)
class Defect:
    """One planted defect. `cell` has it; `off` is the same binary with it switched off, where there is such a switch.

    `caught` are the outcomes that show it: a real defect of the base is in the table of known ones.
    """

    name: str
    cell: Cell
    breaks: tuple[str, ...]
    off: Cell | None = None
    caught: tuple[str, ...] = ("fail",)


def clean_cell(kernel: str, runtime: str) -> Cell:
    """The cell in which nothing is planted: what planted ones are built upon."""
    return Cell(kernel, runtime, variant=BUILT)


def defects(kernel: str, runtime: str, archive: Archive, folder: Path = PATCHES) -> tuple[list[Defect], dict[str, str]]:
    """The defects that fit these versions, and of the other series that are defects why they do not: name -> reason."""
    found, left_out = [], {}
    for path in sorted(folder.glob("*/*/series.toml")):
        (series,) = series_of(str(path.parent))
        cell = Cell(kernel, runtime, series=str(path.parent), role="patched")
        try:
            planted = _planted(series, cell)
            if planted:
                prepare.find(planted.cell, archive)
                found.append(planted)
            elif series.intent == "defect":
                left_out[series.name] = "its series.toml says nothing in `breaks`"
        except BadInput as error:
            left_out[series.name] = str(error)
    return found, left_out


def _planted(series: Series, cell: Cell) -> Defect | None:
    """What a series plants; of a fix that mends a known defect, that is its base."""
    if series.intent == "defect" and series.breaks:
        off = replace(cell, role="off") if series.parameters else None
        return Defect(series.name, cell, series.breaks, off)
    known = {row.id for row in catalog.known_defects()} & set(series.mends)
    if not known:
        return None
    mended = tuple(name for name in series.mends if name not in known)
    return Defect(" + ".join(sorted(known)), replace(cell, role="base"), mended, cell, ("fail", "known"))


def chosen(found: Sequence[Defect], names: Sequence[str]) -> list[Defect]:
    """Those that `names` ask for, all without any; BadInput for a name that no defect has."""
    known = [defect.name for defect in found]
    for name in names:
        if name not in known:
            raise BadInput(f"no planted defect is called {name}", mend=f"there are: {', '.join(known)}")
    return [defect for defect in found if not names or defect.name in names]
