"""When the lab itself is ended, however rudely, its QEMU ends too."""

from __future__ import annotations

import os
import signal
import time

import pytest
from lab_processes import Lab, alive, lab
from provider_contract import PROMPT, tell, written

from labs.deadline import Deadline
from labs.matrix import Cell

# the command tells on the console that it runs
BOOT = ["labs", "boot", *Cell().options, "--", "sh", "-c", "echo '<2>command runs' > /dev/kmsg; sleep 100"]


def wait_until_it_runs(running: Lab) -> None:
    (folder,) = running.temporary.glob("cgroup-lab-*")
    Deadline(120, "the command runs").wait_for(written(folder / "console.log", "command runs"))


@pytest.mark.parametrize("moment", ["boot", "command"])
def test_lab_killed(moment: str, capsys):
    with lab(BOOT) as running:
        qemu = running.qemu()
        if moment == "command":
            wait_until_it_runs(running)
        running.process.send_signal(signal.SIGKILL)
        began = time.monotonic()
        Deadline(PROMPT, "QEMU ends with the lab").wait_for(lambda: not alive(qemu))
        tell(capsys, f"QEMU gone after {time.monotonic() - began:.2f} s")
        assert running.finish(5)[0] == -signal.SIGKILL


@pytest.mark.parametrize("moment", ["boot", "command"])
def test_interrupted(moment: str, capsys):
    """Ctrl-C reaches the whole foreground group, as a terminal sends it."""
    with lab(BOOT) as running:
        qemu = running.qemu()
        if moment == "command":
            wait_until_it_runs(running)
        began = time.monotonic()
        os.killpg(running.process.pid, signal.SIGINT)
        code, out, err = running.finish(10)
        tell(capsys, f"ended after {time.monotonic() - began:.2f} s")
        assert code == 130, err
        assert out == ""
        assert err.splitlines()[-1] == "labs: interrupted"
        assert [line for line in err.splitlines() if "Traceback" in line or "Interrupt" in line] == []
        assert not alive(qemu)
        assert list(running.temporary.iterdir()) == []


def test_exit_code_of_the_command():
    """Not a LabError's: what the command in the guest ended with, 255 included, and its output untouched."""
    with lab(["labs", "boot", "--", "sh", "-c", "echo out; echo err >&2; exit 255"]) as running:
        code, out, err = running.finish(120)
        assert (code, out) == (255, "out\n")
        assert err.splitlines()[-1] == "err"
        assert list(running.temporary.iterdir()) == []
