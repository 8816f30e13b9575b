"""`labs capsule`, `labs replay`: one cell packed whole, and run elsewhere."""

from __future__ import annotations

import logging
import random
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from labs import prepare
from labs.child import collect, recorded
from labs.commandline import cell_options, show
from labs.errors import BadInput
from labs.invariant.verdict import EXIT_CODE, worst
from labs.matrix import one_cell
from labs.report.record import Run
from labs.signoff import capsule
from labs.signoff.capsule import Asked, Capsule
from labs.signoff.plan import SUITES
from labs.source.debian import Archive
from labs.store import NO_RECORDS, Store, usable

log = logging.getLogger("labs")

a_path = click.Path(path_type=Path)
SECONDS = 2 * 3600.0


@click.command("capsule")
@cell_options
@click.option("-o", "--output", type=a_path, required=True, metavar="FILE")
@click.option("--test", "tests", multiple=True, help=f"A suite or a pytest id; repeats; default: {SUITES[0]}.")
@click.option("--seed", type=int, help="Of all random choices; default: drawn, and told.")
@click.option("--run", "run_", type=a_path, metavar="RUN", help="A run of the cell: its seed, its cases' outcomes.")
@click.argument("cell", required=False)
def capsule_(
    cell: str | None, output: Path, tests: Sequence[str], seed: int | None, run_: Path | None, **axes: Any
) -> None:
    """Pack a CELL (an id of `labs cells`, or its options) into one file: kernel, initramfs, agent, patches, tests.

    With --run, the replay also tells whether its outcomes are those of that run.

    Example: labs capsule 6.1_runc -o cell.tar --test suites/cgroup_atomicity/test_alone.py --run records/RUN
    """
    store = Store.of_user()
    archive = Archive(store)
    usable(output.parent, "name another file in a folder with -o")
    found = prepare.find(one_cell(cell or "", **axes), archive)
    there = Run.open(run_) if run_ else None
    name = found.cell.id
    if there and name not in there.plan:
        raise BadInput(f"{run_}: has no cell {name}", mend=f"it has: {', '.join(there.plan)}")
    outcomes = {r.case: r.outcome for r in there.cell(name).results()} if there else {}
    drawn = seed if seed is not None else there.seed if there else random.randrange(1 << 24)
    asked = Asked(tuple(tests) or SUITES, drawn, outcomes=outcomes)
    collect(asked.tests, found.cell)  # a test that is none would be found out by the replay, on another machine
    manifest = capsule.seal(prepare.prepare(found, store, archive), asked, output)
    print(f"{output}: {name}, {len(manifest['members'])} files, {output.stat().st_size >> 20} MiB, seed {drawn}")


@click.command()
@click.option("--record", "records", type=a_path, default=Path("records"), show_default=True, metavar="DIR")
@click.argument("file", type=a_path)
def replay(file: Path, records: Path) -> None:
    """Boot the cell that a capsule FILE holds and run its tests. Exit 1 when an outcome is other than the packed one.

    Without packed outcomes the exit code is that of the worst outcome.

    Example: labs replay cell.tar
    """
    usable(records, NO_RECORDS)
    with tempfile.TemporaryDirectory(prefix="cgroup-lab-") as name:
        opened = capsule.unpack(file, Path(name))
        store = Store.of_user()
        for line in opened.other(opened.artifacts(store, Archive(store))):
            log.warning("not as it was packed: %s", line)
        outcomes = _outcomes(opened, records)
    packed = opened.asked.outcomes or {}
    rows = [{"case": case, "outcome": outcome, "packed": packed.get(case, "")} for case, outcome in outcomes.items()]
    show(rows, False)
    if not packed:
        sys.exit(EXIT_CODE[worst(list(outcomes.values()))])
    other = [case for case, outcome in outcomes.items() if case in packed and packed[case] != outcome]
    compared = sum(case in packed for case in outcomes)
    print(
        f"{compared - len(other)} of {compared} outcomes as packed" + (f"; other: {', '.join(other)}" if other else "")
    )
    sys.exit(1 if other or not compared else 0)


def _outcomes(opened: Capsule, records: Path) -> dict[str, str]:
    """Run the tests; what came of each case."""
    with tempfile.TemporaryDirectory(prefix="replay-", dir=records) as name:
        folder = Path(name).absolute()
        made = recorded(opened.words(), folder, SECONDS, "the replay").path
        kept = made.rename(records / made.name)
    log.info("record: %s", kept)
    return {result.case: result.outcome for result in Run.open(kept).cell(opened.cell.id).results()}
