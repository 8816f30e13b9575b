"""Explaining, shrinking and the driver, on a kernel that is simulated: atomic, or with a defect."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

import pytest
import simulated_kernel as kernels
from simulated_kernel import KERNEL, Simulated

from labs import catalog
from labs.invariant.known import explain
from labs.model import explain as explaining
from labs.model.act import Act, Case, Ran, Seen
from labs.model.draw import batches, draw
from labs.model.driver import CONCURRENT, SEQUENTIAL, Effort, examine, overlaps
from labs.model.explain import Undecided, wrong
from labs.model.fit import mask
from labs.model.shrink import candidates, cost

DAY = date(2027, 1, 1)  # on which the rows have not expired

EFFORT = Effort(runs=400, seconds=20)


def write(file: str, value: str, group: str = "") -> Act:
    return Act("write", group, file, value)


def read(file: str, group: str = "") -> Act:
    return Act("read", group, file)


def ok(start: int, end: int, text: str | None = None) -> Seen:
    return Seen("", text, start, end)


def test_clean_histories_are_explained():
    """Hundreds of seeds without a false alarm; and there is much to explain."""
    meetings = steps = 0
    (cases,) = batches(1, 400, KERNEL, concurrent=True)
    for seed in range(300):
        for ran in Simulated(seed)(cases[seed % 40 :: 40]):
            assert wrong(ran, KERNEL) is None, f"seed {seed}\n{ran.case}"
            meetings += overlaps(ran)
            steps += sum(map(len, ran.lanes))
    assert meetings > steps / 2


def history(*told: tuple[int, Act, Seen], after: tuple[tuple[Act, Seen], ...] = ()) -> Ran:
    lanes = [tuple((act, seen) for lane, act, seen in told if lane == number) for number in range(3)]
    return Ran((), tuple(lane for lane in lanes if lane), after)


TWO = ((0, write("cpu.weight", "5"), ok(0, 50)), (1, write("cpu.weight", "9"), ok(10, 60)))


@pytest.mark.parametrize("text", ["5", "9"])
def test_either_of_two_overlapping_writes_may_stay(text):
    assert wrong(history(*TWO, after=((read("cpu.weight"), ok(70, 80, text)),)), KERNEL) is None


@pytest.mark.parametrize(
    ("what", "ran"),
    [
        ("foreign", history(*TWO, after=((read("cpu.weight"), ok(70, 80, "59")),))),
        ("lost", history(*TWO, after=((read("cpu.weight"), ok(70, 80, "100")),))),
        (
            "stale: the write of 9 had ended before that of 5 began",
            history(TWO[0], (1, write("cpu.weight", "9"), ok(55, 60)), after=((read("cpu.weight"), ok(70, 80, "5")),)),
        ),
        (
            "reverted: read 9 and then 5 in one lane, both written once, 5 before 9",
            history(
                (0, write("cpu.weight", "5"), ok(0, 5)),
                (0, write("cpu.weight", "9"), ok(6, 50)),
                (1, read("cpu.weight"), ok(10, 20, "9")),
                (1, read("cpu.weight"), ok(25, 30, "5")),
            ),
        ),
        (
            "torn: the quota of one write with the period of another",
            history(
                (0, write("cpu.max", "20000 50000"), ok(0, 50)),
                (1, write("cpu.max", "30000 100000"), ok(0, 50)),
                (2, read("cpu.max"), ok(10, 60, "30000 50000")),
            ),
        ),
        (
            "two makers of one group",
            history((0, Act("mkdir", "a"), ok(0, 50)), (1, Act("mkdir", "a"), ok(10, 60))),
        ),
        (
            "a process that both a full group and nobody else holds",
            history(
                (0, write("pids.max", "1"), ok(0, 5)),
                (0, Act("spawn", "", process=0), ok(10, 50)),
                (1, Act("spawn", "", process=1), ok(12, 60)),
            ),
        ),
        (
            "refused without a reason",
            history((0, write("cpu.idle", "0"), ok(0, 50)), (1, write("cpu.weight", "7"), Seen("EINVAL", None, 5, 40))),
        ),
    ],
    ids=lambda value: value.split(":")[0] if isinstance(value, str) else "",
)
def test_planted_faults_are_unexplainable(what, ran):
    assert wrong(ran, KERNEL) is not None


def test_refusals_are_explained_by_what_was_set_meanwhile():
    idle = (0, write("cpu.idle", "1"), ok(0, 50))
    assert wrong(history(idle, (1, write("cpu.weight", "7"), Seen("EINVAL", None, 5, 40))), KERNEL) is None
    assert wrong(history(idle, (1, write("cpu.weight", "7"), ok(5, 40))), KERNEL) is None


def test_nothing_is_promised_across_files_but_all_within_one():
    """cpu.idle already says 1, cpu.weight still the old value: two files. A weight that comes and goes: one file."""
    idle = (0, write("cpu.idle", "1"), ok(0, 100))
    across = history(idle, (1, read("cpu.idle"), ok(10, 20, "1")), (1, read("cpu.weight"), ok(30, 40, "100")))
    assert wrong(across, KERNEL) is None
    within = history(idle, (1, read("cpu.weight"), ok(10, 20, "0")), (1, read("cpu.weight"), ok(30, 40, "100")))
    assert wrong(within, KERNEL)


def test_a_search_without_end_is_undecided(monkeypatch):
    monkeypatch.setattr(explaining, "MOST_NODES", 2)
    with pytest.raises(Undecided):
        wrong(history(*TWO, after=((read("cpu.weight"), ok(70, 80, "100")),)), KERNEL)
    cases = [Case((), tuple((act,) for _, act, _ in TWO), (read("cpu.weight"),))] * 20
    ((verdict, _),) = examine(Simulated(1), [cases], KERNEL, concurrent=True, replay="", effort=EFFORT)
    assert verdict.outcome == "inconclusive" and "20 of 20" in verdict.reason


@pytest.mark.parametrize(
    ("behaviour", "most", "about"),
    [
        (kernels.wrong_weight, 2, {"cpu.weight"}),
        (kernels.partial_subtree, 2, {"cgroup.subtree_control"}),
        (kernels.stillborn, 3, {"cgroup.kill", "cgroup.procs"}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_defect_is_found_in_sequences_and_made_small(behaviour, most, about):
    cases = batches(1, 800, KERNEL, concurrent=False)
    findings = examine(
        Simulated(1, behaviour), cases, KERNEL, concurrent=False, replay="pytest --seed 1", effort=EFFORT
    )
    verdict, files = min(findings, key=lambda finding: finding[0].figures["operations of the smallest"])
    assert (verdict.outcome, verdict.invariant) == ("fail", SEQUENTIAL)
    assert len(verdict.counterexample) <= most, verdict.reason
    assert about & set(files)
    assert verdict.counterexample[-1].note.startswith("the model allows") and "again: pytest --seed 1" in verdict.reason


@pytest.mark.parametrize("seed", range(1, 4))
def test_the_lost_update_is_found_and_made_small(seed):
    """From sequences that know nothing of it; with their times random at each run, as those of a real kernel are."""
    simulated = Simulated(seed, kernels.lost_update)
    cases = batches(seed, 4_000, KERNEL, concurrent=True)
    findings = examine(simulated, cases, KERNEL, concurrent=True, replay="pytest --seed 1", effort=EFFORT)
    known = [row for row in catalog.known_defects() if row.id == "cpu-max-burst-lost-update"]
    for verdict, files in findings:
        assert (verdict.outcome, verdict.invariant) == ("fail", CONCURRENT)
        assert len(verdict.counterexample) <= 4, verdict.reason
        assert set(files) <= {"cpu.max", "cpu.max.burst"}
        assert explain(verdict, known, (6, 1, 192), files, day=DAY).outcome == "known", verdict.reason
        assert {step.thread for step in verdict.counterexample} >= {"lane 0", "lane 1"}


def test_the_masked_lost_update_gives_no_alarm():
    simulated = Simulated(3, kernels.lost_update)
    cases = batches(1, 800, KERNEL, concurrent=True, mask=mask)
    ((verdict, _),) = examine(simulated, cases, KERNEL, concurrent=True, replay="", effort=EFFORT)
    assert verdict.outcome == "pass" and verdict.looked_at["overlapping steps"] > 800


def test_a_defect_that_the_table_does_not_know_stays_a_failure():
    """It is told apart from the known one although both are there."""

    def both(began, state, act):
        behaviour = kernels.lost_update if act.file.startswith("cpu.max") else kernels.frozen_write
        return behaviour(began, state, act)

    cases = batches(1, 4_000, KERNEL, concurrent=True, mask=mask)
    findings = examine(Simulated(2, both), cases, KERNEL, concurrent=True, replay="", effort=EFFORT)
    rows = catalog.known_defects()
    assert "pids.max" in findings[0][1]
    assert all(explain(verdict, rows, (6, 1, 192), files).outcome == "fail" for verdict, files in findings)


def test_a_seed_replays_exactly():
    """The same cases, the same runs of them, the same smallest example."""

    def told(seed: int) -> list[str]:
        draw.cache_clear()
        cases = batches(seed, 2_000, KERNEL, concurrent=True)
        findings = examine(Simulated(9, kernels.lost_update), cases, KERNEL, concurrent=True, replay="", effort=EFFORT)
        return [f"{verdict.reason} {verdict.evidence}" for verdict, _ in findings]

    assert told(2) == told(2)


def test_nothing_at_the_same_time_is_inconclusive():
    case = Case((), ((write("cpu.weight", "5"),), (write("cpu.weight", "6"),)), ())

    def one_after_the_other(cases):
        return [history((0, cases[0].lanes[0][0], ok(0, 10)), (1, cases[0].lanes[1][0], ok(20, 30)))]

    ((verdict, _),) = examine(one_after_the_other, [[case]], KERNEL, concurrent=True, replay="", effort=EFFORT)
    assert verdict.outcome == "inconclusive"


def test_candidates_are_smaller_and_lift_groups():
    case = Case(
        (Act("mkdir", "a"), write("cgroup.subtree_control", "+cpu")),
        ((write("cpu.max", "max", "a"),), (write("cpu.max.burst", "5", "a"), read("cpu.max", "a"))),
        (read("cpu.max", "a"),),
    )
    smaller = [candidate for candidate in candidates(case) if cost(candidate) < cost(case)]
    lifted = Case(
        (case.before[1],),
        tuple(tuple(replace(act, group="") for act in lane) for lane in case.lanes),
        (read("cpu.max"),),
    )
    assert lifted in smaller and replace(case, before=()) in smaller and replace(case, after=()) in smaller
