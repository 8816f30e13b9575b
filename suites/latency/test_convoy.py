"""Creates at once: does each wait for a lock of the host, the longer the more there are?"""

from __future__ import annotations

from labs.casebook import Bench
from labs.invariant.convoy import no_convoy
from labs.probe.convoy import run_convoy
from labs.probe.register import group

WORKERS, FULL_WORKERS = (1, 2, 4, 8), (1, 2, 4, 8, 12, 16)


def test_convoy(bench: Bench, judge):
    with bench.watching(), group(bench.guest, "lab-convoy", ["cpu.max"]) as parent:
        waves = run_convoy(bench.guest, bench.booted.runtime, parent, FULL_WORKERS if bench.full else WORKERS)
    judge(no_convoy(waves))
