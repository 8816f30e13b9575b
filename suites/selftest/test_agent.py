"""The agent itself, compiled once here and run on plain files that stand for cgroup files."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from desk import BEFORE, LETTERS, TABLE, Desk

from labs.command import run
from labs.deadline import Deadline
from labs.probe.history import INITIAL, READ, WRITE, Register
from labs.probe.stream import Report
from labs.probe.values import Value


@pytest.fixture
def desk(program: Path, tmp_path: Path) -> Desk:
    return Desk(program, tmp_path)


def of(register: Register, thread: int) -> np.ndarray:
    return register.operations[register.operations["thread"] == thread]


def writes(register: Register, thread: int) -> list[int]:
    mine = of(register, thread)
    return [int(value) for value in mine["value"][mine["kind"] == WRITE]]


@pytest.fixture(scope="module")
def busy(program: Path, tmp_path_factory: pytest.TempPathFactory) -> Report:
    """Three writers and two readers on one file, one writer on another."""
    desk = Desk(program, tmp_path_factory.mktemp("busy"))
    one, two = desk.file("cpu.weight"), desk.file("cpu.max")
    return desk.report(
        "seconds 2", "capacity 1000000", "seed 7",
        f"target 0 0 {one}", f"target 1 0 {two}",
        "writer 0 0 10 0", "writer 0 10 20 -1", "writer 0 30 22 -1", "reader 0 1", "reader 0 -1", "writer 1 0 52 -1",
    )  # fmt: skip


def test_every_thread_is_on_record(busy: Report) -> None:
    weight, maximum = busy.history.registers
    assert set(weight.operations["thread"]) == {0, 1, 2, 3, 4} and set(maximum.operations["thread"]) == {5}
    # it ends when its time is over, or sooner, when a quick host has filled the record
    assert 0.2 <= busy.history.seconds < 20 and busy.history.cpus >= 1
    assert not busy.steps and weight.initial == maximum.initial == BEFORE


def test_writers_write_and_read_back_readers_only_read(busy: Report) -> None:
    weight = busy.history.registers[0]
    for thread in (0, 1, 2):
        assert list(of(weight, thread)["kind"][:6]) == [WRITE, READ] * 3
    for thread in (3, 4):
        assert set(of(weight, thread)["kind"]) == {READ}


def test_operations_of_a_thread_follow_each_other(busy: Report) -> None:
    for register in busy.history.registers:
        for thread in set(register.operations["thread"]):
            mine = of(register, thread)
            assert (mine["start"] <= mine["end"]).all() and (mine["end"][:-1] <= mine["start"][1:]).all()


@pytest.mark.parametrize("thread, first, count", [(0, 0, 10), (1, 10, 20), (2, 30, 22)])
def test_a_value_returns_only_after_all_others_of_its_writer(busy: Report, thread: int, first: int, count: int) -> None:
    order = writes(busy.history.registers[0], thread)
    assert sorted(order[:count]) == list(range(first, first + count))
    assert order[count:] == order[:-count], "one order, repeated"
    assert order[:count] != sorted(order[:count]), "and a random one"


def test_reads_see_what_was_written_and_nothing_else(busy: Report) -> None:
    for register in busy.history.registers:
        assert register.foreign == ()
        seen = {int(value) for value in register.operations["value"]}
        assert len(seen) > 10 and seen <= {INITIAL, *range(len(LETTERS))}
    alone = of(busy.history.registers[1], 5)["value"]
    assert (alone[0::2] == alone[1::2]).all(), "a lone writer reads back its own value"


def test_the_seed_decides_the_order(desk: Desk) -> None:
    path = desk.file("cpu.weight")
    plan = ["seconds 0.5", "capacity 1000000", f"target 0 0 {path}", "writer 0 0 52 -1", "writer 0 0 52 -1"]
    orders = []
    for seed in (1, 1, 2):
        report = desk.report(f"seed {seed}", *plan)
        orders += [tuple(writes(report.history.registers[0], thread)[:52]) for thread in (0, 1)]
    assert orders[0:2] == orders[2:4] and len(set(orders)) == 4


def test_memory_is_bounded(desk: Desk) -> None:
    path = desk.file("cpu.weight")
    report = desk.report("seconds 20", "capacity 400001", f"target 0 0 {path}", "writer 0 0 52 -1", "reader 0 -1")
    counts = Counter(report.history.registers[0].operations["thread"].tolist())
    assert set(counts) == {0, 1} and max(counts.values()) == 400000
    assert report.history.seconds < 15, "a full record ends the run"


def test_a_pause_slows_it_down(desk: Desk) -> None:
    path = desk.file("cpu.weight")
    report = desk.report("seconds 2", "pause 200000", f"target 0 0 {path}", "reader 0 -1")
    assert 1 <= report.history.operations <= 12


def test_foreign_texts_are_told_once_each(desk: Desk) -> None:
    path = desk.file("cpu.weight")
    desk.table([Value("x", "y"), Value("z", "z")])
    tables = {"cpu.weight": [Value("x", "y"), Value("z", "z")]}
    report = desk.report("seconds 0.2", f"target 0 0 {path}", "writer 0 0 2 -1", "reader 0 -1", tables=tables)
    (register,) = report.history.registers
    assert register.foreign == ("x",)
    assert {register.text(int(value)) for value in register.operations["value"]} >= {"x", "z"}


def test_errors_are_on_record(desk: Desk) -> None:
    """/dev/full refuses every write with ENOSPC and reads as zeroes."""
    report = desk.report(
        "seconds 0.1", "capacity 2000", "target 0 0 /dev/full", "writer 0 0 52 -1", tables={"full": TABLE}
    )
    (register,) = report.history.registers
    written = register.operations[register.operations["kind"] == WRITE]
    assert set(written["errno"]) == {28} and register.initial == ""


MALFORMED = {
    "an unknown line": ["hello there"],
    "an unknown target": ["writer 3 0 1 0"],
    "a target beyond all": ["target 64 0 {file}"],
    "a negative target": ["target -1 0 {file}"],
    "a target without a table": ["target 0 1 {file}"],
    "a table beyond all": ["target 0 16 {file}"],
    "a file that is not there": ["target 0 0 /no/such/cpu.weight"],
    "a table that is not there": ["table 1 /no/such"],
    "a table without tabs": ["table 1 {folder}/plan"],
    "a table of long texts": ["table 1 {folder}/long"],
    "values beyond the table": ["target 0 0 {file}", "writer 0 50 3 0"],
    "no values": ["target 0 0 {file}", "writer 0 0 0 0"],
    "values before the table": ["target 0 0 {file}", "writer 0 -1 3 0"],
    "a count that wraps": ["target 0 0 {file}", "writer 0 1 2147483647 0"],
    "a reader of nothing": ["reader 0 0"],
    "too many threads": ["target 0 0 {file}", *["reader 0 0"] * 65],
    "own files without a table": ["own 1 1 cpu.weight"],
    "own values beyond the table": ["own 0 53 cpu.weight"],
    "too many own files": ["own 0 1 cpu.weight"] * 9,
    "too many workers": ["containers 1 33 1 /bin/true a b c d"],
    "a runtime that is not there": ["containers 1 1 1 /no/such/runc {folder} {folder}/b {folder}/t {folder}"],
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_plan_is_one_line_and_code_2(desk: Desk, name: str) -> None:
    (desk.folder / "long").write_text("x" * 200 + "\t1\n")
    (desk.folder / "b").mkdir()
    path = desk.file("cpu.weight")
    done = desk.run(*(line.format(file=path, folder=desk.folder) for line in MALFORMED[name]))
    assert done.code == 2
    assert done.err.startswith("agent: ") and done.err.count("\n") == 1 and "Success" not in done.err
    assert ("No such file" in done.err) == ("is not there" in name), "the system's reason, where it is the system's"


@pytest.mark.parametrize("argv", [[], ["/no/such/plan"]])
def test_without_a_plan(program: Path, argv: list[str]) -> None:
    done = run([str(program), *argv], Deadline(5, "the agent"), expect=None)
    assert done.code == 2 and done.err.startswith("agent: usage: agent PLAN: ") and done.err.count("\n") == 1
