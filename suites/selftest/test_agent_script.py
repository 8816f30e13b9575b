"""The agent's scripts, run here: lanes, processes and their limits, with plain files instead of cgroups."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from labs.command import run
from labs.deadline import Deadline
from labs.probe.script import BARRIER, NEVER, Op, Outcome, op, parse_outcomes


@pytest.fixture
def play(program: Path, tmp_path: Path):
    def play(*ops: Op, phase_ms: int = 5_000) -> list[Outcome]:
        plan = tmp_path / "plan"
        plan.write_text("\n".join([str(phase_ms), *(item.line() for item in ops), ""]))
        told = run([str(program), "script", str(plan)], Deadline(30, "the script"))
        return parse_outcomes(told.out, ops)

    return play


def texts(outcomes: list[Outcome]) -> list[str]:
    return [outcome.error or outcome.text.strip() for outcome in outcomes if outcome.op.name != "-"]


def test_processes_outlive_the_phase_that_started_them(play) -> None:
    told = play(op("spawn", 1, lane=3), BARRIER, op("sleep", 50), BARRIER, op("tell", 1, "exit 4"), op("reap", 1, 1000))
    assert texts(told) == ["", "", "", "exit 4"]


def test_lanes_run_at_the_same_time(play, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("no\n")
    told = play(op("await", str(tmp_path / "a"), "yes", 2000, lane=1), op("write", str(tmp_path / "a"), "yes", lane=2))
    assert told[0].errno == 0


def test_a_lane_that_is_stuck_is_left_behind(play, tmp_path: Path) -> None:
    began = time.monotonic()
    told = play(
        op("sleep", 60_000, lane=1), op("mkdir", str(tmp_path / "d"), lane=2), BARRIER, op("sleep", 1), phase_ms=300
    )
    assert [outcome.errno for outcome in told] == [NEVER, 0, 0, NEVER]
    assert time.monotonic() - began < 10


def test_a_process_that_dies_says_so(play) -> None:
    told = play(
        op("spawn", 1), op("kill", 1, 9), op("state", 1, "Z", 1000), op("tell", 1, "where"), op("reap", 1, 1000)
    )
    assert texts(told)[2:] == ["Z", "ESRCH", "signal 9"]


def test_what_runs_is_told_from_what_does_not(play) -> None:
    told = play(
        op("spawn", 1), op("moves", 1, 20), op("tell", 1, "spin 1"), op("moves", 1, 2000), op("kill", 1, 19),
        op("state", 1, "T", 1000), op("moves", 1, 20), op("kill", 1, 9), op("reap", 1, 1000),
    )  # fmt: skip
    assert texts(told) == ["", "no", "", "yes", "", "T", "no", "", "signal 9"]


def test_the_heir_answers_for_a_dead_leader(play) -> None:
    told = play(
        op("spawn", 1), op("tell", 1, "heir"), op("state", 1, "Z", 1000), op("tell", 1, "threads 2"), op("kill", 1, 9),
        op("reap", 1, 1000),
    )  # fmt: skip
    assert texts(told) == ["", "", "Z", "", "", "signal 9"]


@pytest.mark.parametrize(
    "order", ["threads 3", "passing 1", "storm 1", "chain 1", "vfork", "traced", "exec", "alloc 1"]
)
def test_every_kind_of_process_ends_by_a_signal(play, order: str) -> None:
    told = play(op("spawn", 1), op("tell", 1, order), op("sleep", 20), op("kill", 1, 9), op("reap", 1, 2000))
    assert texts(told) == ["", "", "", "", "signal 9"]


def test_changes_are_counted(play, tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_text("0\n")
    told = play(
        op("watch", 1, str(file)), op("notices", 1, 10), op("write", str(file), "1"), op("write", str(file), "2"),
        op("notices", 1, 10),
    )  # fmt: skip
    assert texts(told)[1] == "0"
    assert texts(told)[4] in ("1", "2")  # the kernel merges equal notifications that follow each other


def test_files_are_kept_open_by_slot(play, tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_text("old\n")
    told = play(op("open", 2, str(file)), op("write_fd", 2, "new"), op("read_fd", 2), op("list", str(tmp_path)))
    assert texts(told)[2] == "new"
    assert "a" in texts(told)[3].split()
