"""Begin a run: resolve and pin every name, collect the cases, make the record; or go on with one that has begun."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from labs import prepare
from labs.errors import BadInput, LabError
from labs.matrixfile import Planned
from labs.provision.accel import known
from labs.provision.qemu import MachineSpec
from labs.report.record import RUN_FILE, CellRecord, Run
from labs.run.builds import Build, builds, lacking
from labs.run.collect import Collected, collect
from labs.run.past import Past
from labs.run.plan import ARCHIVE_FILE, PLAN_FILE, Plan, Request, pin, source, todo
from labs.run.schedule import Need, Task
from labs.source.debian import Archive

FAILED = ("fail", "error", "not-run")  # what --failed repeats
OVERHEAD_MB = 512  # of QEMU and of the pytest that looks after it, beside the guest's own memory
TEARDOWN = " (teardown)"


@dataclass(frozen=True)
class Draft:
    """A run that is planned, and not yet on record."""

    plan: Plan
    cases: dict[str, tuple[str, ...]]
    deselected: int
    archive: Archive

    def create(self, records: Path, seed: int) -> Run:
        """The record, whole from its first moment."""
        request = self.plan.request
        files = {PLAN_FILE: json.dumps(self.plan.to_json()).encode(), ARCHIVE_FILE: self.archive.lists()}
        host = {"hostname": platform.node(), "kernel": platform.release(), "cpus": os.cpu_count() or 0}
        command = ["labs", "run", *request.suites, *request.words()]
        return Run.create(records, self.cases, host, command, seed, self.deselected, files)


def draft(
    request: Request, archive: Archive, find: Callable[[Request, Sequence[Planned]], Collected] = collect
) -> Draft:
    """Plan what is asked for; BadInput when a name points nowhere, before anything is made."""
    if any("-" in spec.split("+") for spec in request.series):
        raise BadInput("--series -: a run of many processes cannot read standard input", mend="save it as a file")
    rows = {row.cell.id: row for row in request.rows()}
    pins = {name: pin(prepare.find(row.cell, archive)) for name, row in rows.items()}
    request = replace(request, full=request.full or any(row.full for row in rows.values()))
    found = find(request, list(rows.values()))
    kept = {name: row for name, row in rows.items() if name in found.cases}
    plan = Plan(request, kept, {name: pins[name] for name in kept}, found.exclusive, str(Path.cwd()), source())
    return Draft(plan, dict(found.cases), found.deselected, archive)


def repeat(drafted: Draft, old: Run) -> Draft:
    """Only what failed in an older run; BadInput when that is nothing."""
    bad = {
        cell: {result.case.removesuffix(TEARDOWN) for result in results if result.outcome in FAILED}
        for cell, results in old.results().items()
    }
    cases = {cell: tuple(case for case in names if case in bad.get(cell, ())) for cell, names in drafted.cases.items()}
    cases = {cell: names for cell, names in cases.items() if names}
    if not cases:
        raise BadInput(f"nothing of this failed in {old.path}", mend="without --failed all of it is run")
    left_out = sum(map(len, drafted.cases.values())) - sum(map(len, cases.values()))
    plan = drafted.plan
    plan = replace(plan, rows={name: plan.rows[name] for name in cases}, pins={name: plan.pins[name] for name in cases})
    return replace(drafted, plan=plan, cases=cases, deselected=drafted.deselected + left_out)


def newest(records: Path) -> Path:
    """The newest run in a folder of records that `labs run` has made."""
    found = [path for path in records.glob(f"2*/{PLAN_FILE}") if (path.parent / RUN_FILE).exists()]
    if not found:
        raise BadInput(f"{records} has no run of `labs run`", mend="give --record DIR")
    return max(found, key=lambda path: path.stat().st_mtime_ns).parent


@dataclass(frozen=True)
class Tasks:
    """What there is to do of a plan."""

    plan: Plan
    past: Past
    archive: Archive

    @functools.cached_property
    def _emulated(self) -> bool:
        found = known(self.archive.store)
        return found is not None and found.name == "tcg"

    def builds(self, cells: Sequence[str]) -> dict[str, Build]:
        """What must be made first, by the id of its task."""
        founds: dict[str, prepare.Found] = {}
        for cell in cells:
            with contextlib.suppress(LabError):  # no longer what was planned: its own pytest will say so
                founds[cell] = self.plan.found(cell, self.archive)
        made = builds(founds.items(), lacking(self.archive.store, self.archive))
        return {build.id: build for build in made}

    def listed(self, cells: Mapping[str, Sequence[str]], builds: Mapping[str, Build], cores: int) -> list[Task]:
        """All tasks: the builds, then the cells with those of their cases that are to run."""
        made = [build.task(cores) for build in builds.values()]
        return [*made, *(self.cell(cell, cases, list(builds.values())) for cell, cases in cells.items())]

    def cell(self, cell: str, cases: Sequence[str], builds: Sequence[Build] = ()) -> Task:
        """The task of a cell for some of its cases; those that ask for cores of their own get all that it has CPUs.

        An emulated guest's latency is never judged, so there two guests may share what one asks for.
        """
        sizes: dict[str, Any] = dict(self.plan.rows[cell].sizes)
        guest = MachineSpec(Path(), Path(), None, "", **sizes)
        alone = not self._emulated and bool(self.plan.exclusive & set(cases))
        cores = max(1.0, guest.cpus if alone else guest.cpus / 2)
        memory = 0 if self.plan.rows[cell].hosts else guest.memory_mb  # none of this host's for a machine elsewhere
        need = Need(memory + OVERHEAD_MB, cores, self.past.disk_mb)
        after = frozenset(build.id for build in builds if cell in build.cells)
        return Task(cell, need, self.past.seconds(cell, cases), after)


def left(run: Run) -> dict[str, list[str]]:
    """Cell -> its cases that have no outcome yet; cells that are finished are not in it."""
    return {cell: cases for cell in run.plan if (cases := todo(CellRecord(run, cell)))}
