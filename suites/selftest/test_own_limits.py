"""Limits: records of real guests, with runc 1.1.5 as it is and with each series that breaks a promise (data/limits)."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from labs.command import run
from labs.deadline import Deadline
from labs.invariant.limits import limits_in_force, no_waiting, refused_once
from labs.invariant.verdict import Verdict
from labs.probe.limits import LIMITS, SCRIPT, Limits, Meeting, bundle, read_limits

DATA = Path(__file__).parent / "data/limits"
PLANNED = {"limits_in_force": 4, "refused_once": 2, "no_waiting": 2}  # two rounds and two plain containers each
BROKEN = {
    "base": set(),
    "flock-serial": {"no_waiting"},
    "set-ordered-nojoin": {"limits_in_force", "refused_once"},
    "retry-amplification": {"refused_once"},
}


def recorded(name: str) -> Limits:
    return read_limits(json.loads((DATA / f"{name}.json").read_text()))


def verdicts(seen: Limits) -> dict[str, Verdict]:
    return {
        "limits_in_force": limits_in_force(seen.starts, LIMITS, planned=PLANNED["limits_in_force"]),
        "refused_once": refused_once(seen.settings, planned=PLANNED["refused_once"]),
        "no_waiting": no_waiting(seen.meetings, planned=PLANNED["no_waiting"]),
    }


@pytest.mark.parametrize("name", BROKEN)
def test_each_record_breaks_what_its_series_breaks(name: str) -> None:
    outcomes = {case: verdict.outcome for case, verdict in verdicts(recorded(name)).items()}
    assert outcomes == {case: "fail" if case in BROKEN[name] else "pass" for case in PLANNED}


def test_all_records_are_of_one_size() -> None:
    looked = {name: {case: one.looked_at for case, one in verdicts(recorded(name)).items()} for name in BROKEN}
    sizes = {(case, tuple(sorted(one[case]))) for one in looked.values() for case in one}
    assert len(sizes) == len(PLANNED)
    assert all(one["limits_in_force"] == {"containers": 4, "held": 2} for one in looked.values())
    assert all(one["no_waiting"] == {"meetings": 2} for one in looked.values())
    assert all(one["refused_once"] == {"creates": 2, "updates": 6} for one in looked.values())


@pytest.mark.parametrize("file", LIMITS)
def test_one_limit_that_is_late_is_named(file: str) -> None:
    first, *others = recorded("base").starts
    late = replace(first, seen={**first.seen, file: "max"})
    verdict = limits_in_force([late, *others], LIMITS, planned=4)
    assert verdict.outcome == "fail"
    assert f"{file} 'max', not {LIMITS[file]!r}" in verdict.reason


def test_a_container_that_cannot_read_a_limit_did_not_see_it_set() -> None:
    first, *others = recorded("base").starts
    seen = {name: text for name, text in first.seen.items() if name != "cpu.max"}
    assert limits_in_force([replace(first, seen=seen), *others], LIMITS, planned=4).outcome == "fail"


def test_two_writes_are_one_too_many() -> None:
    first, *others = recorded("base").settings
    assert first.step == "run" and first.refused
    again = replace(first, writes=(*first.writes, *(one for one in first.writes if one.errno)))
    verdict = refused_once([again, *others], planned=2)
    assert verdict.outcome == "fail"
    assert [step.note for step in verdict.counterexample] == ["EINVAL", "EINVAL"]


def test_a_refusal_that_is_told_to_nobody_fails() -> None:
    first, *others = recorded("base").settings
    assert refused_once([replace(first, code=0), *others], planned=2).outcome == "fail"


def test_updates_that_are_refused_late_fail_by_their_time_alone() -> None:
    slow = [one for one in recorded("retry-amplification").settings if one.step == "update"]
    verdict = refused_once([*(one for one in recorded("base").settings if one.step == "run"), *slow], planned=2)
    assert verdict.outcome == "fail"
    assert "a refused update takes" in verdict.reason


def test_one_slow_refusal_among_quick_ones_is_noise() -> None:
    settings = list(recorded("base").settings)
    at = next(i for i, one in enumerate(settings) if one.step == "update" and one.refused)
    settings[at] = replace(settings[at], end=settings[at].end + 10**10)
    assert refused_once(settings, planned=2).outcome == "pass"


def test_a_create_that_ended_neither_before_nor_soon_after_says_nothing() -> None:
    first, second = recorded("flock-serial").meetings
    stuck = [replace(one, after=one.before + 1) for one in (first, second)]
    assert no_waiting(stuck, planned=2).outcome == "inconclusive"


def test_too_little_seen_is_no_pass() -> None:
    seen = recorded("base")
    silent = [replace(one, seen={}, code=1, said="no space") for one in seen.starts]
    taken = [replace(one, writes=tuple(w for w in one.writes if not w.errno)) for one in seen.settings]
    told = (
        limits_in_force(seen.starts[:3], LIMITS, planned=4),
        limits_in_force(silent, LIMITS, planned=4),
        refused_once(seen.settings[:1], planned=2),
        refused_once(taken, planned=2),
        no_waiting(seen.meetings[:1], planned=2),
        no_waiting([], planned=0),
    )
    assert {one.outcome for one in told} == {"inconclusive"}
    assert told[1].evidence == "no space"


@pytest.mark.parametrize("path", ["h0/told", "h0/code", "h0/met", "r0/trace", "t1/trace"])
def test_a_record_that_is_cut_short_is_refused(path: str) -> None:
    told = json.loads((DATA / "base.json").read_text())
    with pytest.raises((ValueError, KeyError)):
        read_limits({**told, path: "x"})


def test_the_bundle_asks_for_the_limits_that_are_judged() -> None:
    config = json.loads(bundle("/lab"))
    resources = config["linux"]["resources"]
    assert f"{resources['cpu']['quota']} {resources['cpu']['period']}" == LIMITS["cpu.max"]
    assert str(resources["memory"]["limit"]) == LIMITS["memory.max"]
    assert str(resources["pids"]["limit"]) == LIMITS["pids.max"]
    assert resources["unified"] == {"cpu.weight": LIMITS["cpu.weight"]}


def test_the_labs_own_program_that_does_not_run_is_no_verdict() -> None:
    told = json.loads((DATA / "base.json").read_text())
    told["h0/told"], told["h0/said"] = "", "<2>something\nagent: results: /dev/ttyS1: No such file or directory\n"
    with pytest.raises(ValueError, match="did not run in h0: agent: results"):
        read_limits(told)


# Stand in for the agent and for a runtime whose second container, r0, goes on when its file says so.
AGENT = """#!/bin/bash
shift; [ $2 = - ] || touch $3/held; until [ $2 = - ] || [ -e $3/release ]; do sleep 0.05; done; shift 3; exec "$@"
"""
RUNC = """#!/bin/bash
name=${!#}; [ $name = h0 ] || until grep -q max group/$name/cpu.max || [ -e $ANSWERS ]; do sleep 0.05; done
"""


def met(folder: Path, answers: str) -> Meeting:
    """A meeting by the probe's own script, with a container that only gets on with much of the CPU, or when there is
    the file `answers`."""
    for name, text in (("agent", AGENT), ("runc", RUNC)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    (folder / "group/r0").mkdir(parents=True)
    (folder / "group/r0/cpu.max").write_text("10 50000")
    names = f"export ANSWERS={answers}; RUNC=./runc STATE=x AGENT=./agent TOP=/x PARENT=group PATIENCE=300 MORE="
    script = f"{names}\n{SCRIPT}\nround 0 cpu.max\ncat h0/met"
    told = run(["bash", "-c", f"cd {folder}; {script}"], Deadline(20, "a round")).out
    held, waited, before, after = told.split()
    return Meeting(held, waited == "1", int(before), int(after))


def test_a_container_that_waits_for_the_cpu_is_given_some_and_judged_as_none_that_waits_for_another(
    tmp_path: Path,
) -> None:
    meeting = met(tmp_path, "none")
    assert meeting.waited and meeting.before <= meeting.after
    assert no_waiting([meeting], planned=1).outcome == "inconclusive"
    assert (tmp_path / "group/r0/cpu.max").read_text() == "max\n"


def test_a_container_that_waits_for_another_keeps_its_quota(tmp_path: Path) -> None:
    meeting = met(tmp_path, "h0/release")
    assert no_waiting([meeting], planned=1).outcome == "fail"
    assert (tmp_path / "group/r0/cpu.max").read_text() == "10 50000"
