"""The `labs judge` command: one cell, good, bad or skip, with the exit codes that `git bisect run` asks for."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from labs import prepare
from labs.bisect.axis import Axis
from labs.bisect.guests import Guests, find_case
from labs.commandline import cell_options, printed, signature_option
from labs.errors import BadInput, LabError, foreseen
from labs.matrix import cells
from labs.source.debian import Archive
from labs.store import NO_RECORDS, Store, usable

EXIT_CODE = {"good": 0, "bad": 1, "skip": 125}  # git-bisect(1), "Bisect run"


class NotJudged(LabError):
    """Nothing can be said of any candidate: git bisect must stop, and ends at codes from 128."""

    exit_code = 255


class ForGit(click.Command):
    """A command of which no error may look like a bad commit: 1 to 127 would."""

    def make_context(self, *words: Any, **more: Any) -> click.Context:
        try:
            return super().make_context(*words, **more)
        except click.UsageError as error:
            raise NotJudged(error.format_message()) from None

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with printed():
                return super().invoke(ctx)
        except Exception as error:
            known = foreseen(error)
            raise NotJudged(known.what, mend=known.mend, evidence=known.evidence) from None


@click.command("judge", cls=ForGit)
@cell_options
@signature_option
@click.option("--record", "records", type=click.Path(path_type=Path), default=Path("records"), show_default=True)
@click.argument("test", metavar="SUITE::TEST")
def judge(test: str, pattern: str, records: Path, **axes: Any) -> None:
    """Judge one cell by one test: exit 0 good, 1 bad, 125 skip, 255 when nothing can be judged.

    Example: git bisect run sh -c 'cd /lab && labs judge --kernel git:/src/linux#v6.1..HEAD SUITE::TEST'
    """
    found = cells(**axes)
    if len({replace(cell, role="") for cell in found}) > 1:
        raise BadInput(f"these options make {len(found)} cells", mend="name one, or choose with --cell")
    cell, archive = found[-1], Archive(Store.of_user())  # of a series the patched one
    prepare.find(cell, archive)
    case = find_case(test, cell)
    folder = Path(tempfile.mkdtemp(prefix="judge-", dir=usable(records, NO_RECORDS)))
    step = Guests(Axis({cell.id: cell}, "good"), case, folder, archive, pattern)(cell.id)
    print(f"{step.outcome}: {step.reason} ({records / step.evidence})")
    sys.exit(EXIT_CODE[step.outcome])
