"""Commands of `labs` on runs that are on record, and for CI."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path

import click

from labs.commandline import as_json, show
from labs.report.changes import changes, worse
from labs.report.record import Run

a_run = click.Path(path_type=Path)


@click.command()
@click.argument("old", type=a_run, metavar="RUN1")
@click.argument("new", type=a_run, metavar="RUN2")
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
