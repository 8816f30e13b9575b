"""The search for the first bad, or first good, candidate, on simulated axes."""

from __future__ import annotations

import itertools
import json
import random
from dataclasses import replace
from math import ceil, log2
from pathlib import Path

import pytest
from axis_model import Axis, Memory, step_at

from labs.bisect.axis import Wish
from labs.bisect.drive import bisect
from labs.bisect.page import write_page
from labs.bisect.plan import Plan, effective
from labs.bisect.report import Found, Search, exit_code, lines, load, load_found, probabilities, replay, save
from labs.bisect.search import Answer, Ask, decide
from labs.bisect.simulate import limit, simulated
from labs.bisect.step import Log, Step
from labs.errors import BadInput


def found(answer: Answer) -> list[tuple[int, int]]:
    return [(edge.low, edge.high) for edge in answer.boundaries]


@pytest.mark.parametrize("size", [2, 3, 4, 5, 7, 8, 12, 16, 23, 31, 33, 47, 60])
def test_every_culprit_is_found_by_plain_bisection(size: int) -> None:
    """Both ends first and again at the end, and the logarithm of what lies between: nothing more."""
    for culprit, low in itertools.product(range(1, size), ["good", "bad"]):
        axis = Axis(step_at(size, culprit), low)
        answer = axis.search()
        assert (answer.kind, answer.verified, found(answer)) == ("found", True, [(culprit - 1, culprit)])
        assert sum(axis.asked.values()) <= 4 + ceil(log2(size - 1))
        assert axis.asked["v0"] == axis.asked[f"v{size - 1}"] == 2
        assert max([axis.asked[f"v{index}"] for index in range(1, size - 1)], default=0) <= 1


@pytest.mark.parametrize("seed", range(60))
def test_skips_anywhere(seed: int) -> None:
    """What is found is right and as narrow as the candidates that can be judged allow; nothing is asked twice."""
    dice = random.Random(seed)
    size = dice.randint(3, 60)
    culprit = dice.randrange(1, size)
    shown = step_at(size, culprit)
    share = dice.choice([0.1, 0.5, 0.9, 1.0])
    for index in range(1, size - 1):
        shown[index] = None if dice.random() < share else shown[index]
    axis = Axis(shown, dice.choice(["good", "bad"]))
    answer = axis.search()
    low = max(index for index in range(culprit) if shown[index] is not None)
    high = min(index for index in range(culprit, size) if shown[index] is not None)
    assert found(answer) == [(low, high)]
    assert answer.kind == ("found" if high == low + 1 else "range")
    assert max([axis.asked[f"v{index}"] for index in range(1, size - 1)], default=0) <= 1


def test_only_skipped_candidates_left_is_a_range() -> None:
    axis = Axis([0, None, None, None, 1])
    answer = axis.search()
    assert (answer.kind, found(answer)) == ("range", [(0, 4)])
    assert "only skipped" in answer.note


def test_a_cluster_of_skips_is_left_quickly() -> None:
    """40 kernels in a row that do not boot cost a few guests, not forty."""
    shown = step_at(60, 50)
    shown[10:45] = [None] * 35
    axis = Axis(shown)
    assert found(axis.search()) == [(49, 50)]
    assert sum(axis.asked.values()) < 25


def test_candidates_to_skip_and_to_start_with() -> None:
    axis = Axis(step_at(30, 20))
    log = Memory()
    answer = axis.search(log, skips=frozenset({"v19", "v20"}), start=("v5", "v25"))
    assert (answer.kind, found(answer)) == ("range", [(18, 21)])
    assert [step.candidate for step in log.steps[:4]] == ["v29", "v0", "v5", "v25"]
    assert not axis.asked["v19"] and not axis.asked["v20"]


@pytest.mark.parametrize(
    "shown, note",
    [
        ([0, 0, 0], "v2 was said to be bad and is good"),
        ([1, 1, 1], "v0 was said to be good and is bad"),
        ([1, 1, 0], "v2 was said to be bad and is good"),
    ],
)
@pytest.mark.parametrize("runs", [1, 5])
def test_ends_that_are_not_as_claimed(shown: list[float | None], note: str, runs: int) -> None:
    axis = Axis(shown)
    answer = axis.search(runs=runs)
    assert answer.kind == "refused" and answer.note.startswith(note)
    assert not axis.asked["v1"]


def test_noisy_ends_that_do_not_differ() -> None:
    axis = Axis([0.5] * 9, seed=3)
    answer = axis.search(runs=10)
    assert answer.kind == "refused" and "the ends do not differ: v8 is bad in" in answer.note
    assert sum(axis.asked.values()) <= 60


@pytest.mark.parametrize("end", [0, 4])
def test_an_end_that_cannot_be_judged(end: int) -> None:
    shown = step_at(5, 2)
    shown[end] = None
    axis = Axis(shown)
    answer = axis.search()
    assert (answer.kind, answer.note) == ("unjudged", f"v{end} could not be judged")
    assert sum(axis.asked.values()) <= 3


def test_an_end_that_is_lost_at_the_end_leaves_the_answer_unverified() -> None:
    """Told, tried twice, and no success."""
    axis, log = Axis(step_at(9, 4)), Memory()

    def judge(name: str) -> Step:
        return Step(name, "skip", "lost") if axis.asked[name] else axis.judge(name)

    answer = bisect(axis.plan(), judge, log)
    assert (answer.kind, found(answer), answer.verified) == ("found", [(3, 4)], False)
    assert exit_code(answer) == 4
    assert [step.outcome for step in log.steps].count("skip") == 4


def test_another_failure_than_that_of_the_bad_end_is_a_skip() -> None:
    """A panic on the way is not the lost update that is looked for."""
    axis = Axis(step_at(9, 6), signatures={4: "panic", 8: "lost update"})
    axis.shown = [0, 0, 0, 0, 1, 0, 1, 1, 1]
    log = Memory()
    answer = axis.search(log)
    assert (answer.kind, found(answer)) == ("found", [(5, 6)])
    told = [step for step in effective(axis.plan(), log.steps) if step.candidate == "v4"]
    assert told[0].outcome == "skip" and "unrelated failure (panic)" in told[0].reason


def test_a_panic_is_bad_when_it_is_what_the_bad_end_shows() -> None:
    axis = Axis(step_at(9, 4), signatures=dict.fromkeys(range(9), "panic"))
    assert found(axis.search()) == [(3, 4)]


RATES = [(0.0, 0.5, 30), (0.1, 0.8, 30), (0.2, 0.9, 12)]


def test_a_flaky_predicate_is_placed_as_surely_as_was_asked() -> None:
    """The right culprit in 95 of 100 searches or more, in a few times the runs of plain bisection."""
    right = runs = 0
    for seed in range(200):
        low, high, size = RATES[seed % len(RATES)]
        culprit = 1 + seed * 7 % (size - 1)
        axis = Axis(step_at(size, culprit, low, high), seed=seed)
        answer = axis.search(runs=10, confidence=0.95)
        right += answer.kind == "found" and found(answer) == [(culprit - 1, culprit)]
        runs += sum(axis.asked.values())
    assert right >= 190
    assert runs / 200 < 60


def test_a_test_whose_rate_is_known_takes_few_runs() -> None:
    """Right in 95 of 100 searches or more, in at most one and a half times what any search needs."""
    one = simulated(17, right=0.8, confidence=0.95, searches=200, told=True)
    assert one.right >= 190 and one.ratio <= 1.5, one


@pytest.mark.parametrize(
    "shown, note", [([0.2] * 9, "v8 was said to be bad and is not"), ([0.8] * 9, "v0 was said to be")]
)
def test_ends_that_are_not_as_claimed_where_the_rate_is_known(shown: list[float | None], note: str) -> None:
    refused = [Axis(shown, seed=seed).search(right=0.8) for seed in range(30)]
    told = [answer.note for answer in refused if answer.kind == "refused" and note in answer.note]
    assert len(told) >= 24, refused


def test_the_limit_on_runs() -> None:
    """A sure test needs the logarithm; one that is right half the time never ends."""
    assert limit(17, 0.999, 0.95) == pytest.approx(0.95 * 4 / 0.9886 + 0.43, abs=0.01)
    assert limit(17, 0.51, 0.95) > 10_000


def test_a_flaky_predicate_with_skips_is_a_range_as_sure() -> None:
    right = runs = 0
    for seed in range(20):
        shown = step_at(20, 9, 0.1, 0.9)
        shown[8] = shown[9] = shown[10] = None
        axis = Axis(shown, seed=seed)
        answer = axis.search(runs=10)
        right += (answer.kind, found(answer)) == ("range", [(7, 11)])
        runs += sum(axis.asked.values())
    assert right >= 18 and runs / 20 < 50


def test_a_predicate_that_contradicts_itself_is_searched_by_probability() -> None:
    """Held to be deterministic at first; the last look at the ends tells better."""
    right = noticed = 0
    for seed in range(40):
        axis = Axis(step_at(20, 9, 0.0, 0.6), seed=seed)
        answer = axis.search()
        if answer.kind != "refused" and axis.asked["v19"] > 2:
            noticed += 1
            assert axis.asked["v0"] >= 10 and axis.asked["v19"] >= 10
            right += found(answer) == [(8, 9)]
    assert noticed >= 5 and right >= 0.9 * noticed


def test_runs_are_bounded() -> None:
    axis = Axis(step_at(20, 9, 0.3, 0.8), seed=1)
    answer = axis.search(runs=20, confidence=0.9999, most=50)
    assert answer.kind == "range" and sum(axis.asked.values()) <= 62
    (edge,) = answer.boundaries
    assert edge.low < 9 <= edge.high


@pytest.mark.parametrize("runs", [1, 10])
def test_outcomes_that_change_more_than_once(runs: int) -> None:
    """An even spread first finds a fix that was lost again."""
    shown = [0.0] * 10 + [1.0] * 8 + [0.0] * 7 + [1.0] * 5
    start = tuple(f"v{index}" for index in range(3, 30, 3))
    answer = Axis(shown).search(runs=runs, start=start)
    assert answer.kind == "several"
    if runs == 1:
        assert found(answer) == [(9, 10), (17, 18), (24, 25)]


def test_noise_alone_is_not_several_changes() -> None:
    kinds = [Axis(step_at(30, 12, 0.15, 0.85), seed=seed).search(runs=10).kind for seed in range(30)]
    assert kinds.count("several") <= 1


@pytest.mark.parametrize("runs, high", [(1, 1.0), (6, 0.7)])
def test_a_search_killed_after_any_step_goes_on(tmp_path: Path, runs: int, high: float) -> None:
    """The log is all the state: the same answer as without the kill, and no step is repeated."""
    whole = Axis(step_at(14, 5, 0, high), seed=4)
    log = Memory()
    expected = whole.search(log, runs=runs)
    for cut in range(0, len(log.steps), 1 if runs == 1 else 4):
        path = tmp_path / f"{cut}.jsonl"
        rows = [json.dumps(step.to_json()) for step in log.steps]
        path.write_text("".join(f"{row}\n" for row in rows[:cut]) + rows[cut][:20])  # killed while it wrote
        rest = iter(log.steps[cut:])
        resumed = Log.open(path)
        while isinstance(move := decide(whole.plan(runs=runs), resumed.steps), Ask):
            step = next(rest)
            assert step.candidate == whole.plan().names[move.index]
            resumed.add(step)
        assert move == expected and not list(rest)
        assert Log.open(path).steps == log.steps


def test_a_log_replays_and_one_of_another_search_does_not() -> None:
    axis = Axis(step_at(20, 7))
    log = Memory()
    axis.search(log)
    assert [ask.why for ask, _ in replay(axis.plan(), log.steps)][:2] == ["end", "end"]
    with pytest.raises(BadInput, match="step 3, of v9, is none that this search asks for"):
        replay(axis.plan(start=("v5",)), log.steps)


def test_the_runs_that_are_left_are_told() -> None:
    axis = Axis(step_at(50, 20))
    log = Memory()
    axis.search(log)
    left = [ask.left for ask, _ in replay(axis.plan(), log.steps)]
    assert left[0] == 10 and left[-1] == 1
    assert all(later < earlier or later == earlier - 1 for earlier, later in itertools.pairwise(left))


def test_probabilities() -> None:
    plan = Plan(("a", "b", "c", "d", "e"))
    steps = [Step("e", "bad"), Step("a", "good")]
    assert probabilities(plan, steps[:1]) == {}
    assert probabilities(plan, steps) == {"b": 0.25, "c": 0.25, "d": 0.25, "e": 0.25}
    assert probabilities(plan, [*steps, Step("c", "good")]) == {"d": 0.5, "e": 0.5}


def test_bisect_json_is_read_back_and_told(tmp_path: Path) -> None:
    axis = Axis(step_at(12, 4), "bad")
    log = Log(tmp_path / "steps.jsonl")
    search = Search(
        Wish("kernel", "v11", "v0"), "suites/x.py::test_y", axis.plan(start=("v3",), skips=frozenset({"v7"}))
    )
    answer = axis.search(log, start=("v3",), skips=frozenset({"v7"}))
    titles, told = (
        {"v4": "the fix"},
        ["4: usb: near it", "4: sched/fair: the very thing", *["4: net: far from it"] * 30],
    )
    found = Found(answer, changes=[told])
    row = save(tmp_path, search, log, titles, found)
    assert load(tmp_path) == (search, log)
    assert load_found(tmp_path, search, log) == (titles, found)
    (edge,) = row["answer"]["boundaries"]
    assert edge == {"after": "v3", "culprits": ["v4"], "confidence": 1.0, "changes": told}
    assert row["answer"]["exit_code"] == 0 and row["looking_for"] == "first good"
    assert lines(search, found, titles) == [
        "first good: v4 (the fix), after v3",
        "  4: sched/fair: the very thing",
        "  (32 changes in all, in bisect.html)",
        "both ends were run again at the end",
    ]
    page = write_page(tmp_path, row, lines(search, found, titles)).read_text()
    assert page.count("<li>") == 32 and "first good: v4 (the fix), after v3" in page and "<rect" in page
    assert load_found(tmp_path, search, Log(tmp_path / "none", log.steps[:2]))[1] is None


def test_the_page_shows_what_it_is_given_as_text(tmp_path: Path) -> None:
    axis, log = Axis(step_at(5, 2), signatures={}), Memory()
    search = Search(Wish("kernel", "v0", "v4"), "suites/x.py::<b>", axis.plan())
    answer = axis.search(log)
    log.steps[1] = replace(log.steps[1], reason="<script>alert(1)</script>", evidence="a/<b>")
    row = save(tmp_path, search, log, {}, Found(answer, changes=[["1: <img src=x>"]]))
    page = write_page(tmp_path, row, []).read_text()
    assert "<script" not in page and "<img" not in page and "<b>" not in page


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"plan": {}}', "\x00"])
def test_a_folder_that_is_no_search(tmp_path: Path, text: str) -> None:
    with pytest.raises(BadInput, match="is no search"):
        load(tmp_path / "none")
    (tmp_path / "bisect.json").write_text(text)
    with pytest.raises(BadInput, match="malformed"):
        load(tmp_path)
