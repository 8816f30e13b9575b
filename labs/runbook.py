"""What one pytest session works on: the cells asked for, what they name, and the run that all of it goes to.

Under pytest-xdist each worker has one, and so has the main process; the session's uid leads them to the same run.
"""

from __future__ import annotations

import contextlib
import random
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from labs import executed, prepare
from labs.casebook import Bench, boot
from labs.errors import BadInput
from labs.matrix import Cell
from labs.matrixfile import Planned, asked
from labs.provision.hosts import provider_for
from labs.report.record import Run
from labs.report.session import close_run, joined_run, open_run
from labs.run.leftovers import orphaned
from labs.run.plan import ARCHIVE_FILE, Plan, load, todo
from labs.signoff import capsule
from labs.source.debian import Archive
from labs.store import NO_REPORT, Store, usable


@dataclass
class Runbook:
    """`options` are conftest.py's, by name; `plan` is that of a larger run in which this session has a part."""

    options: Any
    records: Path
    uid: Callable[[], str]  # of the session, '' without workers; the main process knows it once it has some
    cells: Mapping[Cell, Planned]
    plan: Plan | None = None
    run: Run | None = None  # from when it has been planned
    deselected: int = 0  # cases that options left out
    _found: dict[Cell, prepare.Found] = field(default_factory=dict)

    @classmethod
    def of(cls, options: Any, root: Path, uid: Callable[[], str]) -> Runbook:
        """BadInput for cells that are none. What a matrix, or a larger run, decides is set in the options."""
        if options.boots < 1:
            raise BadInput(f"--boots {options.boots}: no guest at all", mend="1 or more")
        if options.join:
            return _part(options, root, uid)
        options.report = str(root / options.report)
        rows = _capsuled(options) if options.capsule else _rows(options)
        options.full = options.full or any(row.full for row in rows)
        if options.seed is None:  # the same in every worker
            options.seed = (random.Random(uid()) if uid() else random).randrange(1 << 24)
        return cls(options, root / options.record, uid, {row.cell: row for row in rows if not row.excluded})

    @cached_property
    def archive(self) -> Archive:
        """As it was when the run began, to its end."""
        store = Store.of_user()
        return Archive.as_of(store, Path(self.options.join) / ARCHIVE_FILE) if self.plan else Archive(store)

    def wanted(self) -> dict[str, set[str]]:
        """Of a larger run, by cell, the cases that have no outcome yet; read from the record."""
        assert self.run
        return {cell.id: set(todo(self.run.cell(cell.id))) for cell in self.cells}

    def open(self, plan: Mapping[str, Sequence[str]], command: Sequence[str]) -> None:
        """Find what the cells name, then put every case on record as not-run; LabError when a name points nowhere."""
        if self.plan:
            self._found = {cell: self.plan.found(cell.id, self.archive) for cell in self.cells}
            return
        if self.options.capsule:
            found = capsule.opened(Path(self.options.capsule)).found
            self._found = {found.cell: found}
        else:
            self._found = {cell: prepare.find(cell, self.archive) for cell in self.cells}
        usable(Path(self.options.report), NO_REPORT)
        self.run = open_run(self.records, self.uid(), plan, command, self.options.seed, self.deselected)

    @contextlib.contextmanager
    def bench(self, cell: Cell, number: int) -> Iterator[Bench]:
        """A guest of the cell, made and booted, with the cell's record. Each next `number` has the next seed."""
        assert self.run
        record, options = self.run.cell(cell.id), self.options
        artifacts = self._artifacts(cell)
        record.write_artifacts(artifacts.to_json())
        spec = prepare.machine(artifacts, self.cells[cell].sizes, hosts=self.cells[cell].hosts)
        store = self.archive.store
        functions = executed.changed(artifacts.found, store, self.archive) if options.executed else ()
        with boot(artifacts, record, spec) as (booted, attempts):
            record.write_facts(booted.facts)
            made = Bench(booted, record, options.seed + number - 1, options.full, attempts)
            with executed.watching(made, functions, booted.guest.console.path.parent):
                yield made

    def _artifacts(self, cell: Cell) -> prepare.Artifacts:
        if self.options.capsule:
            made = capsule.opened(Path(self.options.capsule)).artifacts(self.archive.store, self.archive)
        else:
            made = prepare.prepare(self._found[cell], self.archive.store, self.archive)
        return prepare.in_virtual_time(made) if self.options.virtual_time else made

    def again(self, nodeid: str, cell: Cell) -> str:
        """The command that runs one case again, with the same seed."""
        option = self.options
        named = ["--matrix", option.matrix, "--cell", cell.id] if option.matrix else cell.options
        named += [word for host in option.ssh for word in ("--ssh", host)]
        words = ["pytest", nodeid, *named, "--seed", str(option.seed), "--known", option.known]
        words += ["--boots", str(option.boots)] if option.boots > 1 else []
        words += ["--full"] if option.full else []
        return shlex.join(words + (["--virtual-time"] if option.virtual_time else []))

    def whole(self) -> Run | None:
        """The run as the main process sees it: under pytest-xdist the workers have made it. None if it never began."""
        return self.run or joined_run(self.records, self.uid())

    def close(self) -> None:
        close_run(self.records, self.uid())


def _capsuled(options: Any) -> list[Planned]:
    return [Planned(capsule.opened(Path(options.capsule)).cell)]


def _rows(options: Any) -> list[Planned]:
    """The cells of the command line, or of its matrix file, each with the machines that it may use."""
    provider = options.provider if options.matrix else provider_for(options.provider, options.ssh)
    axes = {"kernels": options.kernel, "runtimes": options.runtime, "provider": provider}
    axes |= {"variants": options.variant, "series": options.series}
    rows = asked(Path(options.matrix) if options.matrix else None, options.set, options.cell, **axes)
    rows = [replace(row, hosts=tuple(options.ssh) or row.hosts) if row.cell.provider == "ssh" else row for row in rows]
    for row in rows:
        provider_for(row.cell.provider, row.hosts)
    return rows


def _part(options: Any, root: Path, uid: Callable[[], str]) -> Runbook:
    """Of a larger run one cell, with the options that were planned."""
    if orphaned():
        raise BadInput("labs run has ended")
    folder = Path(options.join)
    plan, run = load(folder), Run.open(folder)
    asked_for = plan.request
    options.full, options.known, options.matrix = asked_for.full, asked_for.known, asked_for.matrix
    options.seed = run.seed
    row = plan.rows[options.cell[0]]
    return Runbook(options, root / options.record, uid, {row.cell: row}, plan, run)
