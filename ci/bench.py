"""Measure the lab itself: boot, probe and judge on the default cell. Every figure carries its accelerator.

Usage: .venv/bin/python ci/bench.py [ROUNDS]   (default 3; medians are printed)
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

from rich.console import Console
from rich.table import Table

from labs import prepare
from labs.invariant.atomicity import linearizable
from labs.matrix import Cell
from labs.probe.history import WRITE, Register
from labs.probe.register import Load, group, run_register
from labs.source.debian import Archive
from labs.store import Store

FILES = ("cpu.weight", "io.weight")
SECONDS = 4.0
MILLION = 1_000_000


def timed(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


def boot_and_ask(artifacts: prepare.Artifacts) -> None:
    with prepare.boot(artifacts) as booted:
        booted.guest.must("uname -r")


def probe(artifacts: prepare.Artifacts) -> tuple[Register, ...]:
    with prepare.boot(artifacts) as booted, group(booted.guest, "lab-bench", FILES) as path:
        return run_register(
            booted.guest, [Load(f"{path}/{name}") for name in FILES], seconds=SECONDS, seed=1
        ).history.registers


def rate(register: Register) -> float:
    """Writes a second of its writer, over the time in which it wrote: its record may fill before the probe ends."""
    writes = register.operations[register.operations["kind"] == WRITE]
    return len(writes) / float(writes["end"].max() - writes["start"].min()) * 1e9


def judged(registers: tuple[Register, ...]) -> float:
    """Seconds to judge a million of these operations, or all of them scaled up."""
    kept = [register.with_operations(register.operations[: MILLION // len(registers)]) for register in registers]
    count = sum(len(register.operations) for register in kept)
    return timed(lambda: linearizable(kept)) * MILLION / count


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    store = Store.of_user()
    archive = Archive(store)
    artifacts = prepare.prepare(prepare.find(Cell(), archive), store, archive)
    boots = [timed(lambda: boot_and_ask(artifacts)) for _ in range(rounds)]
    runs = [probe(artifacts) for _ in range(rounds)]
    table = Table(title=f"{artifacts.found.kernel.version}, accelerator {artifacts.accelerator.name}, {rounds} rounds")
    for column in ("figure", "median", "least", "most"):
        table.add_column(column)
    rows = {
        "boot, run uname -r, power off (s)": boots,
        "judge 1,000,000 operations (s, on the host)": [judged(r) for r in runs],
    }
    for at, name in enumerate(FILES):
        rows[f"writes of {name} a second"] = [rate(run[at]) for run in runs]
    for name, values in rows.items():
        table.add_row(name, *(f"{value:,.2f}" for value in (statistics.median(values), min(values), max(values))))
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
