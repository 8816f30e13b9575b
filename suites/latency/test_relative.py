"""What an operation costs where others are at work, against what it costs alone, in one boot of a measuring guest."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from labs.casebook import Bench
from labs.compare.boots import measured
from labs.compare.measures import measures_of
from labs.invariant.latency import EMULATED
from labs.invariant.relative import no_slower
from labs.probe.register import Absent
from labs.probe.samples import Samples

PROBE = "samples"
MEASURES = measures_of(Path(__file__).parent)


@dataclass(frozen=True)
class Claim:
    """`measure` takes at most `most` times what `against` takes, at the median."""

    name: str
    measure: str
    against: str
    most: float
    file: str


CLAIMS = {
    "crowd": Claim("cpu.max does not slow down with other groups", "cpu-max-crowd", "cpu-max", 1.25, "cpu.max"),
    "weights": Claim("a weight does not wait for other weights", "weight-beside-io", "cpu-weight", 2.0, "cpu.weight"),
    "forks": Claim("a fork does not wait for moves", "fork-beside-moves", "fork", 2.3, "cgroup.procs"),
}


def samples(bench: Bench) -> Samples:
    """All measures of the suite, of one boot that does nothing else; none where they would prove nothing."""
    if bench.accelerator in EMULATED:
        return Samples(dict.fromkeys([measure.name for measure in MEASURES], np.empty(0, np.uint32)))
    return bench.kept(
        PROBE, lambda: measured(bench.booted.artifacts, MEASURES, bench.seed, bench.record.new_boot()).samples
    )


@pytest.mark.parametrize("claim", CLAIMS)
def test_relative(bench: Bench, judge, claim):
    one = CLAIMS[claim]
    taken = samples(bench)
    for name in (one.measure, one.against):
        if name in taken.failed:
            raise Absent(f"{name} cannot be measured here: {errno.errorcode[taken.failed[name]]}")
    judge(
        no_slower(one.name, taken.taken[one.measure], taken.taken[one.against], bench.accelerator, one.most),
        [one.file], PROBE,
    )  # fmt: skip
