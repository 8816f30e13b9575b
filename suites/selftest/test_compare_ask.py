"""`labs compare` as people type it, the self-check, and latency relative to another measure."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from test_compare_record import ASKED, Bench

from labs.compare.ask import Bound, _cell, compare
from labs.compare.check import boots_in, checked, spread
from labs.compare.drive import run
from labs.compare.judge import Round, compared
from labs.compare.record import CompareRecord
from labs.compare.show import plot, table
from labs.errors import BadInput
from labs.invariant.relative import no_slower


@pytest.mark.parametrize("text, part", [("5%", 0.05), ("0.05", 0.05), ("0", 0.0), ("12.5%", 0.125)])
def test_a_bound(text: str, part: float) -> None:
    assert Bound().convert(text, None, None) == pytest.approx(part)


@pytest.mark.parametrize(
    "words",
    [["a"], [], ["a", "b", "--boots", "1"], *(["a", "b", "--bound", bad] for bad in ("x%", "-1", "3", "2000%", "nan"))],
)
def test_what_is_no_comparison_is_a_usage_error(words: list[str]) -> None:
    assert CliRunner().invoke(compare, words).exit_code == 2


def test_cells_by_id_and_by_options() -> None:
    assert _cell("6.1_runc").id == "6.1_runc"
    assert _cell("--kernel 6.12 --runtime crun").id == "6.12_crun"
    assert _cell("--series patches/kernel/cpu-max-slow --cell *.off").role == "off"


@pytest.mark.parametrize("words", ["nonsense", "--kernels 6.1", "--kernel 6.1 --kernel 6.12", "--kernel '6.1"])
def test_what_names_no_cell_is_told(words: str) -> None:
    with pytest.raises(BadInput):
        _cell(words)


@pytest.fixture
def recorded(tmp_path: Path) -> CompareRecord:
    record = CompareRecord.create(tmp_path, replace(ASKED, b=ASKED.a, boots=12))
    run(record, Bench(), whole_run=True)
    return record


def test_the_self_check_counts_alarms_and_finds_what_is_planted(recorded: CompareRecord) -> None:
    boots = boots_in([recorded.path])
    assert len(boots) == 24
    rows, largest = checked(boots, 10, 0.05, 0.05)
    assert [(row["planted"], row["bound"]) for row in rows[:2]] == [(0.0, 0.05), (0.0, 0.0)]
    assert rows[0]["regression"] == 0 and rows[0]["no regression"] == rows[0]["of"] == 200
    found = {row["planted"]: row["regression"] for row in rows[2:]}
    assert found == {0.02: 0, 0.05: found[0.05], 0.1: 50, 0.2: 50} and found[0.05] <= 5
    (apart,) = spread(boots, largest)
    assert apart["boots"] == 24 and 0 < apart["p50 sides apart"] < apart["p50 apart"] < 0.01


def test_a_self_check_needs_boots_of_one_kernel(recorded: CompareRecord, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="24 boots on record; 40 are needed"):
        checked(boots_in([recorded.path]), 20, 0.05, 0.05)
    other = CompareRecord.create(tmp_path, replace(ASKED, setting={**ASKED.setting, "accelerator": "kvm"}))
    run(other, Bench())
    with pytest.raises(BadInput, match="of 2 kernels"):
        boots_in([recorded.path, other.path])
    assert len(boots_in([other.path])) == 6  # A only: B is another cell


def test_the_self_check_from_the_command_line(recorded: CompareRecord) -> None:
    done = CliRunner().invoke(compare, ["--self-check", str(recorded.path), "--json"])
    assert done.exit_code == 0 and json.loads(done.output)[0]["of"] == 200


def test_table_and_plot() -> None:
    column = np.arange(1000.0, 1200)
    result = compared([Round({"w": column, "m": column}, {"w": column * 1.3})] * 10, 0.05)
    assert table(result, "x", "y").row_count == 3
    svg = plot(result, "x & y $z")
    assert svg == plot(result, "x & y $z") and svg.startswith("<svg") and "w p99" in svg
    assert plot(compared([], 0.05), "none").startswith("<svg")


SLOW, FAST = np.full(200, 30_000), np.full(200, 10_000)


@pytest.mark.parametrize(
    "samples, against, accelerator, outcome",
    [
        (SLOW, FAST, "icount", "fail"),
        (FAST, SLOW, "icount", "pass"),
        (FAST * 2, FAST, "kvm", "pass"),
        (SLOW, FAST, "tcg", "inconclusive"),
        (SLOW[:99], FAST, "icount", "inconclusive"),
        ([], [], "icount", "inconclusive"),
    ],
)
def test_latency_against_another_measure(samples, against, accelerator: str, outcome: str) -> None:
    verdict = no_slower("x", samples, against, accelerator, 2.0)
    assert verdict.outcome == outcome
    if outcome == "fail":
        assert verdict.reason == "takes 3.00 times as long: 30.0 us against 10.0 us; at most 2"
