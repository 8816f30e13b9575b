"""Semantics: what containers told, as runtimes do it and with each promise broken; without a guest."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from labs.errors import LabError
from labs.invariant.semantics import default_shares, delete_tells, in_force, recorded, shares_in_order
from labs.probe.semantics import Ask, Told, bundle, read_told


def told(**files: str | None) -> Told:
    return Told(0, "", {name.replace("_", "."): text for name, text in files.items()}, 0, "", False, 40)


REFUSED = replace(told(), code=1, said="time=now\nexec: pids.max: invalid argument")


@pytest.mark.parametrize(
    "seen, outcome, reason",
    [
        (told(cpu_weight="100"), "pass", "cpu.shares 1024 gives cpu.weight 100"),
        (told(cpu_weight="39"), "fail", "cpu.shares 1024 gives cpu.weight 39, the default is 100"),
        (REFUSED, "error", "the container was not created (1): exec: pids.max: invalid argument"),
    ],
)
def test_default_shares(seen: Told, outcome: str, reason: str) -> None:
    verdict = default_shares(seen)
    assert (verdict.outcome, reason in verdict.reason) == (outcome, True), verdict.reason


@pytest.mark.parametrize(
    "weights, outcome",
    [
        ({2: 1, 1024: 39, 262144: 10000}, "pass"),
        ({2: 1, 1024: 100, 262144: 10000}, "pass"),
        ({2: 1, 1024: 100, 2048: 99, 262144: 10000}, "fail"),
        ({2: 2, 1024: 100, 262144: 10000}, "fail"),
        ({2: 1, 1024: 100, 262144: 9999}, "fail"),
        ({512: 59, 1024: 100}, "inconclusive"),
    ],
)
def test_shares_in_order(weights: dict[int, int], outcome: str) -> None:
    seen = {shares: told(cpu_weight=str(weight)) for shares, weight in weights.items()}
    assert shares_in_order(seen).outcome == outcome
    assert shares_in_order({**seen, 4: REFUSED}).outcome == "error"


@pytest.mark.parametrize(
    "seen, wanted, outcome, reason",
    [
        (told(cpu_max="max 50000"), {"cpu.max": "max 50000"}, "pass", "cpu.max is max 50000"),
        (told(cpu_max="30000 50000"), {"cpu.max": "max 50000"}, "fail", "cpu.max is 30000 50000, not max 50000"),
        (told(cpu_max=None), {"cpu.max": "max 50000"}, "fail", "cpu.max is None"),
        (REFUSED, {"pids.max": "0"}, "fail", "create ended with 1: exec: pids.max: invalid argument"),
        (told(), {}, "inconclusive", "nothing was looked at"),
    ],
)
def test_in_force(seen: Told, wanted: dict[str, str], outcome: str, reason: str) -> None:
    verdict = in_force(seen, wanted)
    assert (verdict.outcome, reason in verdict.reason) == (outcome, True), verdict.reason


@pytest.mark.parametrize(
    "code, left, outcome", [(0, False, "pass"), (1, True, "pass"), (1, False, "pass"), (0, True, "fail")]
)
def test_delete_tells(code: int, left: bool, outcome: str) -> None:
    assert delete_tells(replace(told(), delete=code, left=left)).outcome == outcome
    assert delete_tells(replace(REFUSED, delete=code, left=left)).outcome == "error"


def test_differences_are_on_record() -> None:
    verdict = recorded("pids-zero", told(pids_max="0"))
    assert (verdict.outcome, verdict.reason, verdict.figures) == ("pass", "pids.max 0", {"pids.max": 0.0})
    assert recorded("pids-zero", told(pids_max="max")).figures == {}
    assert "invalid argument" in recorded("pids-zero", REFUSED).reason


def test_what_the_script_leaves_is_read() -> None:
    ask = Ask(files=["cpu.weight", "io.weight"])
    left = {"c1/code": "0", "c1/delete": "1", "c1/delete_said": "busy", "c1/left": "1", "c1/ms": "1023"}
    seen = read_told({**left, "c1/said": "", "c1/file.cpu.weight": "39"}, "c1", ask)
    assert seen == Told(0, "", {"cpu.weight": "39", "io.weight": None}, 1, "busy", True, 1023)
    for lost in ("code", "delete", "left", "ms"):
        with pytest.raises(LabError, match="is malformed"):
            read_told({name: text for name, text in left.items() if name != f"c1/{lost}"}, "c1", ask)


def test_a_configuration_holds_what_was_asked() -> None:
    config = json.loads(bundle("/top", Ask({"cpu": {"shares": 512}}, command=["/bin/true"])))
    assert config["linux"]["resources"] == {"cpu": {"shares": 512}} and config["process"]["args"] == ["/bin/true"]
    assert config["linux"]["cgroupsPath"] == "/top/@ID@"
