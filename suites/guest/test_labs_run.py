"""`labs run` on real guests, killed at any moment: nothing is lost, repeated or left."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from lab_processes import TOP, descendants, is_qemu
from provider_contract import tell

from labs.deadline import Deadline
from labs.report.record import Run
from labs.run.leftovers import marked

pytestmark = pytest.mark.full

ASKED = ["suites/cgroup_atomicity/test_alone.py", "-k", "weights and not latency", "--seed", "1"]
CELLS = ["--kernel", "6.1", "--kernel", "6.12"]
DECIDED = {"pass", "known", "fail", "inconclusive", "skip"}
MOMENTS, SECONDS = 10, 900.0


def start(argv: Sequence[str], folder: Path) -> subprocess.Popen[str]:
    (folder / "tmp").mkdir(exist_ok=True)
    return subprocess.Popen(
        [sys.executable, "-m", "labs", "run", *argv, "--report", str(folder / "report")],
        cwd=TOP, env={**os.environ, "TMPDIR": str(folder / "tmp")}, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def guests(pid: int) -> set[int]:
    return {one for one in descendants(pid) if is_qemu(one)}


def record(folder: Path) -> Path | None:
    return next(iter(folder.glob("records/2*/run.json")), None)


def kill_after(process: subprocess.Popen[str], folder: Path, moment: float) -> set[int]:
    """kill -9 so many seconds after the run is on record; the guests that ran then."""
    Deadline(SECONDS, "a record").wait_for(lambda: record(folder) is not None or process.poll() is not None)
    began = time.monotonic()
    while time.monotonic() - began < moment and process.poll() is None:
        time.sleep(0.02)
    running = guests(process.pid)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    return running


def finished(run: Run) -> set[str]:
    return {cell for cell, cases in run.results().items() if {one.outcome for one in cases} <= DECIDED}


def unlocked(run: Path) -> bool:
    """Whether nobody holds a lock on a file of the run, as the kernel lists them."""
    inodes = {path.stat().st_ino for path in (run / "plan.json", run / ".lock") if path.exists()}
    held = {int(match) for match in re.findall(r":(\d+) \d+ EOF", Path("/proc/locks").read_text())}
    return not inodes & held


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder with a short name: a socket's is limited to 107 characters."""
    with tempfile.TemporaryDirectory(prefix="lt-") as name:
        yield Path(name)


def test_killed_at_ten_moments(short: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = [*ASKED, *CELLS]
    whole = start([*argv, "--record", str(short / "whole/records")], short)
    began = time.monotonic()
    out, _ = whole.communicate(timeout=SECONDS)
    assert whole.returncode in (0, 1, 4), out
    took = time.monotonic() - began
    dice = random.Random(11)
    moments = [took * (number + dice.random()) / MOMENTS for number in range(MOMENTS)]  # one in each tenth
    left, ran = [], 0
    for number, moment in enumerate(moments):
        folder = short / f"run-{number}"
        folder.mkdir()
        process = start([*argv, "--record", str(folder / "records")], folder)
        running = kill_after(process, folder, moment)
        found = record(folder)
        assert found is not None
        run = Run.open(found.parent)
        Deadline(5, "all that it started ends").wait_for(lambda run=run: not marked(run.path))
        assert not any(is_qemu(pid) for pid in running) and unlocked(run.path)
        killed = run.results()
        before, boots = finished(run), {cell: len(list(run.path.glob(f"{cell}/boot-*"))) for cell in run.plan}
        again = start(["--resume", str(run.path)], folder)
        out, _ = again.communicate(timeout=SECONDS)
        assert again.returncode in (0, 1, 4), out
        for cell, cases in run.results().items():
            assert [one.case for one in cases] == list(run.plan[cell])
            assert {one.outcome for one in cases} <= DECIDED
            assert not any(outcome in DECIDED for one in cases for outcome in one.earlier), "ran again"
        assert all(len(list(run.path.glob(f"{cell}/boot-*"))) == boots[cell] for cell in before), "ran again"
        assert list((folder / "tmp").iterdir()) == []
        assert not marked(run.path) and unlocked(run.path)
        left.append(sum(one.outcome == "not-run" for cases in killed.values() for one in cases))
        ran += len(running)
        tell(capsys, f"killed at {moment:.0f} of {took:.0f} s with {len(running)} guests, {left[-1]} cases left")
    assert ran and len(set(left)) > 1, "the moments were all alike"
