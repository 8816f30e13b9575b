"""Whole runs of a suite whose first guest meets its end in mid-probe: what becomes of its cell, and of the next one."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from lab_processes import Lab, alive, lab
from provider_contract import PANIC, tell, written

from labs.build.keys import guest_keys
from labs.deadline import Deadline
from labs.errors import DeadlineExpired, GuestLost
from labs.report.record import CaseResult, Run
from labs.session import connect
from labs.store import Store
from suites.guest.test_qemu import listening

SUITE = Path(__file__).parents[1] / "cgroup_atomicity"
DECIDED = {"pass", "known", "fail", "inconclusive", "skip"}
pytestmark = pytest.mark.full


def kill(qemu: int) -> None:
    os.kill(qemu, signal.SIGKILL)


def panic(qemu: int) -> None:
    """Through a connection of our own into the guest of another process."""
    ((_, port),) = listening(qemu)
    keys = guest_keys(Store.of_user())
    session = connect(("127.0.0.1", port), keys / "client", keys / "host.pub", Deadline(30, "second connection"))
    with pytest.raises((GuestLost, DeadlineExpired)):
        session.run("echo c > /proc/sysrq-trigger", Deadline(10, "crash"))


def run_and_end_first(act: Callable[[int], None], folder: Path) -> tuple[int, str, Run]:
    """Two cells; `act` on the QEMU of the first while its first probe runs. Exit code, output, record."""
    options = ["--kernel", "6.1", "--kernel", "6.12", "-k", "alone", "--record", str(folder / "records")]
    # a root of its own: the run must not replace the user's last report
    argv = ["pytest", str(SUITE), *options, "-c", str(SUITE.parents[1] / "pyproject.toml"), "--rootdir", str(folder)]
    with lab([*argv, "-p", "no:cacheprovider"]) as running:
        qemu = running.qemu()
        Deadline(120, "the first probe").wait_for(lambda: probing(running, folder))
        act(qemu)
        Deadline(10, "QEMU ends").wait_for(lambda: not alive(qemu))
        code, out, err = running.finish(300)
        assert list(running.temporary.glob("cgroup-lab-*")) == []
    (path,) = (folder / "records").iterdir()
    return code, out + err, Run.open(path)


def probing(running: Lab, folder: Path) -> bool:
    assert running.process.poll() is None, running.process.communicate()
    consoles = list(folder.glob("records/*/6.1_runc/console.log"))
    return bool(consoles) and written(consoles[0], "begin alone.linearizable[weights]")()


def evidence(case: CaseResult) -> str:
    assert case.verdict
    return str(case.verdict.to_json()["evidence"])


def test_guest_killed(tmp_path: Path, capsys):
    code, said, run = run_and_end_first(kill, tmp_path)
    first, second = run.results()["6.1_runc"], run.results()["6.12_runc"]
    assert {case.outcome for case in first} == {"error"}, said
    assert "QEMU was killed by signal 9" in first[0].reason
    assert "cgroup-lab: ready" in evidence(first[0])
    assert "cgroup-lab: ready" in run.cell("6.1_runc").console_path.read_text(errors="replace")
    assert {case.outcome for case in second} <= DECIDED, said
    assert code == 3, said
    tell(capsys, f"{first[0].seconds:.1f} s in the first case")


def test_kernel_panics(tmp_path: Path, capsys):
    code, said, run = run_and_end_first(panic, tmp_path)
    first, second = run.results()["6.1_runc"], run.results()["6.12_runc"]
    assert first[0].outcome == "fail", said
    assert PANIC in first[0].reason
    assert PANIC in evidence(first[0])
    assert {case.outcome for case in first[1:]} == {"error"}
    assert {case.outcome for case in second} <= DECIDED, said
    assert code == 1, said
    junit = (run.path / "report/junit.xml").read_text()
    assert re.search(r"<failure[^>]*sysrq triggered crash", junit)
    tell(capsys, f"{first[0].seconds:.1f} s in the first case")
