"""What changed between two runs, and the page over many."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from labs.invariant.verdict import Verdict
from labs.report.changes import Change, changes, worse
from labs.report.record import CaseResult, Run
from labs.run_commands import diff

LATENCY = {"p50 us": 10.0, "p99 us": 80.0}
FACTS = {"accelerator": "kvm", "release": "6.1.0-40", "runtime": {"name": "runc", "version": "1.1.5"}}


def run(folder: Path, cells: dict[str, dict[str, str]], facts: dict[str, Any] = FACTS, p99: float = 80.0) -> Run:
    made = Run.create(folder, {cell: list(cases) for cell, cases in cells.items()}, {"hostname": "h"}, ["pytest"], 7)
    for cell_id, cases in cells.items():
        cell = made.cell(cell_id)
        cell.write_facts(facts)
        cell.write_artifacts({"kernel": {"version": facts["release"]}, "accelerator": {"reason": str(p99)}})
        for case, outcome in cases.items():
            verdict = Verdict("i", outcome, f"is {outcome}", figures={**LATENCY, "p99 us": p99})
            if outcome != "not-run":
                cell.add(CaseResult(case, outcome, verdict, reason=verdict.reason))
    return made


def told(old: Run, new: Run, kind: str) -> list[tuple[str, str, str, str]]:
    return [(c.cell, c.what, c.before, c.after) for c in changes(old, new) if c.kind == kind]


def test_equal_runs_have_no_difference(tmp_path: Path) -> None:
    cells = {"6.1_runc": {"a": "pass", "b": "fail", "c": "not-run"}}
    assert changes(run(tmp_path, cells), run(tmp_path, cells)) == []


def test_outcomes_cases_and_cells_that_came_or_went(tmp_path: Path) -> None:
    old = run(tmp_path, {"x": {"a[1]": "pass", "b": "fail", "gone": "pass"}, "left": {"a": "known", "b": "pass"}})
    new = run(tmp_path, {"x": {"a[1]": "known", "b": "fail", "came": "skip"}, "new": {"a": "fail"}})
    assert told(old, new, "outcome") == [
        ("x", "a[1]", "pass", "known"),
        ("x", "came", "-", "skip"),
        ("x", "gone", "pass", "-"),
        ("new", "the whole cell", "-", "fail"),
        ("left", "the whole cell", "known", "-"),
    ]
    assert next(change for change in changes(old, new) if change.what == "a[1]").note == "is known"


def test_versions_are_told_by_name_and_a_seed_is_none(tmp_path: Path) -> None:
    old = run(tmp_path, {"x": {"a": "pass"}})
    new = run(tmp_path, {"x": {"a": "pass"}}, {**FACTS, "release": "6.1.0-41", "build_id": "ab", "seed": 9})
    assert told(old, new, "version") == [
        ("x", "kernel-release", "6.1.0-40", "6.1.0-41"),
        ("x", "build-id", "-", "ab"),
        ("x", "kernel.version", "6.1.0-40", "6.1.0-41"),
    ]


def test_latency_figures_that_compare(tmp_path: Path) -> None:
    old, new = run(tmp_path, {"x": {"a": "pass"}}), run(tmp_path, {"x": {"a": "pass"}}, p99=100.0)
    assert told(old, new, "latency") == [("x", "a p99 us", "80", "100")]
    assert changes(old, new)[0].note.startswith("+25.0 %")


@pytest.mark.parametrize(
    "accelerators, host", [(("tcg", "tcg"), "h"), (("kvm", "tcg"), "h"), (("kvm", "kvm"), "other")]
)
def test_latency_figures_that_do_not_compare(tmp_path: Path, accelerators: tuple[str, str], host: str) -> None:
    old = run(tmp_path, {"x": {"a": "pass"}}, {**FACTS, "accelerator": accelerators[0]})
    new = run(tmp_path, {"x": {"a": "pass"}}, {**FACTS, "accelerator": accelerators[1]}, p99=100.0)
    new = replace(new, host={"hostname": host})
    assert told(old, new, "latency") == [("x", "all operations", "-", "-")]
    (change,) = [change for change in changes(old, new) if change.kind == "latency"]
    assert change.note.startswith("not compared: ")


@pytest.mark.parametrize(
    "before, after, expected",
    [
        ("pass", "fail", True), ("fail", "pass", False), ("pass", "known", True), ("known", "inconclusive", True),
        ("skip", "pass", False), ("pass", "skip", False), ("skip", "known", True), ("error", "not-run", False),
        ("pass", "-", True), ("fail", "-", False), ("-", "pass", False), ("-", "fail", True), ("-", "known", True),
    ],
)  # fmt: skip
def test_what_is_worse(before: str, after: str, expected: bool) -> None:
    assert worse(Change("outcome", "c", "x", before, after)) is expected
    assert not worse(Change("version", "c", "x", before, after))


def test_labs_diff(tmp_path: Path) -> None:
    old, new = run(tmp_path, {"x": {"a[weights]": "pass"}}), run(tmp_path, {"x": {"a[weights]": "fail"}})
    said = CliRunner().invoke(diff, [str(old.path), str(new.path), "--json"])
    assert said.exit_code == 1
    assert json.loads(said.stdout) == [
        {"kind": "outcome", "cell": "x", "what": "a[weights]", "before": "pass", "after": "fail", "note": "is fail"}
    ]
    back = CliRunner().invoke(diff, [str(new.path), str(old.path)])
    assert back.exit_code == 0 and "a[weights]" in back.stdout
    same = CliRunner().invoke(diff, [str(new.path), str(new.path)])
    assert (same.exit_code, same.stdout) == (0, "nothing changed\n")
