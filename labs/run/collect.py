"""The cases that a request plans, asked of pytest itself: its own -k, -m and parameters decide."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from labs.child import PYTEST
from labs.command import run
from labs.deadline import Deadline
from labs.errors import BadInput, LabError
from labs.matrixfile import Planned
from labs.run.plan import Request

TOLD = "labs-plan: "  # before the line in which conftest.py tells what was collected
SECONDS = 600.0
USAGE, NONE = 4, 5  # exit codes of pytest


@dataclass(frozen=True)
class Collected:
    """Cases by cell, in order; how many were left out by -k or -m; those that ask for cores of their own."""

    cases: Mapping[str, tuple[str, ...]]
    deselected: int
    exclusive: frozenset[str]


def collect(request: Request, rows: Sequence[Planned]) -> Collected:
    """Every cell has the same cases, so that one is asked for all; -k may name cells, so then all are.

    BadInput when there is no such suite or no case is left; LabError when a suite cannot be imported.
    """
    ids = [row.cell.id for row in rows]
    asked = ids[:1] if not request.keyword else []
    argv = [*PYTEST, "--collect-only", "--tell-plan", *request.suites, *request.words(asked)]
    done = run(argv, Deadline(SECONDS, "collecting the cases"), expect=None)
    lines = [line.removeprefix(TOLD) for line in done.out.splitlines() if line.startswith(TOLD)]
    names = " ".join(request.suites)
    if done.code == USAGE or not lines:
        said = [line for line in (done.err or done.out).splitlines() if line.strip()] or ["pytest said nothing"]
        kind = BadInput if done.code == USAGE else LabError
        raise kind(f"{names}: {said[0].removeprefix('ERROR: ')}", evidence="" if kind is BadInput else done.out)
    if done.code not in (0, NONE):
        raise LabError(f"{names}: the cases cannot be collected", evidence=done.out)
    told = json.loads(lines[-1])
    if not told["cells"]:
        why = f"-k or -m left out all {told['deselected']}" if told["deselected"] else "its tests ask for no cell"
        raise BadInput(f"{names}: no case for a cell: {why}", mend="name a folder of suites/, or another expression")
    if asked:
        cases = tuple(told["cells"][asked[0]])
        return Collected(dict.fromkeys(ids, cases), told["deselected"] * len(ids), frozenset(told["exclusive"]))
    found = {cell: tuple(told["cells"][cell]) for cell in ids if cell in told["cells"]}
    return Collected(found, told["deselected"], frozenset(told["exclusive"]))
