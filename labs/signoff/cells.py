"""The cells of a sign-off, one pytest session after the other; what each leaves is read by others."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

from labs import matrix, prepare
from labs.build.kbuild import Plan as Build
from labs.build.kconfig import find_config
from labs.casebook import ATTEMPTS
from labs.child import CODE, Case, collect, session
from labs.errors import LabError
from labs.matrix import Cell
from labs.series import Series
from labs.signoff.evidence import CellEvidence, gather, left, place
from labs.signoff.latency import compared, measure
from labs.signoff.plan import BASE, CONTROL, EXTRA, PATCHED, Plan, Planned, defects
from labs.signoff.rules import judge
from labs.source.debian import Archive
from labs.store import Store, digest

log = logging.getLogger("labs")

SECONDS = 2 * 3600.0  # of one session; a kernel may have to be built first
VARIANT = "lockdep"
LATER = ("controls", "latency")  # rules that ask for more than base and patched cells
FEW = 2  # planted defects that a sign-off boots by itself
SLOW = "containers."  # cases that take their time: left out of a control where others judge the same invariant


def run(plan: Plan, folder: Path, archive: Archive) -> None:
    """Run base and patched cells, then planted defects for the invariants that they judged, then compare latencies.

    The latter two are left out where there is a reason against signing already. A session that breaks leaves its words
    in the folder and is a missing cell, never an end of the sign-off.
    """
    plan.save(folder)
    _sessions(plan, folder)
    if any(one.purpose in (CONTROL, EXTRA) for one in plan.cells):
        return _compare(plan, folder)  # resumed: they were planned before
    reasons, _ = judge(gather(folder), [])
    if any(reason.rule not in LATER for reason in reasons):
        log.info("no planted defects, no comparison: there are reasons against signing already")
        return
    plan = plan.add([*_extras(plan, archive), *_controls(plan, folder)])
    plan.save(folder)
    _sessions(plan, folder)
    _compare(plan, folder)


def _compare(plan: Plan, folder: Path) -> None:
    """Base and patched of each kernel, by how long operations take; what was measured before stays."""
    done = {(one.base, one.patched) for one in compared(folder) if one.told["done"]}
    for base, patched in gather(folder).pairs:
        if (base.id, patched.id) not in done and base.planned.cell.provider == "qemu":
            measure(base.planned.cell, patched.planned.cell, folder, plan.seed, plan.bound)


def _sessions(plan: Plan, folder: Path) -> None:
    for number, planned in enumerate(plan.cells, 1):
        place_ = folder / place(number, planned)
        ended = [cut for cut in place_.parent.glob(f"{place_.name}.cut*") if (cut / CODE).exists()]  # by themselves
        for _ in range(len(ended), ATTEMPTS):
            if place_.exists() and _settled(left(folder, place(number, planned), planned)):
                break
            _put_aside(place_)
            log.info("cell %d of %d: %s (%s)", number, len(plan.cells), planned.id, planned.purpose)
            if not _ran(plan, planned, place_):
                break


def _settled(cell: CellEvidence) -> bool:
    """Whether a session's outcomes stand. Infrastructure trouble is run again, but no failure of the series with it."""
    failed = any(result.outcome == "fail" for result in cell.results) and cell.planned.purpose != CONTROL
    return cell.record is not None and (failed or not cell.unsettled)


def _ran(plan: Plan, planned: Planned, place_: Path) -> bool:
    """Run a session; whether it left a record."""
    place_.mkdir(parents=True)
    options = ["--seed", str(plan.seed), *(["--executed"] if planned.purpose == PATCHED else [])]
    options += ["--full"] if plan.full and planned.purpose in (BASE, PATCHED) else []
    try:
        session(planned.tests, planned.cell, place_, SECONDS, options)
    except LabError as error:
        (place_ / "trouble.txt").write_text(f"{error}\n")
        log.warning("%s: %s", planned.id, error)
        return False
    return True


def _put_aside(place_: Path) -> None:
    """What a session left that was cut short stays, and is no part of the evidence that counts."""
    if place_.exists():
        number = len(list(place_.parent.glob(f"{place_.name}.cut*"))) + 1
        place_.rename(place_.with_name(f"{place_.name}.cut{number}"))


def _extras(plan: Plan, archive: Archive) -> Iterator[Planned]:
    """The patched kernels with lock debugging, where that kernel is there already: to build it takes an hour."""
    for one in plan.cells:
        if one.purpose == PATCHED and "kernel" in plan.components and one.cell.variant != VARIANT:
            cells = matrix.cells(
                [one.cell.kernel], [one.cell.runtime], one.cell.provider, variants=[VARIANT], series=[one.cell.series]
            )
            patched = next(cell for cell in cells if cell.role == "patched")
            if _is_built(patched, archive):
                yield Planned(patched.id, patched, EXTRA, plan.suites)


def _is_built(cell: Cell, archive: Archive) -> bool:
    """Whether the kernel that the cell's is built upon is in the store."""
    found = prepare.find(cell, archive)
    if found.source is None:
        return False
    recipe = Build(found.source, Path(), find_config(cell.variant)).recipe()
    return (Store.of_user().root / "built" / digest({"kind": "built", **recipe}) / "recipe.json").exists()


def _controls(plan: Plan, folder: Path) -> Iterator[Planned]:
    """A few planted defects of the same kernels, on and off, with the cases of the invariants that they must break."""
    evidence = gather(folder)
    for base in evidence.having(BASE):
        version = str(base.artifacts.get("kernel", {}).get("version", ""))
        there = [one for one in defects(version, plan.components) if one[0].rstrip("/") != plan.series.rstrip("/")]
        cases = {case.name: case for case in _collected(plan, base)} if version and there else {}
        for path, breaks in _few(there, plan.mends, base):
            asked = base.planned.cell
            for cell in matrix.cells([asked.kernel], [asked.runtime], asked.provider, series=[path]):
                names = _judging(base, breaks)
                tests = tuple(cases[name].node_in(cell.id) for name in names if name in cases)
                if cell.role in ("off", "patched") and tests:
                    yield Planned(cell.id, cell, CONTROL, tests, breaks)


def _few(
    there: Sequence[tuple[str, Series]], mends: Sequence[str], base: CellEvidence
) -> list[tuple[str, tuple[str, ...]]]:
    """Defects of what the series says it mends come first; of the others as many as make the number whole. Each must
    break something that no earlier one does. More than a few boots are for `labs prove`."""
    first = sorted(there, key=lambda one: not set(one[1].breaks) & set(mends))
    chosen: dict[str, tuple[str, ...]] = {}
    for path, series in first:
        broken = {name for breaks in chosen.values() for name in breaks}
        if len(chosen) < FEW and _judging(base, series.breaks) and not set(series.breaks) <= broken:
            chosen[path] = series.breaks
    return list(chosen.items())


def _collected(plan: Plan, base: CellEvidence) -> list[Case]:
    try:
        return collect(plan.suites, base.planned.cell)
    except LabError as error:
        log.warning("no controls: %s", error)
        return []


def _judging(base: CellEvidence, invariants: Sequence[str]) -> list[str]:
    """Cases of the invariants that were judged; without the slow ones where others do."""
    names = [r.case for one in invariants for r in base.judging(one) if r.outcome in ("pass", "known", "fail")]
    return [name for name in names if not name.startswith(SLOW)] or names
