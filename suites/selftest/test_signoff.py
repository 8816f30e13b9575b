"""The decision over recorded evidence: signed when all is there, and for each thing amiss its own true reason."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from labs import judged
from labs.errors import BadInput
from labs.executed import UNCLEAR, UNSEEN
from labs.invariant.verdict import Verdict
from labs.judged import Reader
from labs.report.record import CaseResult
from labs.signoff import controls
from labs.signoff.document import document
from labs.signoff.evidence import place
from labs.signoff.plan import EXTRA, Plan
from labs.signoff.rates import chance
from labs.signoff.reason import REFUSED, SIGNED, UNPROVEN
from suites.selftest.signing import FUNCTIONS, LOST, NEVER_RUN, PATCH_ID, CellSpec, compare, proof, specs, write
from suites.selftest.test_judged import random_verdict

Document = dict[str, Any]
COMPARED = "the latencies of base and patched were not compared"


def decide(tmp_path: Path, cells: dict[str, CellSpec], **changes: Any) -> Document:
    return document(write(tmp_path / "signoff-x", cells, **changes))


def against(made: Document) -> list[tuple[str, str, str]]:
    return [(one["weight"], one["rule"], one["why"]) for one in made["reasons"] if one["why"] != COMPARED]


def test_a_series_that_does_what_it_says_lacks_only_the_comparison(tmp_path: Path) -> None:
    made = decide(tmp_path, specs())
    assert against(made) == []
    assert [one["why"] for one in made["reasons"]] == [COMPARED]
    assert made["decision"] == UNPROVEN
    assert {one["rule"]: one["outcome"] for one in made["rules"]}["mends"] == "held"


def test_nothing_against_it_is_signed(tmp_path: Path) -> None:
    folder = write(tmp_path / "x", specs())
    compare(folder)
    made = document(folder)
    assert made["reasons"] == []
    assert made["decision"] == SIGNED
    assert [(one["result"], one["a"]) for one in made["latency"]] == [("no regression", "6.1_runc_base")]
    assert made["trailers"] == [
        "Tested-by: A Person <a@example.org>",
        f"Lab-Signed: kernel 6.1.192 build-id {'aa' * 20}, runc 1.1.5 {'cc' * 8}, patch-id {PATCH_ID}, tcg",
    ]


@pytest.mark.parametrize(
    ("slower", "boots", "weight", "why"),
    [
        (1.2, 10, REFUSED, r"cpu-max p\d+ takes \d+\.\d% longer in B than in A, 5% are not minded"),
        (1.0, 2, UNPROVEN, "the rounds do not tell whether"),
    ],
)
def test_a_series_that_is_slower(tmp_path: Path, slower: float, boots: int, weight: str, why: str) -> None:
    folder = write(tmp_path / "x", specs())
    compare(folder, slower, boots)
    (reason,) = document(folder)["reasons"]
    assert (reason["weight"], reason["rule"]) == (weight, "latency")
    assert re.match(why, reason["why"])


@pytest.mark.parametrize(("side", "decided"), [("A", SIGNED), ("B", REFUSED)])
def test_a_kernel_that_failed_while_latencies_were_compared(tmp_path: Path, side: str, decided: str) -> None:
    """Another boot does not make it good: of the patched kernel it is a refusal, of the base a note."""
    folder = write(tmp_path / "x", specs())
    compare(folder, fails=side)
    made = document(folder)
    told = f"its kernel failed while latencies were compared: round 1: side {side}: kernel failed: BUG: planted"
    assert (made["decision"], [one["why"] for one in made["reasons"]]) == (decided, [told] if side == "B" else [])
    assert (told in [one["why"] for one in made["notes"]]) == (side == "A")
    assert made["latency"][0]["failed"] == [told.partition("compared: ")[2]]


def test_trouble_of_a_comparison_is_told_beside_what_was_compared(tmp_path: Path) -> None:
    folder = write(tmp_path / "x", specs())
    (compare(folder).parent / "trouble.txt").write_text("round 2 was disturbed 3 times: noise\n")
    assert [one["why"] for one in document(folder)["reasons"]] == [f"{COMPARED}: round 2 was disturbed 3 times: noise"]


def test_a_comparison_of_other_cells_says_nothing(tmp_path: Path) -> None:
    folder = write(tmp_path / "x", specs())
    path = compare(folder) / "compare.json"
    path.write_text(path.read_text().replace('"6.1_runc_base"', '"6.12_runc_base"'))
    assert [one["why"] for one in document(folder)["reasons"]] == [COMPARED]


def test_why_there_is_no_comparison_is_told(tmp_path: Path) -> None:
    folder = write(tmp_path / "x", specs())
    (folder / "latency/6.1_runc_patched").mkdir(parents=True)
    (folder / "latency/6.1_runc_patched/trouble.txt").write_text("the agent has changed since\n")
    assert [one["why"] for one in document(folder)["reasons"]] == [f"{COMPARED}: the agent has changed since"]


@pytest.mark.parametrize("name", ["boots/001/A.npz", "compare.json"])
def test_samples_that_are_other_than_they_were(tmp_path: Path, name: str) -> None:
    folder = write(tmp_path / "x", specs())
    path = compare(folder) / name
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(BadInput, match=r"compare-\S+(: cannot be judged again| is malformed)"):
        document(folder)


def one_reason(made: Document) -> tuple[str, str, str]:
    (reason,) = against(made)
    return reason


def test_a_series_that_changes_nothing_built(tmp_path: Path) -> None:
    cells = specs()
    cells["base"].build_id = cells["patched"].build_id
    weight, rule, why = one_reason(decide(tmp_path, cells))
    assert (weight, rule) == (UNPROVEN, "differs")
    assert "the very binary of the base" in why


def test_a_guest_that_does_not_tell_its_binary(tmp_path: Path) -> None:
    cells = specs()
    cells["patched"].build_id = ""
    assert one_reason(decide(tmp_path, cells))[:2] == (UNPROVEN, "differs")


def test_a_function_that_was_never_run(tmp_path: Path) -> None:
    cells = specs()
    cells["patched"].functions = (*FUNCTIONS, NEVER_RUN)
    made = decide(tmp_path, cells)
    why = "cpu_cfs_quota_write_s64 (kernel/sched/core.c, patch 1) was never run"
    assert one_reason(made) == (UNPROVEN, "executed", why)
    assert "tg_get_cfs_bandwidth (kernel/sched/core.c, patch 1) is unseen" in str(made["notes"])


@pytest.mark.parametrize("state", [UNSEEN, UNCLEAR])
def test_a_patch_of_which_nothing_can_be_seen(tmp_path: Path, state: str) -> None:
    cells = specs()
    cells["patched"].functions = (*FUNCTIONS, replace(NEVER_RUN, patch=2, state=state))
    weight, rule, why = one_reason(decide(tmp_path, cells))
    assert (weight, rule) == (UNPROVEN, "executed")
    assert why.startswith("of patch 2 nothing can be seen: cpu_cfs_quota_write_s64")


def test_no_function_at_all(tmp_path: Path) -> None:
    cells = specs()
    cells["patched"].functions = ()
    assert one_reason(decide(tmp_path, cells))[:2] == (UNPROVEN, "executed")


def test_a_series_that_does_not_mend_what_it_says(tmp_path: Path) -> None:
    cells = specs()
    cells["patched"].broken = True
    made = decide(tmp_path, cells)
    assert made["decision"] == REFUSED
    first = against(made)[0]
    assert first[:2] == (REFUSED, "mends")
    assert "'no lost update' is violated with the series as without it: lost 12 of " in first[2]


def test_a_base_that_does_not_show_the_fault(tmp_path: Path) -> None:
    cells = specs()
    cells["base"].broken = False
    told = against(decide(tmp_path, cells))
    assert {reason[:2] for reason in told} == {(UNPROVEN, "mends")}
    assert "'no lost update' is not violated without the series: 1 cases looked" in told[0][2]


def test_a_claim_that_no_case_judges(tmp_path: Path) -> None:
    one = decide(tmp_path, specs(), mends=("no lost update", "something else"))
    assert against(one) == []
    assert "'something else' was not examined whole: no case judges it" in str(one["notes"])
    other = document(write(tmp_path / "b", specs(), mends=("something else",)))
    assert (UNPROVEN, "mends") in {reason[:2] for reason in against(other)}


def test_a_claim_whose_case_was_skipped_is_told(tmp_path: Path) -> None:
    """The case that would show it is part of the large sizes; another one of the test held."""
    cells = specs()
    for name in ("base", "patched"):
        for case, outcome in (("random.c[masked]", "pass"), ("random.c[known]", "skip")):
            verdict = Verdict("no such sequence" if outcome == "pass" else "feature", outcome, "part of --full")
            old = "quiet.quiet_kernel" if outcome == "pass" else "alone.write_latency[cpu.max]"
            cells[name].outcomes[old] = CaseResult(case, outcome, verdict, reason=verdict.reason)
    made = decide(tmp_path, cells, mends=("no lost update", "no such sequence"))
    assert not [why for _, rule, why in against(made) if rule == "mends"]
    told = "'no such sequence' was not examined whole: random.c[known]: part of --full"
    assert told in [one["why"] for one in made["notes"]]


def test_an_invariant_that_held_and_does_no_more(tmp_path: Path) -> None:
    cells, case = specs(), "quiet.quiet_kernel"
    bad = Verdict("quiet kernel", "fail", "it broke")
    cells["patched"].outcomes[case] = CaseResult(case, "fail", bad, reason="it broke")
    made = decide(tmp_path, cells)
    assert made["decision"] == REFUSED
    assert (REFUSED, "holds", "pass without the series, violated with it: it broke") in against(made)


def test_what_fails_without_the_series_too_is_a_note(tmp_path: Path) -> None:
    cells, case = specs(), "alone.write_latency[cpu.max]"
    for name in ("base", "patched"):
        cells[name].outcomes[case] = CaseResult(case, "fail", Verdict("x", "fail", "always"), reason="always")
    made = decide(tmp_path, cells)
    assert against(made) == []
    assert f"{case} fails without the series, too: always" in str(made["notes"])


def test_what_holds_without_the_series_must_be_run_with_it(tmp_path: Path) -> None:
    cells = specs()
    case = CaseResult("promises.promise[x]", "pass", Verdict("x", "pass", "held"))
    cells["base"].outcomes["alone.write_latency[cpu.max]"] = case
    told = against(decide(tmp_path, cells))
    assert (UNPROVEN, "holds", "held without the series, and is not there") in told


def counted(outcome: str, lost: int, writes: int = 3000, **more: float) -> CaseResult:
    figures = {"writes cpu.max": writes, "lost cpu.max": lost, **more}
    verdict = Verdict("other", outcome, f"lost {lost}", figures=figures, known="k" if outcome == "known" else "")
    return CaseResult("alone.write_latency[cpu.max]", outcome, verdict, reason=f"lost {lost}")


@pytest.mark.parametrize(
    ("before", "after", "weight", "why"),
    [
        (counted("pass", 0), counted("known", 3), "", "which is chance (p = 0.12)"),
        (counted("pass", 0), counted("known", 30), REFUSED, "by more than chance (p = "),
        (counted("pass", 0, 0), counted("known", 0, 0), UNPROVEN, "a known defect that is not seen without the series"),
        (counted("known", 9), counted("fail", 9), REFUSED, "a known defect without the series, violated with it"),
        (counted("fail", 9), counted("fail", 900), "", "fails without the series, too: lost 900"),
        (counted("fail", 9), counted("fail", 9, torn=1), UNPROVEN, "too, but not by torn: lost 9"),
    ],
)
def test_a_step_to_something_worse(
    tmp_path: Path, before: CaseResult, after: CaseResult, weight: str, why: str
) -> None:
    cells, case = specs(), "alone.write_latency[cpu.max]"
    cells["base"].outcomes[case], cells["patched"].outcomes[case] = before, after
    made = decide(tmp_path, cells)
    assert [one for one, rule, _ in against(made) if rule == "holds"] == ([weight] if weight else [])
    assert why in " ".join(one["why"] for one in [*made["reasons"], *made["notes"]] if one["rule"] == "holds")


@pytest.mark.parametrize(("lost", "held"), [(3, False), (30, True)])
def test_a_mend_of_what_is_rare_is_no_chance(tmp_path: Path, lost: int, held: bool) -> None:
    cells = specs()
    for name, outcome, wrong in (("base", "known", lost), ("patched", "pass", 0)):
        cells[name].outcomes["alone.write_latency[cpu.max]"] = counted(outcome, wrong)
    told = [why for _, rule, why in against(decide(tmp_path, cells, mends=("other",))) if rule == "mends"]
    assert (told == []) == held
    assert held or "is so rare without the series that with it none is seen by chance, too: p = 0.12" in told[0]


def test_counts_of_several_cases_are_summed_up() -> None:
    base, patched = [counted("known", 2) for _ in range(5)], [counted("pass", 0) for _ in range(5)]
    one, five, none = chance(base[:1], patched[:1]), chance(base, patched), chance(base, base)
    assert one and five and none and one > 0.2 > 0.01 > five and none > 0.5
    assert chance([], []) is None


OTHERS: list[tuple[str, tuple[str, ...], Any]] = [
    ("cell.json", ("accelerator",), "kvm"),
    ("cell.json", ("series", "patch_id"), "dd" * 20),
    *(("artifacts.json", ("kernel", key), "x") for key in ("version", "source_digest", "config", "compiler")),
    ("artifacts.json", ("runtime", "version"), "1.3"),
    ("artifacts.json", ("image_sha256",), "f"),
    ("artifacts.json", ("agent_sha256",), "f"),
    ("run.json", ("seed",), 8),
    ("run.json", ("host", "test_code"), "other"),
]


@pytest.mark.parametrize(("name", "keys", "value"), OTHERS, ids=[".".join(keys) for _, keys, _ in OTHERS])
def test_cells_that_cannot_be_compared(tmp_path: Path, name: str, keys: tuple[str, ...], value: Any) -> None:
    """Another patch, kernel, config, lab or seed in one cell than in the others."""
    folder = write(tmp_path / "x", specs())
    compare(folder)
    (path,) = (folder / place(2, Plan.load(folder).cells[1])).glob(f"**/{name}")
    row = into = json.loads(path.read_text())
    for key in keys[:-1]:
        into = into.setdefault(key, {})
    into[keys[-1]] = value
    path.write_text(json.dumps(row))
    (reason,) = document(folder)["reasons"]
    assert (reason["weight"], reason["rule"], reason["cell"]) == (UNPROVEN, "same", "6.1_runc_patched")
    assert "it cannot be compared" in reason["why"]


@pytest.mark.parametrize(("side", "cell"), [("A", "6.1_runc_base"), ("B", "6.1_runc_patched")])
def test_latencies_of_another_kernel(tmp_path: Path, side: str, cell: str) -> None:
    folder = write(tmp_path / "x", specs())
    path = compare(folder) / "compare.json"
    row = json.loads(path.read_text())
    row["artifacts"][side]["kernel"]["build_id"] = "ff" * 20
    path.write_text(json.dumps(row))
    (reason,) = document(folder)["reasons"]
    assert (reason["rule"], reason["cell"]) == ("same", cell)


def test_a_kernel_that_complains(tmp_path: Path) -> None:
    cells = specs()
    cells["patched"].oops = True
    told = against(decide(tmp_path, cells))
    assert {reason[:2] for reason in told} == {(REFUSED, "holds"), (REFUSED, "quiet")}
    assert "NULL pointer" in told[0][2]


def test_a_variant_that_complains(tmp_path: Path) -> None:
    cells = specs() | {"lockdep": CellSpec(EXTRA, oops=True)}
    assert one_reason(decide(tmp_path, cells))[:2] == (REFUSED, "quiet")


def test_a_pass_after_a_failure_is_no_pass(tmp_path: Path) -> None:
    folder = write(tmp_path / "x", specs())
    (path,) = folder.glob("cells/*patched/*/6.1_runc_patched/verdicts.jsonl")
    lines = path.read_text().splitlines()
    bad = next(line for line in lines if "quiet_kernel" in line).replace('"outcome": "pass"', '"outcome": "fail"')
    path.write_text("\n".join([bad, *lines]) + "\n")
    assert one_reason(document(folder)) == (UNPROVEN, "holds", "pass after it had failed before")


def test_an_invariant_that_was_never_seen_to_fail(tmp_path: Path) -> None:
    cells = specs()
    held = CaseResult("new.case", "pass", Verdict("new invariant", "pass", ""))
    for name in ("base", "patched"):
        cells[name].outcomes["alone.write_latency[cpu.max]"] = held
    told = against(decide(tmp_path, cells))
    assert (UNPROVEN, "controls", "'new invariant' was never seen to fail") in told


def test_a_planted_defect_that_is_not_caught(tmp_path: Path) -> None:
    cells = specs()
    cells["on"].broken = False
    weight, rule, why = one_reason(decide(tmp_path, cells))
    assert (weight, rule) == (UNPROVEN, "controls")
    assert "misses what it must see: planted defect 6.1_runc_on: 0 of 1 faults caught" in why


def test_a_defect_that_shows_while_it_is_off(tmp_path: Path) -> None:
    cells = specs()
    case = "alone.no_lost_update[bandwidth]"
    cells["off"].outcomes[case] = CaseResult(case, "fail", Verdict("no lost update", "fail", "always"))
    assert one_reason(decide(tmp_path, cells))[:2] == (UNPROVEN, "controls")


def test_a_cell_that_is_missing_is_named(tmp_path: Path) -> None:
    folder = write(tmp_path / "x", specs())
    (path,) = folder.glob("cells/*-6.1_runc_on")
    shutil.rmtree(path)
    path.mkdir()
    (path / "trouble.txt").write_text("no base image\n")
    made = document(folder)
    assert made["missing"] == ["6.1_runc_on"]
    assert (UNPROVEN, "complete", "the cell has no record: no base image") in against(made)


def test_a_case_that_never_ran_is_named(tmp_path: Path) -> None:
    cells = specs()
    cells["patched"].outcomes["quiet.quiet_kernel"] = CaseResult("quiet.quiet_kernel", "error", reason="guest lost")
    made = decide(tmp_path, cells)
    assert (UNPROVEN, "complete", "error: guest lost") in against(made)


def test_a_series_that_does_not_build(tmp_path: Path) -> None:
    cells = specs()
    bad = Verdict("series", "fail", "x does not compile, its base does")
    for case in ("alone.linearizable[bandwidth]", "quiet.quiet_kernel"):
        cells["patched"].outcomes[case] = CaseResult(case, "fail", bad, reason=bad.reason)
    made = decide(tmp_path, cells)
    assert made["decision"] == REFUSED
    assert (REFUSED, "builds", "x does not compile, its base does") in against(made)


def test_a_planted_defect_is_never_signed(tmp_path: Path) -> None:
    made = decide(tmp_path, specs(), intent="defect")
    assert made["decision"] == REFUSED
    assert against(made)[0][:2] == (REFUSED, "intent")


def test_shares_have_the_interval_of_what_was_seen(tmp_path: Path) -> None:
    made = decide(tmp_path, specs())
    lost = {one["purpose"]: one for one in made["shares"] if one["what"] == "lost writes of cpu.max"}
    assert lost["base"]["wrong"] == LOST
    assert 0 < lost["base"]["low"] < LOST / lost["base"]["seen"] < lost["base"]["high"]
    patched = lost["patched"]
    assert (patched["wrong"], patched["low"]) == (0, 0)
    assert patched["high"] == pytest.approx(1 - 0.025 ** (1 / patched["seen"]), rel=1e-6)


QUIET, FEW = ", false alarms in 0 of 20 without it", "; 20 of each are needed"
ELSE = ", which are not tested here"


@pytest.mark.parametrize(
    ("given", "how", "held"),
    [
        ({"caught": 20}, f"20 of 20 boots{QUIET}", True),
        ({"caught": 19}, f"19 of 20 boots{QUIET}", True),
        ({"caught": 18}, f"18 of 20 boots{QUIET}", False),
        ({"off": ["pass"]}, "20 of 20 boots, false alarms in 0 of 21 without it", True),
        ({"off": ["fail"]}, "20 of 20 boots, false alarms in 1 of 21 without it", False),
        ({"clean": ["pass"] * 19 + ["fail"]}, "20 of 20 boots, false alarms in 1 of 20 without it", False),
        ({"boots": 19}, f"19 of 19 boots{QUIET}{FEW}", False),
        ({"clean": ["pass"] * 19}, f"20 of 20 boots, false alarms in 0 of 19 without it{FEW}", False),
        (
            {"clean": ["inconclusive"] * 20},
            "20 of 20 boots, false alarms in 0 of 0 without it; 20 of each are needed",
            False,
        ),
        (
            {"kernel": "7.3"},
            f"20 of 20 boots{QUIET}; it is of kernel 7.3 and runtime runc{ELSE}",
            False,
        ),
        (
            {"runtime": "crun"},
            f"20 of 20 boots{QUIET}; it is of kernel 6.1 and runtime crun{ELSE}",
            False,
        ),
    ],
)
def test_a_proof_of_many_boots_is_a_control(tmp_path: Path, given: dict[str, Any], how: str, held: bool) -> None:
    cells, case = specs(), "alone.write_latency[cpu.max]"
    for name in ("base", "patched"):
        cells[name].outcomes[case] = CaseResult(case, "pass", Verdict("new invariant", "pass", ""))
    folder = write(tmp_path / "x", cells)
    assert against(document(folder))[0][1] == "controls"
    proof(folder, **given)
    made = document(folder)
    assert (against(made) == []) == held
    assert f"labs prove: d caught in {how}" in [one["how"] for one in made["controls"]]


def test_a_proof_by_other_code_proves_nothing(tmp_path: Path) -> None:
    folder = write(tmp_path / "x", specs())
    proof(folder, source="other")
    assert one_reason(document(folder)) == (UNPROVEN, "controls", "the proof was made by other code: other, not code")


@pytest.mark.parametrize("text", ["", "[]", '{"defects": [1]}'])
def test_a_proof_that_is_none_is_told(tmp_path: Path, text: str) -> None:
    folder = write(tmp_path / "x", specs())
    proof(folder)
    (folder / "proof/prove.json").write_text(text)
    with pytest.raises(BadInput, match=r"proof/prove\.json: is malformed"):
        document(folder)


def test_faults_are_planted_into_random_sequences(tmp_path: Path) -> None:
    """Of what 6.1 has told of sequences without lanes, in which all is told before any."""
    verdict = random_verdict()
    name = judged.save(verdict.call, judged.Context(), tmp_path, "random", "")
    planted, caught = controls._of_call(Reader(tmp_path), name)
    assert planted == caught > 5
