"""A probe of the cpu.max race so short that it often sees nothing: for a search by probability on real guests.

    labs bisect --axis cell --good 6.1_crun_cpu-max-atomic.patched --bad 6.1_runc_cpu-max-atomic.base --runs 6 \\
        suites/guest/flaky_probe.py::test_lost_update
"""

from __future__ import annotations

from labs.casebook import Bench
from labs.invariant.atomicity import no_lost_update
from labs.probe.register import Load, group, run_register
from labs.probe.values import PAIRS

FILES = PAIRS["bandwidth"]
CAPACITY = 1200  # operations of a thread


def test_lost_update(bench: Bench, judge):
    with bench.watching(), group(bench.guest, "lab-flaky", FILES) as path:
        loads = [Load(f"{path}/{name}", readers=0) for name in FILES]
        report = run_register(bench.guest, loads, seconds=1, seed=bench.seed, capacity=CAPACITY)
    judge(no_lost_update(report.history.registers, minimum_operations=50, minimum_overlaps=1), FILES)
