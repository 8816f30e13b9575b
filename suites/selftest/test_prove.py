"""Proof by planted defects: what is planned, what boots say, how it is counted; without a guest."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from archive import FakeArchive
from click.testing import CliRunner
from histories import Op, atomic_register, register_of, with_tail

from labs.__main__ import main
from labs.child import Case
from labs.errors import BadInput, LabError
from labs.invariant.atomicity import linearizable, no_lost_update
from labs.invariant.verdict import Verdict
from labs.matrix import PATCHES, Cell
from labs.prove import command
from labs.prove.boots import ATTEMPTS, CLEAN, Boot, Log, Prover, Sight, planned
from labs.prove.defects import Defect, chosen, clean_cell, defects
from labs.prove.tally import against, clean, statuses
from labs.report.record import CaseResult, Run

CELL = Cell("6.1", "runc", series="patches/kernel/torn-weight", role="patched")
FOREIGN = Defect("foreign", CELL, ("what another suite judges",))
TORN = Defect("torn", CELL, ("register",), replace(CELL, role="off"))


def sight(outcome: str, invariant: str = "register", seconds: float = 1.0) -> Sight:
    return Sight(f"alone.{invariant}", invariant, outcome, outcome, seconds, 1000.0)


def boots(outcomes: Sequence[str], *, defect: str = "torn", on: bool = True) -> list[Boot]:
    return [Boot(defect, on, n, n, sights=(sight(outcome, seconds=n),)) for n, outcome in enumerate(outcomes, 1)]


def test_every_defect_series_of_the_repository_is_planted_or_says_why() -> None:
    for path in sorted(PATCHES.glob("*/*/series.toml")):
        if 'intent = "defect"' in path.read_text():
            assert "breaks = [" in path.read_text(), path


def test_defects_are_series_that_break_and_bases_that_a_fix_mends(tmp_path: Path) -> None:
    found, left_out = defects("6.1", "runc", FakeArchive(tmp_path / "store"))
    assert {"flock-serial", "retry-amplification"} <= {one.name for one in found}
    assert all(one.off is None and one.cell.role == "patched" for one in found)
    assert left_out["torn-weight"]  # this archive has no kernel sources, and that is said


def test_a_name_that_no_defect_has() -> None:
    assert chosen([TORN], []) == [TORN] == chosen([TORN], ["torn"])
    with pytest.raises(BadInput, match="no planted defect is called worn; there are: torn"):
        chosen([TORN], ["worn"])


def test_rounds_begin_with_a_clean_boot_and_leave_none_out() -> None:
    plan = list(planned([TORN], 20, 5, 7))
    assert (plan[0].defect, plan[0].seed) == (CLEAN, 7)
    assert [sum((b.defect, b.on) == kind for b in plan) for kind in ((CLEAN, False), ("torn", True), ("torn", False))] \
        == [5, 20, 2]  # fmt: skip
    assert len({boot.key for boot in plan}) == len(plan) and {b.number for b in plan if b.on} == set(range(20))
    assert len([b for b in planned([TORN], 2, 50, 1) if b.defect == CLEAN]) == 50
    assert len(list(planned([TORN], 0, 3, 1))) == 3


def test_a_defect_is_proven_by_nearly_all_of_its_boots() -> None:
    for caught, proven in ((20, True), (19, True), (18, False)):
        made = boots(["fail"] * caught + ["pass"] * (20 - caught))
        together, row = against(TORN, made)
        assert (row.caught, row.boots, row.proven) == (caught, 20, proven) and together.invariant == ""
    assert row.low < 18 / 20 < row.high and row.seconds == 9.5


def test_a_defect_that_shows_when_it_is_off_proves_nothing() -> None:
    _, row = against(TORN, boots(["fail"] * 20) + boots(["fail"], on=False))
    assert (row.alarms, row.off, row.proven) == (1, 1, False)


def test_boots_without_a_word_count_for_nothing() -> None:
    mute = [replace(boot, trouble="no boot", sights=()) for boot in boots(["fail"])]
    assert against(TORN, mute)[1].boots == 0 and not against(TORN, mute)[1].proven
    assert clean([replace(mute[0], defect=CLEAN)]) == []


def test_known_is_a_catch_of_a_real_defect_only() -> None:
    made = boots(["known"] * 20)
    assert against(TORN, made)[1].caught == 0
    assert against(replace(TORN, caught=("fail", "known")), made)[1].caught == 20


def test_invariants_are_proven_unproven_or_alarmed() -> None:
    judged = [
        Boot(CLEAN, False, n, n, sights=(*(sight("pass", name) for name in ("register", "promise", "x")), quiet))
        for n, quiet in enumerate(sight(outcome, "quiet") for outcome in ("pass", "fail", "pass"))
    ]
    rows = against(TORN, boots(["fail"] * 20))
    told = {one.invariant: one for one in statuses(clean(judged), rows, {"promise": (9, 9), "x": (9, 8)})}
    assert {name: one.status for name, one in told.items()} == {
        "register": "proven", "promise": "proven", "quiet": "alarmed", "x": "unproven"}  # fmt: skip
    assert told["register"].by == ("torn",) and told["promise"].by == ("9 recorded faults",)
    assert (told["quiet"].alarms, told["quiet"].boots) == (1, 3)
    mute = [Boot(CLEAN, False, 0, 0, sights=(sight("inconclusive", "latency"),))]
    assert [(one.status, one.boots) for one in statuses(clean(mute), [], {})] == [("not judged", 0)]


def test_one_defect_that_is_missed_is_enough_for_unproven() -> None:
    judged = clean([Boot(CLEAN, False, n, n, sights=(sight("pass"),)) for n in range(3)])
    other = replace(TORN, name="other")
    caught = boots(["fail"] * 20)

    def stands(more: Sequence[Boot], recorded: tuple[int, int] = (0, 0)) -> tuple[str, tuple[str, ...]]:
        rows = [row for defect in (TORN, other) for row in against(defect, [*caught, *more])]
        (told,) = statuses(judged, rows, {"register": recorded})
        assert told.by[:1] == ("torn",)
        return told.status, told.missed

    assert stands([]) == ("proven", ())  # the other one was not asked for
    assert stands(boots(["pass"] * 20, defect="other")) == ("unproven", ("other caught in 0 of 20 boots",))
    assert stands(boots(["fail"] * 18 + ["pass"] * 2, defect="other"))[0] == "unproven"
    assert stands([], (9, 8)) == ("unproven", ("1 of 9 recorded faults",))
    alarmed = [*boots(["fail"] * 20, defect="other"), *boots(["pass", "fail"], defect="other", on=False)]
    why = "other caught in 20 of 20 boots, and broken in 1 of 2 with it off"
    assert stands(alarmed) == ("alarmed", (why,))


def prover(tmp_path: Path, answers: Sequence[Any]) -> Prover:
    """A prover whose sessions give these outcomes, or raise, one after the other."""
    left = list(answers)

    def run(nodes: Sequence[str], cell: Cell, folder: Path, seconds: float, options: Sequence[str]) -> Run:
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        made = Run.create(folder, {cell.id: ["alone.a"]}, {}, nodes, 1)
        looked = {"operations": 9.0, "seconds until seen": 0.25, "operations until seen": 4.0}
        verdict = Verdict("register", answer, answer, looked if answer == "fail" else {"operations": 9.0})
        made.cell(cell.id).add(CaseResult("alone.a", answer, verdict, 2.0, answer))
        return made

    return Prover(tmp_path, ("suites/x",), clean_cell("6.1", "runc"), run=run)


@pytest.mark.parametrize(
    "answers, attempts, trouble, outcome",
    [
        (["fail"], 1, "", "fail"),
        (["error", "pass"], 2, "", "pass"),
        ([LabError("no boot"), "fail"], 2, "", "fail"),
        (["error", LabError("no boot"), "error"], ATTEMPTS, "error", ""),
    ],
)
def test_infrastructure_is_tried_again_and_counted(
    tmp_path: Path, answers: list[Any], attempts: int, trouble: str, outcome: str
) -> None:
    made = prover(tmp_path, answers).boot(Boot("torn", True, 3, 4), CELL, ["a"])
    assert (made.attempts, made.trouble) == (attempts, trouble)
    assert [one.outcome for one in made.sights] == ([outcome] if outcome else [])
    assert made.record.startswith("boots/torn.on.003") and (tmp_path / made.record).is_dir()


def test_times_are_those_at_which_the_verdict_was_certain(tmp_path: Path) -> None:
    (seen,) = prover(tmp_path, ["fail"]).boot(Boot("torn", True, 0, 1), CELL, ["a"]).sights
    assert (seen.seconds, seen.operations) == (0.25, 4.0)
    (held,) = prover(tmp_path, ["pass"]).boot(Boot("torn", True, 1, 1), CELL, ["a"]).sights
    assert (held.seconds, held.operations) == (2.0, 9.0)


def test_the_log_survives_a_kill(tmp_path: Path) -> None:
    log = Log.open(tmp_path)
    log.add(boots(["fail"])[0])
    with log.path.open("a") as file:
        file.write('{"defect": "to')
    again = Log.open(tmp_path)
    assert again.boots == log.boots
    again.add(boots(["fail", "pass"])[1])
    assert [boot.number for boot in Log.open(tmp_path).boots] == [1, 2]
    log.path.write_text('{"defect": "torn"}\n')
    with pytest.raises(BadInput, match="no log of boots"):
        Log.open(tmp_path)


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """`labs prove` with one defect and boots that a table gives; what was made is counted."""
    made: list[Boot] = []

    def boot(self: Prover, boot: Boot, cell: Cell, nodes: Sequence[str]) -> Boot:
        made.append(boot)
        assert cell.role == ("patched" if boot.on else "off" if boot.defect else "")
        return replace(boot, sights=(sight("fail" if boot.on else "pass"),))

    monkeypatch.setattr(command, "defects", lambda *_: ([TORN, FOREIGN], {"other": "why"}))
    monkeypatch.setattr(command, "Archive", lambda store: None)
    monkeypatch.setattr(command, "_recorded", dict)
    monkeypatch.setattr(Prover, "boot", boot)
    case = Case("suites/x::t[6.1_runc_default]", "6.1_runc_default", "alone.register")
    monkeypatch.setattr(command, "collect", lambda suites, cell: [case])
    monkeypatch.setattr(command.prepare, "find", lambda cell, archive: None)

    def ask(*words: str) -> Any:
        made.clear()
        result = CliRunner().invoke(main, ["prove", *words])
        return result, list(made)

    return ask


def test_the_command_proves_and_goes_on_where_it_was_cut_short(tmp_path: Path, asked: Callable[..., Any]) -> None:
    result, made = asked("suites/x", "--boots", "2", "--clean", "2", "--record", str(tmp_path))
    assert result.exit_code == 0 and len(made) == 5, result.output
    assert "1 of 1 invariants proven" in result.output and "left out: other: why" in result.output
    assert "left out: foreign: no case of the suite judges: what another suite judges" in result.output
    (folder,) = tmp_path.iterdir()
    lines = (folder / "boots.jsonl").read_text().splitlines()
    (folder / "boots.jsonl").write_text("\n".join(lines[:3]) + "\n")
    result, made = asked("--resume", str(folder), "--json")
    assert result.exit_code == 0 and len(made) == 2
    (row,) = json.loads(result.stdout)
    assert row["invariants"][0]["status"] == "proven" and row["defects"][1]["caught"] == 2


@pytest.mark.parametrize(
    "words, message",
    [
        (["--boots", "1"], "a suite is needed"),
        (["suites/x", "--defect", "worn"], "no planted defect is called worn"),
        (["--resume", "nowhere"], "no record of a proof"),
        (["suites/x", "--clean", "0"], "0 is not in the range"),
    ],
)
def test_what_cannot_be_asked(asked: Callable[..., Any], words: list[str], message: str) -> None:
    result, made = asked(*words)
    assert result.exit_code == 2 and message in result.output + result.stderr and not made


def test_a_violation_tells_how_long_it_took_to_be_seen() -> None:
    late = [Op(8, "write", "7", 0, 10), Op(7, "read", "9999", 20, 30), Op(7, "read", "9998", 40, 50)]
    seen = linearizable([register_of(late)]).looked_at
    assert seen["seconds until seen"] == 30 / 1e9 and seen["operations until seen"] == 2
    stale = [Op(8, "write", "7", 0, 10), Op(8, "write", "8", 20, 30), Op(7, "read", "7", 40, 55)]
    assert linearizable([register_of(stale)]).looked_at["seconds until seen"] == 55 / 1e9
    lost = [Op(8, "write", "7", 0, 10), Op(8, "read", "100", 20, 30)]
    assert no_lost_update([register_of(lost)]).looked_at["seconds until seen"] == 30 / 1e9
    clean = atomic_register(1, operations=4000)
    tail = linearizable([clean, with_tail(clean, stale)]).looked_at
    assert tail["operations until seen"] >= 8003
    assert "seconds until seen" not in linearizable([clean]).looked_at
