"""What a measuring guest sends: read whole, or refused; and what a suite's measures.toml may say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from labs.compare.measures import measures_of
from labs.errors import BadInput, LabError
from labs.probe.samples import Measure, Samples, parse, plan

WEIGHT, MAX = Measure("weight", "cpu.weight", 3, 1), Measure("max", "cpu.max", 2, 0, siblings=5)
SWITCH = {"cglab.slow_ns": "40"}
COLUMN = np.array([5, 6, 4_000_000_000], "<u4")
GOOD = (
    b"fact release x362e310a\nset /sys/module/cglab/parameters/slow_ns 0 40\nsamples weight 0 3\n"
    + COLUMN.tobytes()
    + b"\nsamples max 2 0\n\nfact taint x300a\nend\n"
)


def test_samples_and_facts() -> None:
    told = parse(GOOD, [WEIGHT, MAX], SWITCH)
    assert told.taken["weight"].tolist() == [5, 6, 4_000_000_000]
    assert told.failed == {"max": 2}
    assert told.facts == {"release": "6.1", "taint": "0", "build_id": ""}


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data[:-4],
        lambda data: data.replace(b"weight 0 3", b"weight 0 4"),
        lambda data: data.replace(b"weight 0 3", b"weight 0 2"),
        lambda data: data.replace(b"samples max 2 0\n\n", b""),
        lambda data: data.replace(b"max 2 0", b"max 99999 0"),
        lambda data: data.replace(b"max 2 0", b"other 2 0"),
        lambda data: data.replace(b"fact taint", b"tale taint"),
        lambda data: data + b"x",
        lambda data: data.replace(b"x300a", b"xzz"),
    ],
)
def test_what_is_cut_or_malformed_is_no_report(change: Callable[[bytes], bytes]) -> None:
    with pytest.raises(LabError, match="malformed or cut short"):
        parse(change(GOOD), [WEIGHT, MAX], SWITCH)


@pytest.mark.parametrize("told", [b"0 41", b"2 -"])
def test_a_defect_that_was_not_switched_on_is_told(told: bytes) -> None:
    with pytest.raises(LabError, match=r"cglab.slow_ns is"):
        parse(GOOD.replace(b"0 40", told), [WEIGHT, MAX], SWITCH)


def test_the_plan_is_as_long_for_every_seed() -> None:
    one, other = plan([WEIGHT, MAX], 1, SWITCH), plan([WEIGHT, MAX], 2**31 - 1, SWITCH)
    assert len(one) == len(other)
    assert one.splitlines() == [
        "seed 0000000001", "set /sys/module/cglab/parameters/slow_ns 40",
        "measure weight cpu.weight 3 1 0 0 - 0", "measure max cpu.max 2 0 0 5 - 0",
    ]  # fmt: skip


def test_samples_come_back_from_their_file_and_are_never_written_over(tmp_path: Path) -> None:
    samples = parse(GOOD, [WEIGHT, MAX], SWITCH)
    samples.save(tmp_path / "x.npz")
    again = Samples.load(tmp_path / "x.npz")
    assert (again.taken["weight"] == COLUMN).all() and (again.failed, again.facts) == (samples.failed, samples.facts)
    with pytest.raises(FileExistsError):
        samples.save(tmp_path / "x.npz")


def test_a_file_that_is_no_samples_is_told(tmp_path: Path) -> None:
    (tmp_path / "x.npz").write_bytes(b"PK\x03\x04 but no more")
    with pytest.raises(LabError, match=r"x\.npz cannot be read"):
        Samples.load(tmp_path / "x.npz")


def test_measures_of_the_suite() -> None:
    found = measures_of(Path("suites/latency"))
    assert len({measure.name for measure in found}) == len(found) > 5
    assert measures_of(Path("suites/latency"), ["attach"])[0].operation == "attach"


@pytest.mark.parametrize(
    "text, told",
    [
        ('[a]\noperation = "cpu.min"\n', ":2: operation 'cpu.min' is not known; one of: cpu.weight"),
        ('[a]\noperation = "fork"\ncount = 99\n', ":3: a.count is no number from 100"),
        ('[a]\noperation = "fork"\ncount = true\n', ":3: a.count is no number"),
        ('[a]\noperation = "fork"\nbeside = "x"\n', ":3: operation 'x' is not known"),
        ('[a]\noperation = "fork"\nthreads = 2\n', "a.beside is missing"),
        ('[A]\noperation = "fork"\n', ":1: 'A' is no name of a measure"),
        ('[a]\noperations = "fork"\n', "key 'operations' is not known here"),
        ("", "has no measure"),
        ("[a", "mend the TOML"),
    ],
)
def test_a_malformed_measure_is_told_with_its_line(text: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "measures.toml").write_text(text)
    with pytest.raises(BadInput) as error:
        measures_of(tmp_path)
    assert told in str(error.value)


def test_a_suite_without_measures_and_a_measure_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"has no measures\.toml"):
        measures_of(tmp_path)
    with pytest.raises(BadInput, match="has no measure nothing"):
        measures_of(Path("suites/latency"), ["nothing"])
