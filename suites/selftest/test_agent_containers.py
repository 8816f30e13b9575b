"""The agent's containers part, with a runtime of shell: every step timed and told, whatever goes wrong in it."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
from desk import Desk

from labs.probe.history import READ, WRITE
from labs.probe.steps import ContainerStep
from labs.probe.stream import Report

RUNTIME = """#!/bin/sh
parent=@PARENT@; step=$3; bundle=$5
for id; do :; done
[ "$step" != kill ] || id=$4
group=$parent/$id
case $id-$step in
  c001-create) echo first; echo 'no space for it' >&2; exit 7;;
  c002-state) echo '"status": "stopped"'; exit;;
  c003-kill) exit;;
  c004-start) exec sleep 60;;
  c005-start) kill -15 $$;;
esac
case $step in
  create) mkdir "$group"; printf 0 > "$group/cpu.weight"; echo 'populated 1' > "$group/cgroup.events"
          cp "$bundle/config.json" "$parent/$id.json";;
  state) sleep 0.05; echo '"status": "running"';;
  kill) [ "$5" = KILL ] && echo 'populated 0' > "$group/cgroup.events";;
  delete) rm -r "$group";;
esac
"""
TEMPLATE = {"hostname": "@ID@", "path": "/group/@ID@/@ID@", "end": "@"}
COUNT = 9


@pytest.fixture(scope="module")
def lives(program: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Report, Path]:
    desk = Desk(program, tmp_path_factory.mktemp("lives"))
    parent = desk.file("parent/cpu.weight").parent
    (desk.folder / "bundles").mkdir()
    (desk.folder / "template").write_text(json.dumps(TEMPLATE))
    runtime = desk.folder / "runtime"
    runtime.write_text(RUNTIME.replace("@PARENT@", str(parent)))
    runtime.chmod(0o755)
    places = f"{runtime} /state {desk.folder}/bundles {desk.folder}/template {parent}"
    report = desk.report(
        "capacity 3200", f"target 0 0 {parent}/cpu.weight", "writer 0 0 52 0",
        f"containers {COUNT} 3 1 {places}", "own 0 52 cpu.weight", "own 0 52 io.weight",
    )  # fmt: skip
    return report, parent


def codes(report: Report, container: str) -> dict[str, int]:
    return {step.step: step.code for step in report.steps if step.container == container}


def test_a_whole_life(lives: tuple[Report, Path]) -> None:
    report, _ = lives
    for container in ("c000", "c006", "c007", "c008"):
        assert codes(report, container) == dict.fromkeys(("create", "start", "state", "kill", "delete"), 0)


@pytest.mark.parametrize(
    "container, expected",
    [
        ("c001", {"create": 7}),
        ("c002", {"create": 0, "start": 0, "state": 200, "kill": 0, "delete": 0}),
        ("c003", {"create": 0, "start": 0, "state": 0, "kill": 201, "delete": 0}),
        ("c004", {"create": 0, "start": -9, "kill": 0, "delete": 0}),
        ("c005", {"create": 0, "start": -15, "kill": 0, "delete": 0}),
    ],
    ids=["create fails", "not running", "does not end", "too slow", "killed"],
)
def test_what_goes_wrong(lives: tuple[Report, Path], container: str, expected: dict[str, int]) -> None:
    assert codes(lives[0], container) == expected


def test_what_the_runtime_said_is_kept_when_it_failed(lives: tuple[Report, Path]) -> None:
    said = {(step.container, step.step): step.stderr for step in lives[0].steps}
    assert said["c001", "create"] == "first\nno space for it\n"
    assert said["c002", "state"] == '"status": "stopped"\n'
    assert said["c000", "state"] == ""


def test_steps_of_a_life_follow_each_other_and_lives_overlap(lives: tuple[Report, Path]) -> None:
    by_container: dict[str, list[ContainerStep]] = {}
    for step in lives[0].steps:
        by_container.setdefault(step.container, []).append(step)
    assert sorted(by_container) == [f"c{n:03}" for n in range(COUNT)]
    for steps in by_container.values():
        assert len({step.worker for step in steps}) == 1
        assert all(a.end <= b.start for a, b in itertools.pairwise(steps))
    assert {step.worker for step in lives[0].steps} == {0, 1, 2}
    first, second = by_container["c000"], by_container["c002"]
    assert first[0].start < second[-1].end and second[0].start < first[-1].end


def test_each_bundle_has_its_own_name(lives: tuple[Report, Path]) -> None:
    made = json.loads((lives[1] / "c008.json").read_text())
    assert made == {"hostname": "c008", "path": "/group/c008/c008", "end": "@"}


def test_own_files_are_written_and_read_from_create_to_kill(lives: tuple[Report, Path]) -> None:
    report, parent = lives
    registers = {register.path: register for register in report.history.registers}
    assert len(registers) == COUNT  # the parent's, and one of each container but the one that was not created
    for container in ("c000", "c004"):
        register = registers[f"{parent}/{container}/cpu.weight"]
        steps = {step.step: step for step in report.steps if step.container == container}
        assert set(register.operations["kind"]) == {READ, WRITE} and len(set(register.operations["thread"])) == 2
        assert steps["create"].end <= register.operations["start"][0]
        assert len(register.operations) <= 2 * 3200 // 16
    threads = [set(r.operations["thread"]) for path, r in registers.items() if path != f"{parent}/cpu.weight"]
    assert all(min(numbers) >= 1000 for numbers in threads)


def test_the_parents_file_is_written_until_the_last_container_is_gone(lives: tuple[Report, Path]) -> None:
    report, parent = lives
    (register,) = [r for r in report.history.registers if r.path == f"{parent}/cpu.weight"]
    assert len(register.operations) == 3200
