"""The judge for real guests: what it reads from a record, and how it finds its case; without a guest."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from archive import FakeArchive

from labs import child
from labs.bisect import guests
from labs.bisect.axes import axis_of
from labs.bisect.axis import Wish
from labs.bisect.guests import outcome
from labs.bisect.step import Step
from labs.child import Case
from labs.errors import BadInput, DeadlineExpired
from labs.invariant.verdict import Verdict
from labs.matrix import Cell
from labs.report.record import CaseResult, Run


@pytest.fixture
def archive(tmp_path: Path) -> FakeArchive:
    return FakeArchive(tmp_path / "store")


CASE = Case("suites/x.py::test_y[6.1_runc-z]", "6.1_runc", "x.y[z]")


def result(told: str, invariant: str = "register", reason: str = "why", **more: str) -> CaseResult:
    return CaseResult("c", told, Verdict(invariant, told, reason, evidence=more.pop("evidence", "")), 0, reason, **more)  # type: ignore[arg-type]


PANIC = result("fail", "quiet kernel", "kernel failed: Kernel panic - not syncing: sysrq")
HANG = result("fail", "quiet kernel", "kernel hangs: not done after 60 s")
LOST = result("fail", reason="lost 3 of 9", console="BUG: KASAN: use-after-free in psi")


@pytest.mark.parametrize(
    "given, pattern, expected",
    [
        (result("pass"), "", ("good", "why", "")),
        (result("known"), "", ("good", "why", "")),
        (result("fail"), "", ("bad", "why", "register")),
        (result("inconclusive"), "", ("skip", "inconclusive: why", "")),
        (result("skip"), "", ("skip", "skip: why", "")),
        (result("error"), "", ("skip", "error: why", "")),
        (CaseResult("c", "not-run", reason="never ran"), "", ("skip", "not-run: never ran", "")),
        (result("fail", "series", "the patched tree does not compile"), "",
         ("skip", "not built: the patched tree does not compile", "")),
        (PANIC, "", ("bad", PANIC.reason, "panic")),
        (HANG, "", ("bad", HANG.reason, "hang")),
        (PANIC, "lost \\d", ("skip", f"unrelated failure: {PANIC.reason}", "")),
        (PANIC, "^kernel .*panic", ("bad", PANIC.reason, "^kernel .*panic")),
        (LOST, "^BUG: KASAN", ("bad", LOST.reason, "^BUG: KASAN")),
        (result("pass"), "lost", ("good", "why", "")),
    ],
)  # fmt: skip
def test_what_a_case_is_to_the_search(given: CaseResult, pattern: str, expected: tuple[str, str, str]) -> None:
    assert outcome(given, pattern) == expected


@pytest.mark.parametrize(
    "node, cell, expected",
    [
        ("suites/x.py::test_y[6.1_runc-z]", "6.12_crun", "suites/x.py::test_y[6.12_crun-z]"),
        ("suites/x.py::test_y[z-6.1_runc]", "6.12_crun", "suites/x.py::test_y[z-6.12_crun]"),
        ("suites/6.1_runc/x.py::test_y[6.1_runc]", "7.3_runc", "suites/6.1_runc/x.py::test_y[7.3_runc]"),
    ],
)
def test_a_case_has_a_node_in_every_cell(node: str, cell: str, expected: str) -> None:
    assert Case(node, "6.1_runc", "x.y").node_in(cell) == expected


def test_find_case_reads_what_pytest_collects(monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole id without its cell first, then a part that only one has."""
    here = "suites/cgroup_atomicity/test_random.py"
    nodes = [f"{here}::test_a[6.1_runc-x]", f"{here}::test_a[6.1_runc-x-y]", f"{here}::test_b[6.1_runc]"]
    monkeypatch.setattr(child, "run", lambda *_, **__: SimpleNamespace(out="\n".join(nodes), err=""))
    asked = {"test_a[x]": nodes[0], "x-y": nodes[1], "test_b": nodes[2], "random.a[x-y]": nodes[1]}
    assert {test: guests.find_case(f"{here}::{test}", Cell()).node for test in asked} == asked
    for test, message in {"test_a": "names 2 tests", "z": "no such test; one of: test_a"}.items():
        with pytest.raises(BadInput, match=message):
            guests.find_case(f"{here}::{test}", Cell())
    with pytest.raises(BadInput, match="no such test"):
        guests.find_case("suites/none.py::test_a", Cell())


def judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, archive: FakeArchive, session: Any) -> Step:
    monkeypatch.setattr(child, "run", session)
    axis = axis_of(Wish("kernel", good="6.1.190-1", bad="6.1.192-3"), archive, tmp_path)
    return guests.Guests(axis, CASE, tmp_path / "r" / "bisect-1", archive, source="s")("6.1.190-1")


@pytest.mark.parametrize("code", [0, 1, 2, 3, 4, 5, 137, -9])
@pytest.mark.parametrize("told", ["fail", "pass", "error"])
def test_a_step_is_what_its_own_record_says(
    told: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, archive: FakeArchive
) -> None:
    """Unless pytest ended with anything else than 0 or 1: that is never bad, and never good."""

    def session(argv: list[str], *_: Any, **__: Any) -> Any:
        assert argv[argv.index("--known") + 1] == "ignore" and "suites/x.py::test_y[6.1.190-1_runc-z]" in argv
        run = Run.create(Path(argv[argv.index("--record") + 1]), {"6.1.190-1_runc": [CASE.name]}, {}, argv, 1)
        run.cell("6.1.190-1_runc").add(replace(result(told), case=CASE.name))
        return SimpleNamespace(out="", err="", code=code)

    step = judged(tmp_path, monkeypatch, archive, session)
    if code in (0, 1):
        expected = {"fail": ("bad", "why"), "pass": ("good", "why"), "error": ("skip", "error: why")}[told]
        assert (step.outcome, step.reason) == expected and step.signature == ("register" if told == "fail" else "")
    else:
        assert step.outcome == "skip" and not step.signature and (told == "error" or str(code) in step.reason)
    assert step.evidence == "bisect-1/steps/001-6.1.190-1" and step.key


@pytest.mark.parametrize("error", [None, DeadlineExpired("step: not done after 7200 s")])
def test_a_session_without_a_record_is_a_skip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, archive: FakeArchive, error: Exception | None
) -> None:
    def session(*_: Any, **__: Any) -> Any:
        if error:
            raise error
        return SimpleNamespace(out="", err="lab error: no space\n\n", code=3)

    step = judged(tmp_path, monkeypatch, archive, session)
    assert (step.outcome, step.reason) == ("skip", str(error) if error else "no record: lab error: no space")
