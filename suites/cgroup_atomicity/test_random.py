"""Random sequences of operations, judged by a model of cgroup v2: one after the other, and in lanes at the same time.

Nothing here is written for a certain defect. `masked` leaves out of the sequences what known defects need, so that
whatever else is wrong shows; the others contain it.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from labs.casebook import Bench
from labs.invariant.known import explain
from labs.model.act import Case
from labs.model.carry import ROOT, crowd, kernel_of, run_cases
from labs.model.draw import batches
from labs.model.driver import Effort, Finding, examine
from labs.model.fit import mask
from labs.probe.promises import root_group

SEQUENCES, FULL_SEQUENCES = 60, 1_500
CROWD = 800
EFFORT, FULL_EFFORT = Effort(runs=400, seconds=20), Effort(runs=4_000, seconds=120)
NEWEST = (99,)  # a kernel whose version is not known is taken for a new one
MASKS: dict[str, Callable[[Case], Case]] = {"masked": mask, "known": lambda case: case}

masks = pytest.mark.parametrize("masked", MASKS)


def look(bench: Bench, masked: str, *, concurrent: bool) -> Finding:
    """Run random sequences; of what is wrong, that which no known defect explains comes first."""
    if masked == "known" and not bench.full:
        pytest.skip("part of --full: a race that is found is then made small, which takes its time")
    count = (FULL_SEQUENCES if bench.full else SEQUENCES) * (3 if concurrent else 1)
    # a crowd of idle groups widens the window of the known race, and is of no use to the others
    crowded = CROWD if concurrent and masked == "known" else 0
    with bench.watching(), root_group(bench.guest, ROOT) as files, crowd(bench.guest, crowded):
        kernel = kernel_of(bench.guest, bench.kernel or NEWEST, files)
        cases = batches(bench.seed, count, kernel, concurrent=concurrent, mask=MASKS[masked])
        findings = examine(
            lambda some: run_cases(bench.guest, some),
            cases,
            kernel,
            concurrent=concurrent,
            replay=bench.replay,
            effort=FULL_EFFORT if bench.full else EFFORT,
        )
    known = bench.known_defects()
    return min(findings, key=lambda finding: explain(finding[0], known, bench.kernel, finding[1]).outcome != "fail")


@masks
def test_random_sequential(bench: Bench, judge, masked):
    judge(*look(bench, masked, concurrent=False))


@masks
def test_random_concurrent(bench: Bench, judge, masked):
    judge(*look(bench, masked, concurrent=True))
