"""The `labs run` command: parses and calls, decides nothing."""

from __future__ import annotations

import logging
import random
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from labs.commandline import cell_options, matrix_options
from labs.errors import BadInput
from labs.matrixfile import read
from labs.report.publish import publish
from labs.report.record import Run
from labs.run.begin import Draft, Tasks, draft, left, newest, repeat
from labs.run.drive import Drive, host
from labs.run.leftovers import clear, held, make_scratch
from labs.run.past import past
from labs.run.plan import ARCHIVE_FILE, Request, load
from labs.run.schedule import Need, Queue, expected_seconds
from labs.run.show import LiveView, View, span
from labs.run.tables import foretell, tell
from labs.source.debian import Archive
from labs.store import NO_RECORDS, NO_REPORT, Store, usable

log = logging.getLogger("labs")

a_path = click.Path(path_type=Path)
OPTIONS = (
    click.option("-k", "keyword", default="", metavar="EXPR", help="Only these cases, as pytest's -k."),
    click.option("-m", "marks", default="", metavar="EXPR", help="Only these cases, as pytest's -m."),
    click.option("--full", is_flag=True, help="The large sizes."),
    click.option("--known", type=click.Choice(["report", "ignore"]), default="report", help="Known defects."),
    click.option("--seed", type=int, help="Seed of all random choices (default: drawn, and told)."),
    click.option("--jobs", default="auto", show_default=True, metavar="N|auto", help="At most so many at once."),
    click.option("--dry-run", is_flag=True, help="Only tell what would run, how long, and what it takes."),
    click.option("--resume", type=a_path, metavar="DIR", help="Go on with a run that was interrupted."),
    click.option("--failed", is_flag=True, help="Only what failed in the newest run; without SUITE: all that it had."),
    click.option("--record", "records", type=a_path, default=Path("records"), show_default=True),
    click.option("--report", type=a_path, default=Path("report"), show_default=True),
    click.argument("suites", nargs=-1, metavar="[SUITE]..."),
)


def _options(command: Any) -> Any:
    for option in reversed(OPTIONS):
        command = option(command)
    return command


@click.command("run")
@matrix_options
@cell_options
@_options
def run_(**given: Any) -> None:
    """Run suites on many cells, in parallel within what the host has. With --set, a set's own suites are the default.

    Exit 1: a case failed; 3: infrastructure trouble, or something never ran; 4: something could not be judged; 2: bad
    input. An interrupted run goes on with --resume.

    Example: labs run --matrix ci/matrix.toml --set nightly
    """
    records, report, jobs = given.pop("records"), given.pop("report"), _jobs(given.pop("jobs"))
    resume, failed, dry, seed = (given.pop(name) for name in ("resume", "failed", "dry_run", "seed"))
    request = _request(given)
    if not dry:
        usable(report, NO_REPORT)
    if resume:
        if failed or seed is not None or request != Request():
            raise BadInput("--resume goes on with what is planned", mend="give only DIR, --jobs and --report")
        sys.exit(_go_on(resume, report, jobs, dry))
    drafted = _draft(request, records, failed)
    if dry:
        usable(records, NO_RECORDS)
        foretell(Tasks(drafted.plan, past(records), drafted.archive), drafted.cases, *_capacity(records, jobs))
        return
    run = drafted.create(records, random.randrange(1 << 24) if seed is None else seed)
    sys.exit(_go_on(run.path, report, jobs))


def _jobs(text: str) -> int:
    """How many at once, at most; 0: as the host has room for."""
    if text == "auto":
        return 0
    if not text.isdecimal() or int(text) < 1:
        raise BadInput(f"--jobs {text}: no number of jobs", mend="--jobs 2, or --jobs auto")
    return int(text)


def _request(given: dict[str, Any]) -> Request:
    matrix = str(given["matrix"] or "")
    suites = tuple(given["suites"])
    if not suites and matrix and given["set_"]:
        suites = read(Path(matrix)).set(given["set_"]).suites
    words = {name: given[name] for name in ("provider", "keyword", "marks", "full", "known")}
    words |= {name: tuple(given[name]) for name in ("globs", "kernels", "runtimes", "variants", "series")}
    return Request(suites=suites, matrix=matrix, set=given["set_"], **words)


def _draft(request: Request, records: Path, failed: bool) -> Draft:
    archive = Archive(Store.of_user())
    if not failed:
        if not request.suites:
            raise BadInput("no suite is named", mend="name one, as suites/cgroup_atomicity, or a set of a matrix")
        return draft(request, archive)
    old = newest(records)
    return repeat(draft(request if request.suites else load(old).request, archive), Run.open(old))


def _capacity(folder: Path, jobs: int) -> tuple[Need, int]:
    capacity = host(folder)
    return capacity, jobs or max(1, int(capacity.cores))


def _go_on(folder: Path, report: Path, jobs: int, dry: bool = False) -> int:
    """Run what is left of a run that is on record; its exit code."""
    plan, run = load(folder), Run.open(folder)
    plan.check_source()
    with held(folder):
        archive = Archive.as_of(Store.of_user(), folder / ARCHIVE_FILE)
        cells = left(run)
        tasks = Tasks(plan, past(folder.parent), archive)
        if dry:
            foretell(tasks, cells, *_capacity(folder, jobs))
            return 0
        clear(folder)
        try:
            view = _drive(run, tasks, cells, *_capacity(folder, jobs))
        except BaseException:
            log.info("to go on: labs run --resume %s", shlex.quote(str(folder)))
            raise
        finally:
            clear(folder)
        publish(run, report)
        return tell(run, report, view.passed, view.took)


def _drive(run: Run, tasks: Tasks, cells: Mapping[str, Sequence[str]], capacity: Need, jobs: int) -> View:
    builds = tasks.builds(list(cells))
    listed = tasks.listed(cells, builds, int(capacity.cores))
    console = Console(stderr=True)
    view: View = View(run, len(cells), capacity, jobs)
    if console.is_terminal:
        view = LiveView(run, len(cells), capacity, jobs, console)
    count = sum(map(len, cells.values()))
    expected = span(expected_seconds(capacity, jobs, listed))
    view.said(
        f"{len(cells)} of {len(run.plan)} cells to run, {count} cases, {len(builds)} builds; at most {jobs} at once, "
        f"{capacity.memory_mb:.0f} MB of memory, {capacity.cores:g} cores; expected {expected}; record: {run.path}"
    )
    with view:
        Drive(run, tasks, Queue(capacity, jobs, listed), builds, make_scratch(run.path), view).go()
    return view
