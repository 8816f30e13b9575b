"""The `labs run` command: parses and calls, decides nothing."""

from __future__ import annotations

import logging
import os
import random
import shlex
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from labs.commandline import cell_options, matrix_options, show
from labs.errors import BadInput
from labs.invariant.verdict import EXIT_CODE, worst
from labs.matrixfile import read
from labs.report.publish import publish
from labs.report.record import Run
from labs.report.table import STYLE
from labs.report.text import reason
from labs.run.begin import FAILED, Draft, Tasks, draft, left, newest, repeat
from labs.run.builds import Build
from labs.run.drive import Drive, host
from labs.run.leftovers import clear, held, make_scratch
from labs.run.past import past
from labs.run.plan import ARCHIVE_FILE, Plan, Request, load
from labs.run.schedule import Need, Queue, expected_seconds
from labs.run.show import LiveView, View, span, tally
from labs.source.debian import Archive
from labs.store import Store

log = logging.getLogger("labs")
SHOWN = 40  # rows of cases that did not go well

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
    if resume:
        if failed or seed is not None or request != Request():
            raise BadInput("--resume goes on with what is planned", mend="give only DIR, --jobs and --report")
        sys.exit(_go_on(resume, report, jobs, dry))
    drafted = _draft(request, records, failed)
    if dry:
        _dry_run(drafted, records, jobs)
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


def _tasks(
    plan: Plan, records: Path, archive: Archive, cells: dict[str, Sequence[str]]
) -> tuple[Tasks, dict[str, Build]]:
    tasks = Tasks(plan, past(records), archive)
    return tasks, tasks.builds(list(cells))


def _capacity(folder: Path, jobs: int) -> tuple[Need, int]:
    capacity = host(folder)
    return capacity, jobs or max(1, int(capacity.cores))


def _go_on(folder: Path, report: Path, jobs: int, dry: bool = False) -> int:
    """Run what is left of a run that is on record; its exit code."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it, and so would pytest
    plan, run = load(folder), Run.open(folder)
    with held(folder):
        clear(folder)
        archive = Archive.as_of(Store.of_user(), folder / ARCHIVE_FILE)
        cells = left(run)
        if dry:
            _dry_run(
                Draft(plan, {cell: tuple(cases) for cell, cases in cells.items()}, 0, archive), folder.parent, jobs
            )
            return 0
        try:
            view = _drive(run, plan, archive, cells, jobs)
        except BaseException:
            log.info("to go on: labs run --resume %s", shlex.quote(str(folder)))
            raise
        finally:
            clear(folder)
        publish(run, report)
        return _tell(run, report, view)


def _drive(run: Run, plan: Plan, archive: Archive, cells: dict[str, list[str]], jobs: int) -> View:
    tasks, builds = _tasks(plan, run.path.parent, archive, dict(cells))
    capacity, jobs = _capacity(run.path, jobs)
    listed = [tasks.cell(cell, cases, list(builds.values())) for cell, cases in cells.items()]
    listed += [build.task(int(capacity.cores)) for build in builds.values()]
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
        again = lambda cell: tasks.cell(cell, left(run).get(cell, []))  # noqa: E731
        Drive(run, plan, Queue(capacity, jobs, listed), builds, again, make_scratch(run.path), view).go()
    return view


def _dry_run(drafted: Draft, records: Path, jobs: int) -> None:
    records.mkdir(parents=True, exist_ok=True)
    tasks, builds = _tasks(drafted.plan, records, drafted.archive, dict(drafted.cases))
    capacity, jobs = _capacity(records, jobs)
    cells = [tasks.cell(cell, cases, list(builds.values())) for cell, cases in drafted.cases.items()]
    made = [build.task(int(capacity.cores)) for build in builds.values()]
    rows = [
        {
            "what": task.id,
            "cases": str(len(drafted.cases.get(task.id, ()))) if not task.build else "",
            "expected": span(task.seconds),
            "memory": f"{task.need.memory_mb:.0f} MB",
            "cores": f"{task.need.cores:g}",
            "disk": f"{task.need.disk_mb:.0f} MB",
        }
        for task in [*made, *cells]
    ]
    show(rows, False)
    alone = sum(task.seconds for task in [*made, *cells])
    disk = sum(task.need.disk_mb for task in [*made, *cells])
    print(
        f"{len(cells)} cells, {sum(map(len, drafted.cases.values()))} cases, {len(made)} builds: expected "
        f"{span(expected_seconds(capacity, jobs, [*made, *cells]))} with at most {jobs} at once "
        f"({span(alone)} one after the other), {disk:.0f} MB of disk"
    )
    for task in cells:
        if lack := capacity.lacks(Need(task.need.memory_mb, 0, task.need.disk_mb)):
            print(f"{task.id} would wait for {lack}")


def _tell(run: Run, report: Path, view: View) -> int:
    """The cells, what did not go well, and where to read more; the exit code."""
    results = run.results()
    console = Console(width=None if sys.stdout.isatty() else 120, no_color="NO_COLOR" in os.environ)
    table = Table()
    for column in ("cell", "outcome", "cases"):
        table.add_column(column, overflow="fold", no_wrap=column == "cell")
    for cell, cases in results.items():
        outcome = worst([result.outcome for result in cases])
        table.add_row(Text(cell), Text(outcome, STYLE[outcome]), tally([result.outcome for result in cases]))
    console.print(table)
    bad = [(cell, one) for cell, cases in results.items() for one in cases if one.outcome in FAILED or one.attempts > 1]
    for cell, one in bad[:SHOWN]:
        console.print(Text(f"{one.outcome}: {cell} {one.case}: {reason(one)}", STYLE[one.outcome]))
    if len(bad) > SHOWN:
        print(f"and {len(bad) - SHOWN} more")
    print(f"{span(view.passed)} in all; what ran took {span(view.took)} one after the other")
    for path in (report / "index.html", report / "junit.xml", run.path):
        print(path)
    return EXIT_CODE[worst([one.outcome for cases in results.values() for one in cases])]
