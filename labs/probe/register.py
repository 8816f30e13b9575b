"""The register probe: threads that write and read cgroup files as fast as they can, every operation recorded."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from labs.errors import LabError
from labs.guest import Guest
from labs.prepare import AGENT
from labs.probe.stream import Report, parse
from labs.probe.values import START, Value, table

ROOT = "/sys/fs/cgroup"
FOLDER = "/run/cgroup-lab"  # in the guest: plans and tables
CAPACITY = 250_000  # operations a thread; 32 bytes each, held in the guest's memory until the run is over


class Absent(LabError):
    """A file that the probe needs does not exist in this guest: the case is skipped, with these words."""


@dataclass(frozen=True)
class Load:
    """Threads on one file. Writers own disjoint shares of the file's values."""

    path: str
    writers: int = 1
    readers: int = 1


@contextlib.contextmanager
def group(guest: Guest, name: str, files: Sequence[str]) -> Iterator[str]:
    """A cgroup called `name` that has `files`, at their START; removed at the end. Absent names one that is missing."""
    path = f"{ROOT}/{name}"
    controllers = " ".join(f"+{c}" for c in sorted({file.split(".")[0] for file in files} - {"cgroup"}))
    make = f"echo {shlex.quote(controllers)} > {ROOT}/cgroup.subtree_control; mkdir {path}"
    start = "".join(f"echo {START[file]} > {path}/{file} 2> /dev/null; " for file in files if file in START)
    listed = guest.must(f"{make} && ls {path} && {{ {start}cat {ROOT}/cgroup.controllers; }}").split()
    try:
        for file in files:
            if file not in listed:
                raise Absent(f"{file} does not exist here (controllers: {' '.join(listed[-10:])})")
        yield path
    finally:
        with contextlib.suppress(LabError):
            guest.run(f"rmdir {path}", 10)


def run_register(guest: Guest, loads: Sequence[Load], *, seconds: float, seed: int, capacity: int = CAPACITY) -> Report:
    """Hammer the files of `loads` until one thread has `capacity` operations on record, for `seconds` at most."""
    tables = tables_for([load.path for load in loads], seed)
    plan = [f"seconds {seconds}", f"capacity {capacity}", f"seed {seed}", *load_lines(loads, tables)]
    return run_agent(guest, plan, tables, seconds=seconds + 30, facts={"seed": seed})


def tables_for(paths: Sequence[str], seed: int) -> dict[str, list[Value]]:
    names = dict.fromkeys(path.rsplit("/", 1)[-1] for path in paths)
    return {name: table(name, seed) for name in names}


def load_lines(loads: Sequence[Load], tables: dict[str, list[Value]]) -> list[str]:
    """Plan lines. Writers take turns round the CPUs, readers too from the last one back: while there are enough, no
    two writers share one."""
    names = list(tables)
    lines, writer, reader = [], 0, 0
    for number, load in enumerate(loads):
        values = tables[load.path.rsplit("/", 1)[-1]]
        lines.append(f"target {number} {names.index(load.path.rsplit('/', 1)[-1])} {load.path}")
        share = len(values) // max(1, load.writers)
        for i in range(load.writers):
            lines.append(f"writer {number} {i * share} {share} {writer}")
            writer += 1
        for _ in range(load.readers):
            lines.append(f"reader {number} {reader}")
            reader += 1
    return lines


def run_agent(
    guest: Guest, plan: Sequence[str], tables: dict[str, list[Value]], *, seconds: float, facts: dict[str, object]
) -> Report:
    """Send tables and plan, run the agent, parse its report."""
    files = {
        f"table{i}": "".join(f"{value.write}\t{value.read}\n" for value in values).encode()
        for i, values in enumerate(tables.values())
    }
    lines = [f"table {i} {FOLDER}/table{i}" for i in range(len(tables))]
    files["plan"] = "\n".join([*lines, *plan, ""]).encode()
    guest.put_files(files, FOLDER)
    result = guest.run(f"{AGENT} {FOLDER}/plan", seconds)
    if result.code != 0:
        said = result.err.strip().splitlines()[-1:] or [f"ended with {result.code}"]
        raise LabError(f"the probe did not run: {said[0]}", evidence=result.err)
    return parse(result.stdout, tables, facts)
