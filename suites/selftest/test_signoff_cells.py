"""Which sessions a sign-off runs: base and patched, then the planted defects that its invariants have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from labs import matrix
from labs.child import Case
from labs.errors import BadInput, LabError
from labs.invariant.verdict import Verdict
from labs.matrix import Cell
from labs.report.record import CaseResult
from labs.report.session import source_digest
from labs.signoff import cells
from labs.signoff.command import resumed
from labs.signoff.document import document
from labs.signoff.evidence import gather, place
from labs.signoff.plan import BASE, CONTROL, PATCHED, PatchFile, Plan, Planned, defects, planned
from suites.selftest import signing
from suites.selftest.signing import FUNCTIONS, CellSpec

SERIES = "patches/kernel/cpu-max-atomic"
CASES = ("alone.linearizable[bandwidth]", "alone.no_lost_update[bandwidth]", "containers.no_lost_update[bandwidth]")


class Sessions:
    """Sessions without guests: what each cell gives is real evidence, told by its purpose."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, broken: Sequence[str] = (), mended: bool = True) -> None:
        self.lost: list[str] = []  # outcomes of a case in the next patched sessions
        self.asked: list[tuple[str, tuple[str, ...], list[str]]] = []
        self.broken, self.mended = broken, mended
        monkeypatch.setattr(cells, "session", self)
        monkeypatch.setattr(cells, "collect", self.collect)
        monkeypatch.setattr(cells, "_extras", lambda *_: ())
        self.measured: list[tuple[str, str]] = []
        monkeypatch.setattr(cells, "measure", lambda base, patched, *_: self.measured.append((base.id, patched.id)))

    def collect(self, suites: Sequence[str], cell: Cell) -> list[Case]:
        return [Case(f"suites/x.py::test_it[{cell.id}-{name}]", cell.id, name) for name in CASES]

    def __call__(self, tests: Sequence[str], cell: Cell, folder: Path, seconds: float, options: Sequence[str]) -> None:
        self.asked.append((cell.id, tuple(tests), list(options)))
        if cell.id in self.broken:
            raise LabError("no base image")
        control = cell.series != SERIES
        broken = cell.role == ("patched" if control else "base") or (not control and not self.mended)
        spec = CellSpec(CONTROL if control else cell.role, broken=broken, build_id=f"{len(self.asked):040x}")
        spec.functions = FUNCTIONS if cell.role == "patched" else ()
        if self.lost and spec.purpose == PATCHED:
            cases = ("alone.write_latency[cpu.max]", "quiet.quiet_kernel")
            for case, name in zip(cases, self.lost.pop(0).split(), strict=False):
                spec.outcomes[case] = CaseResult(case, name, Verdict("x", name, "planted"))
        folder.rmdir()
        signing.record(folder, Planned(cell.id, cell, spec.purpose, tuple(tests)), spec)


def plan() -> Plan:
    chosen = matrix.cells(["6.1"], ["runc"], series=[SERIES])
    made = planned("signoff-x", SERIES, chosen, ["suites/x"], 7, ["signoff"], "", False, 0.05)
    patch = PatchFile("6.1", "x", "its subject", signing.PATCH_ID, "", "")
    return replace(made, test_code=signing.HOST["test_code"], patches=(patch,))


def run(folder: Path) -> Plan:
    folder.mkdir()
    nothing: Any = None
    cells.run(plan(), folder, nothing)
    return Plan.load(folder)


def test_base_and_patched_run_first_then_defects_on_and_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sessions = Sessions(monkeypatch)
    made = run(tmp_path / "x")
    purposes = [one.purpose for one in made.cells]
    assert purposes[:2] == [BASE, PATCHED] and set(purposes[2:]) == {CONTROL}
    assert [one.id for one in made.cells] == [cell for cell, _, _ in sessions.asked]
    controls = {one.id.removeprefix("6.1_runc_"): one for one in made.cells if one.purpose == CONTROL}
    assert {"torn-weight.off", "torn-weight.patched", "weight-crosstalk.off", "weight-crosstalk.patched"} == set(
        controls
    )
    assert controls["torn-weight.off"].tests == (
        "suites/x.py::test_it[6.1_runc_torn-weight.off-alone.linearizable[bandwidth]]",
    )
    assert not any("containers" in test for one in controls.values() for test in one.tests), "others are quicker"
    options = {cell: options for cell, _, options in sessions.asked}
    assert [cell for cell in options if "--executed" in options[cell]] == ["6.1_runc_cpu-max-atomic.patched"]
    assert all(words[:2] == ["--seed", "7"] for words in options.values())
    assert sessions.measured == [("6.1_runc_cpu-max-atomic.base", "6.1_runc_cpu-max-atomic.patched")]
    made_document = document(tmp_path / "x")
    assert {one["rule"] for one in made_document["reasons"]} == {"latency"}
    assert "planted defect 6.1_runc_torn-weight.patched" in {one["how"] for one in made_document["controls"]}


def test_no_defect_is_run_where_nothing_can_be_signed_any_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sessions = Sessions(monkeypatch, mended=False)
    assert [one.purpose for one in run(tmp_path / "x").cells] == [BASE, PATCHED]
    assert len(sessions.asked) == 2 and not sessions.measured
    assert document(tmp_path / "x")["decision"] == "refused"


def test_a_session_that_breaks_is_a_missing_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Sessions(monkeypatch, broken=["6.1_runc_torn-weight.off"])
    run(tmp_path / "x")
    made = document(tmp_path / "x")
    assert made["missing"] == ["6.1_runc_torn-weight.off"]
    assert "the cell has no record: no base image" in [one["why"] for one in made["reasons"]]


def test_what_has_run_is_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sessions = Sessions(monkeypatch)
    whole = run(tmp_path / "x")
    count = len(sessions.asked)
    nothing: Any = None
    cells.run(Plan.load(tmp_path / "x"), tmp_path / "x", nothing)
    assert len(sessions.asked) == count
    assert Plan.load(tmp_path / "x") == whole


def test_an_interrupted_session_is_run_again_and_its_rest_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions = Sessions(monkeypatch)
    whole = run(tmp_path / "x")
    torn = tmp_path / "x" / place(2, whole.cells[1])
    next(torn.glob("*/run.json")).unlink()
    nothing: Any = None
    cells.run(Plan.load(tmp_path / "x"), tmp_path / "x", nothing)
    assert sessions.asked[-1][0] == "6.1_runc_cpu-max-atomic.patched"
    assert all(cell.record for cell in gather(tmp_path / "x").cells)


def test_defects_are_those_of_the_version_and_the_component() -> None:
    names = {series.name for _, series in defects("6.1.192-3", ["kernel"])}
    assert {"torn-weight", "weight-crosstalk", "burst-divided", "unfix-k1"} <= names
    assert "cpu-max-atomic" not in names and "cpu-max-lock-split-wrong" not in names, "it breaks no verdict"
    assert not {"unfix-k1"} & {series.name for _, series in defects("7.2.13-1", ["kernel"])}
    assert {series.component for _, series in defects("1.1.5", ["runc"])} == {"runc"}


@pytest.mark.parametrize(
    ("lost", "sessions", "decided"),
    [
        (["error"], 2, "not proven"),  # for want of a comparison alone
        (["not-run", "error"], 3, "not proven"),
        (["error"] * 5, 3, "not proven"),
        (["error fail"], 1, "refused"),  # it is not run again until it passes
    ],
)
def test_infrastructure_trouble_is_run_again_and_a_failure_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: list[str], sessions: int, decided: str
) -> None:
    asked = Sessions(monkeypatch)
    asked.lost = list(lost)
    run(tmp_path / "x")
    patched = [cell for cell, _, _ in asked.asked if cell.endswith("atomic.patched")]
    assert len(patched) == sessions
    made = document(tmp_path / "x")
    rules = {one["rule"] for one in made["reasons"]}
    assert made["decision"] == decided and ("complete" in rules) == (len(lost) > 3 or decided == "refused")


def test_a_session_that_was_interrupted_is_run_again_however_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its record is there from its first moment, with every case not-run."""
    asked = Sessions(monkeypatch)
    asked.lost = ["not-run"]
    (tmp_path / "x").mkdir()
    monkeypatch.setattr(cells, "ATTEMPTS", 1)
    nothing: Any = None
    for _ in range(4):
        cells.run(plan(), tmp_path / "x", nothing)
        monkeypatch.setattr(cells, "ATTEMPTS", 3)
    assert [cell for cell, _, _ in asked.asked].count("6.1_runc_cpu-max-atomic.patched") == 2
    assert document(tmp_path / "x")["decision"] == "not proven"


def test_a_sign_off_goes_on_with_the_lab_that_began_it(tmp_path: Path) -> None:
    plan().save(tmp_path)
    with pytest.raises(BadInput, match="the lab or its suites have changed"):
        resumed(tmp_path, SERIES)
    replace(plan(), test_code=source_digest()).save(tmp_path)
    assert resumed(tmp_path, SERIES).series == SERIES
    with pytest.raises(BadInput, match="is a sign-off of patches/kernel/cpu-max-atomic, not of x"):
        resumed(tmp_path, "x")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"cells": 3}', "nothing"])
def test_a_plan_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(BadInput, match="is malformed"):
        Plan.load(tmp_path)
    with pytest.raises(BadInput, match="name the folder that labs signoff has made"):
        Plan.load(tmp_path / "none")
