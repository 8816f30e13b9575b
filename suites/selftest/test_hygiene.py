"""Hygiene: a failed, missing or unplanned step and anything left behind are named; clean runs pass."""

from __future__ import annotations

from dataclasses import replace

import pytest

from labs.invariant.hygiene import container_steps, nothing_left
from labs.probe.steps import STEPS, ContainerStep


def lives(containers: int, workers: int = 4) -> list[ContainerStep]:
    """Whole lives of containers, one after the other per worker and side by side over workers."""
    return [
        ContainerStep(
            container=f"box{i}",
            worker=i % workers,
            step=step,
            start=(i // workers * len(STEPS) + place) * 1000,
            end=(i // workers * len(STEPS) + place + 1) * 1000,
            code=0,
            stderr="",
        )
        for i in range(containers)
        for place, step in enumerate(STEPS)
    ]


def test_clean_lives_pass() -> None:
    verdict = container_steps(lives(10), planned=10)
    assert verdict.outcome == "pass"
    assert verdict.looked_at == {"containers": 10, "steps": 50, "workers": 4, "concurrent": 4}


@pytest.mark.parametrize(
    ("code", "word"),
    [(1, "exit code 1"), (-9, "ended by SIGKILL"), (-200, "ended by signal 200"), (201, "its processes did not end")],
)
def test_failed_step_is_named_with_its_words(code: int, word: str) -> None:
    steps = lives(10)
    steps[11] = replace(steps[11], code=code, stderr="cgroup: EBUSY")
    steps[40] = replace(steps[40], code=1, stderr="later")
    verdict = container_steps(steps, planned=10)
    assert verdict.outcome == "fail"
    assert f"2 of 50 steps failed, first start of box2: {word}" in verdict.reason
    assert verdict.evidence == "cgroup: EBUSY"
    assert [(step.thread, step.operation, step.end) for step in verdict.counterexample] == [
        ("worker 2", "start box2", 1000)
    ]


def test_missing_step_is_a_fail() -> None:
    steps = [step for step in lives(10) if (step.container, step.step) != ("box3", "delete")]
    verdict = container_steps(steps, planned=10)
    assert verdict.outcome == "fail"
    assert "box3: delete" in verdict.reason
    assert verdict.figures["missing steps"] == 1


@pytest.mark.parametrize(("ran", "planned"), [(9, 10), (0, 10), (0, 0)])
def test_fewer_containers_than_planned_are_no_pass(ran: int, planned: int) -> None:
    verdict = container_steps(lives(ran), planned=planned)
    assert verdict.outcome == "inconclusive"
    assert f"{ran} of {planned}" in verdict.reason


BEFORE = {"cgroups": ["/init", "/lab"], "mounts": ["/proc"], "processes": [], "states": []}


def test_nothing_left_passes_though_something_went_away() -> None:
    verdict = nothing_left(BEFORE, {**BEFORE, "cgroups": ["/init"]})
    assert verdict.outcome == "pass"
    assert verdict.looked_at["cgroups"] == 1


@pytest.mark.parametrize(
    ("kind", "listing", "left"),
    [
        ("cgroups", ["/init", "/lab", "/lab/box7"], "/lab/box7"),
        ("states", ["box7"], "box7"),
        ("processes", ["runc init"], "runc init"),
        ("mounts", ["/proc", "/proc"], "/proc"),
    ],
)
def test_leftover_is_named(kind: str, listing: list[str], left: str) -> None:
    verdict = nothing_left(BEFORE, {**BEFORE, kind: listing})
    assert verdict.outcome == "fail"
    assert verdict.figures[f"left {kind}"] == 1
    assert verdict.evidence == f"{kind}: {left}"


def test_unlisted_kind_is_no_pass() -> None:
    after = {kind: names for kind, names in BEFORE.items() if kind != "mounts"}
    verdict = nothing_left(BEFORE, after)
    assert verdict.outcome == "inconclusive"
    assert "mounts" in verdict.reason
    assert nothing_left({}, {}).outcome == "inconclusive"
