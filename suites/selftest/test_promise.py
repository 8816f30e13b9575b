"""Promises: silent on what a 6.1 guest really gave, loud on each planted fault.

The outcomes in data/promises were recorded on 6.1.192-3 under emulation, one round of each promise.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from labs.probe.script import BARRIER, NEVER, Outcome
from labs.promise import Promise, Row, does, first, judge
from labs.promise.families import FAMILIES
from labs.promise.faults import from_record, kept, shortened, tallies, tally, to_record

RECORDED = Path(__file__).parent / "data" / "promises"
CASES = [
    pytest.param(shortened(promise), json.loads((RECORDED / f"{family}.json").read_text()), id=promise.id)
    for family, promises in FAMILIES.items()
    if (RECORDED / f"{family}.json").exists()
    for promise in promises
]
# 6.1.192 itself does not keep these: recorded is what it gave
BROKEN = {
    "a kill ends a process whose first thread has ended (25)": "reap 1 1000 gave ETIMEDOUT",
    "a kill ends a process that moved here after its first thread had ended (25, 21)": "reap 1 1000 gave ETIMEDOUT",
}


@pytest.mark.parametrize(("promise", "recorded"), CASES)
def test_recorded(promise: Promise, recorded: dict[str, list[list[int | str]]]) -> None:
    outcomes = from_record(promise, recorded[promise.name])
    verdict = judge(promise, [outcomes])
    if promise.name in BROKEN:
        assert verdict.outcome == "fail" and verdict.reason.startswith(BROKEN[promise.name])
        outcomes = kept(promise, outcomes)
    else:
        assert verdict.outcome == "pass", verdict.reason
    planted = tally(promise, outcomes)
    assert not planted.missed
    assert planted.rows > 0
    assert planted.relations == len(promise.relations)


@pytest.mark.parametrize(("told", "outcome"), [("0::/system.slice/ssh.service", "pass"), ("0::/lab-promise/a", "fail")])
def test_where_systemd_runs_the_probe_has_a_group_of_its_own(told: str, outcome: str) -> None:
    (promise,) = [one for one in FAMILIES["tree"] if one.name.startswith("a removed group takes nobody")]
    rows = json.loads((RECORDED / "tree.json").read_text())[promise.name]
    outcomes = [replace(one, text=told) if one.text == "0::/\n" else one for one in from_record(promise, rows)]
    assert judge(promise, [outcomes]).outcome == outcome


def test_the_table_of_a_family() -> None:
    promises = FAMILIES["freeze"]
    recorded = json.loads((RECORDED / "freeze.json").read_text())
    table = tallies(promises, {name: rows for name, rows in recorded.items() if name != promises[0].name})
    assert [row.promise for row in table] == [promise.name for promise in promises]
    assert (table[0].planted, table[0].caught) == (0, 0)
    assert all(row.planted == row.caught > 10 for row in table[1:])


def test_names_are_unique() -> None:
    promises = [promise for family in FAMILIES.values() for promise in family]
    assert len({promise.name for promise in promises}) == len(promises)
    assert len({promise.id for promise in promises}) == len(promises)


def differ(seen: dict[str, Outcome]) -> str:
    return "" if seen["one"].text == seen["two"].text else "they differ"


TWO = Promise(
    "two reads tell the same",
    "this test",
    (first("mkdir", "/x"), does("read", "/x/a", key="one"), Row(BARRIER), does("read", "/x/b", text="5", key="two")),
    relations=(differ,),  # type: ignore[arg-type]
)


def outcomes(*told: tuple[int, str]) -> list[Outcome]:
    rows = (told[0], told[1], (0, ""), told[2])
    return [Outcome(row.op, *rest, 10, 20) for row, rest in zip(TWO.rows, rows, strict=True)]


def test_judge_tells_row_and_relation() -> None:
    assert judge(TWO, [outcomes((0, ""), (0, "5"), (0, "5"))]).outcome == "pass"
    verdict = judge(TWO, [outcomes((0, ""), (0, "5"), (0, "5")), outcomes((0, ""), (0, "4"), (0, "5"))])
    assert (verdict.outcome, verdict.reason) == ("fail", "they differ")
    verdict = judge(TWO, [outcomes((0, ""), (0, "5"), (2, ""))])
    assert verdict.reason == "read '/x/b' gave ENOENT, not success"
    assert verdict.counterexample[-1].operation == "read '/x/b'"


def test_failed_preparation_is_no_violation() -> None:
    verdict = judge(TWO, [outcomes((17, ""), (0, "5"), (0, "5"))])
    assert (verdict.outcome, verdict.reason) == ("error", "preparation failed: mkdir '/x' gave EEXIST, not success")


def test_never_returned_is_a_violation() -> None:
    verdict = judge(TWO, [outcomes((0, ""), (NEVER, ""), (0, "5"))])
    assert verdict.reason.startswith("read '/x/a' never returned")


def test_a_fault_that_nothing_checks_is_missed() -> None:
    blind = replace(TWO, rows=(*TWO.rows[:3], does("read", "/x/b", text=lambda text: True, key="two")))
    planted = tally(blind, outcomes((0, ""), (0, "5"), (0, "5")))
    assert [missed.split(":")[-1].strip() for missed in planted.missed] == ["another text"]
    deaf = replace(TWO, relations=(lambda seen: "",))
    assert tally(deaf, outcomes((0, ""), (0, "5"), (0, "5"))).missed == ("relation 0",)


def test_records_come_back() -> None:
    clean = outcomes((0, ""), (0, "5"), (0, "5"))
    assert judge(TWO, [from_record(TWO, to_record(clean))]).outcome == "pass"
    with pytest.raises(ValueError, match="shorter"):
        from_record(TWO, to_record(clean)[:-1])
