"""Two files of one group, each with a writer and a reader of its own, and nothing else going on."""

from __future__ import annotations

import pytest

from labs.casebook import Bench
from labs.guest import Guest
from labs.invariant.atomicity import linearizable, no_lost_update, rejected_write
from labs.invariant.latency import latency
from labs.probe.history import WRITE
from labs.probe.register import CAPACITY, Load, group, run_register
from labs.probe.stream import Report
from labs.probe.values import PAIRS

SECONDS, FULL_SECONDS = 4, 60  # the limit; where writes are quick, the record is full before
FULL_CAPACITY = 4 * CAPACITY
# A cap on what is plausible without contention from outside, not a target: the slowest of these writes, cpu.max, took
# 33 us at the median under emulation on an idle group tree.
WRITE_BOUND_US = 5_000

pair = pytest.mark.parametrize("pair", PAIRS)


def probe(bench: Bench, pair: str) -> Report:
    def run(guest: Guest) -> Report:
        with group(guest, "lab-alone", PAIRS[pair]) as path:
            loads = [Load(f"{path}/{name}") for name in PAIRS[pair]]
            seconds, capacity = (FULL_SECONDS, FULL_CAPACITY) if bench.full else (SECONDS, CAPACITY)
            return run_register(guest, loads, seconds=seconds, seed=bench.seed, capacity=capacity)

    return bench.report(f"alone-{pair}", run)


@pair
def test_linearizable(bench: Bench, judge, pair):
    judge(linearizable(probe(bench, pair).history.registers), PAIRS[pair], f"alone-{pair}")


@pair
def test_no_lost_update(bench: Bench, judge, pair):
    judge(no_lost_update(probe(bench, pair).history.registers), PAIRS[pair], f"alone-{pair}")


@pair
def test_rejected_write(bench: Bench, judge, pair):
    judge(rejected_write(probe(bench, pair).history.registers), PAIRS[pair], f"alone-{pair}")


@pytest.mark.exclusive
@pytest.mark.parametrize("name", [name for names in PAIRS.values() for name in names])
def test_write_latency(bench: Bench, judge, name):
    pair = next(pair for pair, names in PAIRS.items() if name in names)
    (register,) = probe(bench, pair).history.named(name)
    done = register.operations[(register.operations["kind"] == WRITE) & (register.operations["errno"] == 0)]
    judge(
        latency(f"{name} write", done["end"] - done["start"], bench.accelerator, WRITE_BOUND_US), probe=f"alone-{pair}"
    )
