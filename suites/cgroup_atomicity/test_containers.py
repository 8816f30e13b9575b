"""The same files while containers come and go: on their common parent, and on each container's own group."""

from __future__ import annotations

import numpy as np
import pytest

from labs.casebook import Bench
from labs.guest import Guest
from labs.invariant.atomicity import linearizable, no_lost_update, rejected_write
from labs.invariant.hygiene import container_steps, nothing_left
from labs.invariant.latency import latency
from labs.probe.containers import run_containers
from labs.probe.register import Load, group
from labs.probe.steps import STEPS
from labs.probe.stream import Report
from labs.probe.values import PAIRS

FILES = [name for names in PAIRS.values() for name in names]
OWN = ["cpu.weight", "cpu.max"]  # in each container's own group
WORKERS = 3
COUNT = 120  # more than the 100 that a 99th percentile needs
EMULATED_COUNT = 15  # there latency is not judged, and containers take the largest part of the run
# A cap on what is plausible, not a target: a create alone takes 0.7 s under emulation.
STEP_BOUND_US = 2_000_000
PROBE = "containers"

pair = pytest.mark.parametrize("pair", PAIRS)


def count(bench: Bench) -> int:
    return COUNT if bench.full or bench.accelerator == "kvm" else EMULATED_COUNT


def probe(bench: Bench) -> Report:
    def run(guest: Guest) -> Report:
        with group(guest, "lab-containers", FILES) as parent:
            loads = [Load(f"{parent}/{name}") for name in FILES]
            return run_containers(
                guest, bench.booted.runtime, parent, loads, OWN, count=count(bench), workers=WORKERS, seed=bench.seed
            )

    return bench.report(PROBE, run)


def registers(bench: Bench, pair: str):
    return [register for name in PAIRS[pair] for register in probe(bench).history.named(name)]


@pair
def test_linearizable(bench: Bench, judge, pair):
    judge(linearizable(registers(bench, pair)), PAIRS[pair], PROBE)


@pair
def test_no_lost_update(bench: Bench, judge, pair):
    judge(no_lost_update(registers(bench, pair)), PAIRS[pair], PROBE)


@pair
def test_rejected_write(bench: Bench, judge, pair):
    judge(rejected_write(registers(bench, pair)), PAIRS[pair], PROBE)


def test_every_step_succeeds(bench: Bench, judge):
    judge(container_steps(probe(bench).steps, planned=count(bench)), probe=PROBE)


def test_nothing_left_behind(bench: Bench, judge):
    judge(nothing_left(*probe(bench).left), probe=PROBE)


@pytest.mark.exclusive
@pytest.mark.parametrize("step", STEPS)
def test_step_latency(bench: Bench, judge, step):
    samples = [s.end - s.start for s in probe(bench).steps if s.step == step and s.code == 0]
    judge(latency(step, np.array(samples), bench.accelerator, STEP_BOUND_US), probe=PROBE)
