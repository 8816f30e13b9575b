"""Comparisons driven and kept: with boots that are made up, and everything else real."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from labs.compare.boots import Boot, _quiet
from labs.compare.drive import ATTEMPTS, order, progress, run, seed_of
from labs.compare.guards import HostState, guest_trouble, host_trouble
from labs.compare.record import Asked, CompareRecord
from labs.errors import BadInput, GuestLost, KernelFailed, LabError
from labs.probe.samples import Measure, Samples

SETTING = {"accelerator": "icount", "qemu": "QEMU 7.2", "host": {}}
ASKED = Asked(
    "6.1_runc", "6.12_runc", "suites/x", (Measure("w", "cpu.weight", 200, 0),), 10, 0.05, 0.05, 1, SETTING, {}, {}
)
COLUMN = np.arange(1000, 1200, dtype="<u4")


class Bench:
    """Boots by the script: B is `slower`; what `trouble` says of a boot's number happens to it."""

    def __init__(self, slower: float = 1.0, trouble: dict[int, str | BaseException] | None = None) -> None:
        self.slower, self.trouble = slower, trouble or {}
        self.done: list[tuple[str, int]] = []

    def __call__(self, side: str, seed: int, record: CompareRecord) -> tuple[Boot, str]:
        self.done.append((side, seed))
        trouble = self.trouble.get(len(self.done), "")
        if isinstance(trouble, BaseException):
            raise trouble
        factor = self.slower if side == "B" else 1.0
        samples = Samples({"w": (COLUMN * factor + seed % 7).astype("<u4")})
        return Boot(samples, trouble, {}), record.logs().name


@pytest.fixture
def record(tmp_path: Path) -> CompareRecord:
    return CompareRecord.create(tmp_path, ASKED)


def test_sides_alternate_and_share_a_seed_by_round(record: CompareRecord) -> None:
    bench = Bench()
    assert run(record, bench).code == 0
    assert "".join(side for side, _ in bench.done) == "ABBAABBAABBA"
    seeds = [seed for _, seed in bench.done]
    assert seeds[::2] == seeds[1::2] and len(set(seeds)) == 6
    assert [order(number) for number in (1, 2, 3)] == ["AB", "BA", "AB"]
    assert seed_of(ASKED, 1) == seeds[0]


def test_all_rounds_can_be_made(record: CompareRecord) -> None:
    bench = Bench()
    assert run(record, bench, whole_run=True).rounds == 6 and len(bench.done) == 20


@pytest.mark.parametrize("trouble", ["the host's load was 9", GuestLost("QEMU ended")])
def test_a_disturbed_round_is_made_again_and_counted(trouble: str | Exception, record: CompareRecord) -> None:
    result = run(record, Bench(trouble={3: trouble}))
    told = record.told(result)
    assert result.code == 0 and told["boots"] == 14
    assert told["disturbed"] == [f"round 2: {trouble if isinstance(trouble, str) else f'guest lost: {trouble}'}"]


def test_a_kernel_that_fails_ends_it_and_stays_on_record(record: CompareRecord) -> None:
    failure = KernelFailed("side B: kernel failed: BUG: planted")
    with pytest.raises(KernelFailed):
        run(record, Bench(trouble={6: failure}))
    told = record.told(run(record, Bench()))  # another boot of the same round does not fail
    assert (told["failed"], told["disturbed"], told["boots"]) == ([f"round 3: {failure}"], [], 14)
    assert [(line.side, line.round, line.failed) for line in record.boots() if line.trouble] == [("B", 3, True)]


@pytest.mark.parametrize(
    ("name", "kind"), [("warn-7.2", KernelFailed), ("emulator-double-fault", GuestLost), ("quiet", None)]
)
def test_a_kernel_that_complains_while_it_measures_has_failed(
    name: str, kind: type[LabError] | None, tmp_path: Path
) -> None:
    console = Path(__file__).parent / f"data/consoles/{name}.log"
    text = console.read_text() if kind else "[    0.000000] Linux version 6.1\n"
    (tmp_path / "console.log").write_text(text)
    with pytest.raises(kind) if kind else contextlib.nullcontext():
        _quiet(tmp_path / "console.log")


def test_a_round_that_stays_disturbed_is_an_error(record: CompareRecord) -> None:
    noise: dict[int, str | BaseException] = dict.fromkeys(range(1, 30), "noise")
    bench = Bench(trouble=noise)
    with pytest.raises(LabError, match=f"round 1 was disturbed {ATTEMPTS} times: noise"):
        run(record, bench)
    assert len(bench.done) == 2 * ATTEMPTS
    with pytest.raises(LabError, match="round 1 was disturbed"):
        run(record, Bench())  # and stays one


@pytest.mark.parametrize("killed_at", range(1, 12))
def test_a_comparison_goes_on_where_it_was_killed(killed_at: int, record: CompareRecord, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(record, Bench(1.5, {killed_at: KeyboardInterrupt()}))
    with (record.path / "boots.jsonl").open("ab") as log:
        log.write(b'{"round": 1, "side"')  # torn
    result = run(CompareRecord(record.path), Bench(1.5))
    whole = run(CompareRecord.create(tmp_path, ASKED), Bench(1.5))
    assert result == whole and result.code == 1


def test_a_round_whose_first_boot_is_missing_is_made_anew(record: CompareRecord) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(record, Bench(trouble={4: KeyboardInterrupt()}))
    assert (progress(record).round, progress(record).attempt) == (2, 2)
    assert len(record.rounds()) == 1


def test_what_neither_side_has_is_told_and_not_judged(tmp_path: Path) -> None:
    asked = replace(ASKED, measures=(*ASKED.measures, Measure("io", "io.weight", 200, 0)))
    record = CompareRecord.create(tmp_path, asked)
    result = run(record, Bench())
    assert result.code == 0 and record.told(result)["absent"] == ["io"]


def test_the_decision_can_be_made_again_from_the_files(record: CompareRecord) -> None:
    record.decide(run(record, Bench(1.2)))
    assert record.verified() == []


def _byte(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def _digit(path: Path) -> None:
    row = json.loads(path.read_text())
    row["rows"][0]["effect"] += 1e-6
    path.write_text(json.dumps(row))


@pytest.mark.parametrize(
    "file, spoil, told",
    [
        ("boots/003/B.npz", _byte, "003/B.npz has changed"),
        ("boots/003/B.npz", os.unlink, "are missing"),
        ("decision.json", _digit, "decision.json: rows"),
        ("decision.json", os.unlink, "decision.json: No such file"),
    ],
)
def test_what_was_changed_since_is_told(
    file: str, spoil: Callable[[Path], None], told: str, record: CompareRecord
) -> None:
    run(record, Bench(1.2))
    spoil(record.path / file)
    assert any(told in line for line in record.verified())


def test_a_record_cannot_name_files_outside(record: CompareRecord) -> None:
    run(record, Bench())
    log = record.path / "boots.jsonl"
    log.write_text(log.read_text().replace("boots/001/A.npz", "../../A.npz"))
    assert "are missing" in record.verified()[0]


def test_real_time_of_an_emulated_guest_is_never_judged(tmp_path: Path) -> None:
    asked = Asked(**{**vars(ASKED), "setting": {**SETTING, "accelerator": "tcg"}})
    bench = Bench()
    result = run(CompareRecord.create(tmp_path, asked), bench)
    assert result.code == 4 and "--virtual-time" in result.reason and not bench.done


@pytest.mark.parametrize("text", [None, "{", "{}", '{"measures": 1}'])
def test_a_folder_that_is_no_comparison(text: str | None, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "compare.json").write_text(text)
    with pytest.raises(BadInput):
        CompareRecord(tmp_path).asked()


CALM = HostState(0.0, 0, 0, 0.5, 0, "tsc")


@pytest.mark.parametrize(
    "before, after, told",
    [
        (CALM, HostState(10, 0, 2000, 0.5, 0, "tsc"), ""),
        (CALM, HostState(10, 0, 2000, 9.0, 1_000_000, "tsc"), ""),  # its own guest runs by then
        (CALM, HostState(10, 30, 2000, 0.5, 0, "tsc"), "1.5% of the host's CPU time was stolen"),
        (CALM, HostState(10, 0, 2000, 0.5, 3_000_000, "tsc"), "waited for a CPU 30% of the time"),
        (CALM, HostState(10, 0, 2000, 0.5, 0, "hpet"), "clocksource changed from tsc to hpet"),
        (HostState(0, 0, 0, 2.5, 0, "tsc"), HostState(10, 0, 2000, 2.5, 0, "tsc"), "load was 2.5 on 2 cores"),
    ],
)
def test_what_disturbs_from_the_host(before: HostState, after: HostState, told: str) -> None:
    assert told in host_trouble(before, after, 2) and bool(told) == bool(host_trouble(before, after, 2))


def test_what_disturbs_in_the_guest() -> None:
    calm = {"clocksource.before": "tsc-early", "clocksource.after": "tsc"}
    calm |= {"stat.before": "cpu 0 0 37 0 0 0 0 0 0 0", "stat.after": "cpu 3 0 103 0 0 0 0 0 0 0\ncpu0 1"}
    assert guest_trouble(calm) == ""
    assert "clocksource changed: hpet and tsc" in guest_trouble(calm | {"clocksource.after": "hpet"})
    assert "stolen" in guest_trouble(calm | {"stat.after": "cpu 3 0 103 0 0 0 0 9 0 0"})


def test_this_host_tells_its_state() -> None:
    state = HostState.now()
    assert state.ticks > 0 and state.steal >= 0 and state.load >= 0
