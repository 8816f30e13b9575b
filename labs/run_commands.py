"""Commands of `labs` on runs that are on record, and for CI."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click

from labs.commandline import as_json, matrix_options, show
from labs.errors import BadInput
from labs.invariant.verdict import EXIT_CODE, NO_VERDICT, worst
from labs.matrixfile import read
from labs.pipeline import FORMATS, pipeline
from labs.report.changes import changes, worse
from labs.report.gather import gather, runs_in
from labs.report.history import histories
from labs.report.index import write_index
from labs.report.markdown import markdown
from labs.report.record import Run
from labs.report.required import of_case, read_required, unmet

a_path = click.Path(path_type=Path)
RECORDS = Path("records")


def _runs(named: Sequence[Path]) -> list[Run]:
    """The runs in these folders; BadInput for one that is not there, as nothing in it would look like success."""
    for path in named or [RECORDS]:
        if not path.is_dir():
            raise BadInput(f"{path}: no such folder", mend="name a run, or a folder of runs")
    return runs_in(named or [RECORDS])


@click.command()
@click.argument("old", type=a_path, metavar="RUN1")
@click.argument("new", type=a_path, metavar="RUN2")
@as_json
def diff(old: Path, new: Path, as_json: bool) -> None:
    """Tell what changed between two runs: outcomes, latency figures, versions. Exit 1 when an outcome got worse.

    Example: labs diff records/20260101T000000Z-aaaaaa records/20260102T000000Z-bbbbbb
    """
    found = changes(Run.open(old), Run.open(new))
    if found or as_json:
        show([asdict(change) for change in found], as_json)
    else:
        print("nothing changed")
    sys.exit(1 if any(worse(change) for change in found) else 0)


@click.command()
@matrix_options
@click.option("--cell", "globs", multiple=True, metavar="GLOB", help="Only cells whose id matches; repeats.")
@click.option("--signoff", type=a_path, metavar="FILE", help="Judge by what this file says must have passed.")
@click.option("--link", default="", metavar="URL", help="Where the records can be had.")
@click.argument("records", nargs=-1, type=a_path, metavar="[RUN|FOLDER]...")
def summary(
    records: Sequence[Path], matrix: Path | None, set_: str, globs: Sequence[str], signoff: Path | None, link: str
) -> None:
    """Print the outcomes of runs (default: those in records/) as Markdown; exit by the worst.

    With a matrix or a sign-off file every cell of it is shown: one that no run has, or not whole, is not-run.

    Example: labs summary --matrix ci/matrix.toml --set nightly records
    """
    if signoff and (matrix or set_ or globs):
        raise BadInput("--signoff beside --matrix, --set or --cell", mend="the sign-off file names its matrix and set")
    runs = runs_in(records or [RECORDS]) if signoff or matrix else _runs(records)  # without a run a cell is not-run
    if signoff:
        required = read_required(signoff)
        cells = gather(runs, required.matrix, required.set)
        against = unmet(required, cells)
        print(markdown(f"set {required.set} of {required.matrix.path}", cells, against, link))
        sys.exit(max((3 if one.outcome in NO_VERDICT else 1 for one in against), key=(0, 3, 1).index, default=0))
    if matrix is None and (set_ or globs):
        raise BadInput("--set or --cell without a matrix", mend="give --matrix FILE")
    cells = gather(runs, read(matrix) if matrix else None, set_, globs)
    title = f"set {set_} of {matrix}" if set_ else str(matrix or "cells on record")
    print(markdown(title, cells, link=link))
    sys.exit(EXIT_CODE[worst([result.outcome for one in cells for result in one.results])])


@click.command()
@click.option("--format", "form", type=click.Choice(FORMATS), required=True)
@click.option("--matrix", type=a_path, default=Path("ci/matrix.toml"), show_default=True, metavar="FILE")
def ci(form: str, matrix: Path) -> None:
    """Print the pipeline for a matrix file: smoke for each change, nightly, sign-off for each tag; one job a kernel.

    Example: labs ci --format github > .github/workflows/lab.yml
    """
    print(pipeline(read(matrix), form), end="")


@click.command()
@click.option("--case", "pattern", default="*", metavar="GLOB", help="Only cases whose name matches.")
@click.option("--flaky", is_flag=True, help="Only those that contradict themselves; exit 1 when there is one.")
@click.argument("records", nargs=-1, type=a_path, metavar="[RUN|FOLDER]...")
@as_json
def history(records: Sequence[Path], pattern: str, flaky: bool, as_json: bool) -> None:
    """Tell what each case gave over the runs on record (default: those in records/), of equal binaries each.

    Example: labs history --flaky records
    """
    found = [one for one in histories(_runs(records)) if of_case(one.case, pattern)]
    shown = [one for one in found if one.flaky or not flaky]
    rows = [
        {"cell": one.cell, "case": one.case, "build_id": one.build_id[:12], "outcomes": one.counts} for one in shown
    ]
    if rows or as_json:
        show([row | {"flaky": one.flaky} for row, one in zip(rows, shown, strict=True)], as_json)
    else:
        print("no such case" if not found else "no case contradicts itself")
    sys.exit(1 if flaky and shown else 0)


@click.command()
@click.option("--record", "records", type=a_path, default=Path("records"), show_default=True)
def index(records: Path) -> None:
    """Write index.html over all runs in a folder of records, newest first, with links to their pages.

    Example: labs index && xdg-open records/index.html
    """
    print(write_index(records))
