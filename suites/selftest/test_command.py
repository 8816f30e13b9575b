"""The one door to processes: codes, streams, deadlines and kills that leave nothing running."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from labs import command
from labs.command import end_group, run, spawn, which
from labs.deadline import Deadline
from labs.errors import CommandFailed, DeadlineExpired, MissingProgram

ROOT = Path(__file__).resolve().parents[2]
MIB = 2**20


def soon() -> Deadline:
    return Deadline(20, "the test")


def alive(pid: int) -> bool:
    """Whether a process runs; one that waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_gone(*pids: int) -> None:
    Deadline(30, f"the end of {pids}").wait_for(lambda: not any(alive(pid) for pid in pids))


def pids_in(path: Path, count: int) -> list[int]:
    """The pids that processes wrote into a file, once all are there."""
    Deadline(10, "pids").wait_for(lambda: path.exists() and len(path.read_text().split()) == count)
    return [int(word) for word in path.read_text().split()]


def test_code_and_streams() -> None:
    done = run(["sh", "-c", "echo out; echo err >&2; exit 3"], soon(), expect=(3,))
    assert (done.argv[0], done.code, done.out, done.err) == ("sh", 3, "out\n", "err\n")


@pytest.mark.parametrize("code, expect", [(0, (0,)), (1, (0, 1)), (255, None)])
def test_codes_that_are_expected(code: int, expect: tuple[int, ...] | None) -> None:
    assert run(["sh", "-c", f"exit {code}"], soon(), expect=expect).code == code


@pytest.mark.parametrize(
    "script, said",
    [
        ("echo first >&2; echo 'E: the cause' >&2; echo >&2; exit 100", "sh ended with 100: E: the cause"),
        ("exit 1", "sh ended with 1: (no message)"),
        ("kill -9 $$", "sh ended with -9: (no message)"),
        ("printf '\\377 odd bytes' >&2; exit 2", "sh ended with 2: \ufffd odd bytes"),
    ],
)
def test_a_code_that_is_not_expected_is_told_with_its_last_words(script: str, said: str) -> None:
    with pytest.raises(CommandFailed, match=f"^{re.escape(said)}$") as caught:
        run(["sh", "-c", script], soon())
    assert said.split(": ", 1)[1] in caught.value.evidence + "(no message)"


@pytest.mark.parametrize("program, package", [("mke2fs", "e2fsprogs"), ("qemu-system-x86_64", "qemu-system-x86")])
def test_a_missing_program_names_its_package(monkeypatch: pytest.MonkeyPatch, program: str, package: str) -> None:
    monkeypatch.setenv("PATH", "/no/such")
    monkeypatch.setattr(command, "SBIN", "/no/such")
    with pytest.raises(MissingProgram, match=f"{program} is not installed; apt-get install {package}$"):
        run([program], soon())
    with pytest.raises(MissingProgram, match="apt-get install no-such-tool"):
        which("no-such-tool")


def test_programs_of_the_administrator_are_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr(command, "SBIN", str(tmp_path))
    (tmp_path / "mkthing").write_text("#!/bin/sh\necho made\n")
    (tmp_path / "mkthing").chmod(0o755)
    assert run(["mkthing"], soon()).out == "made\n"


def test_the_environment() -> None:
    done = run(["sh", "-c", "echo $LC_ALL $EXTRA; pwd"], soon(), env={"EXTRA": "x"}, cwd=Path("/usr"))
    assert done.out == "C.UTF-8 x\n/usr\n"


def test_both_streams_large_at_once() -> None:
    script = f"head -c {3 * MIB} /dev/zero >&2; head -c {3 * MIB} /dev/zero; head -c {3 * MIB} /dev/zero >&2"
    done = run(["sh", "-c", script], soon())
    assert (len(done.out), len(done.err)) == (3 * MIB, 6 * MIB)


@pytest.mark.parametrize("argv, size", [(["cat"], 5 * MIB), (["true"], 0)], ids=["read", "not read"])
def test_large_input(argv: list[str], size: int) -> None:
    assert len(run(argv, soon(), stdin=b"x" * 5 * MIB).out) == size


def test_output_to_a_file(tmp_path: Path) -> None:
    done = run(["sh", "-c", "printf '\\000\\377'; echo err >&2"], soon(), stdout=tmp_path / "out")
    assert (done.out, done.err, (tmp_path / "out").read_bytes()) == ("", "err\n", b"\x00\xff")


# Ends


FAMILY = "echo $$ > pids; echo begun >&2; sh -c 'echo $$ >> pids; sleep 60; true' & sleep 60"


def test_the_deadline_ends_the_whole_family(tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(DeadlineExpired, match="the work: sh not done after 0 s") as caught:
        run(["sh", "-c", FAMILY], Deadline(0.4, "the work"), cwd=tmp_path)
    assert time.monotonic() - began < 2
    assert caught.value.evidence == "begun\n"
    wait_gone(*pids_in(tmp_path / "pids", 2))


def test_the_deadline_holds_against_a_flood() -> None:
    began = time.monotonic()
    with pytest.raises(DeadlineExpired):
        run(["sh", "-c", "yes & yes >&2"], Deadline(0.3, "it"), stdout=Path("/dev/null"))
    assert time.monotonic() - began < 3


def test_a_child_that_outlives_its_parent_is_ended_too(tmp_path: Path) -> None:
    """A daemon that keeps the streams open must not keep the lab."""
    with pytest.raises(DeadlineExpired):
        run(["sh", "-c", "sh -c 'echo $$ > pids; sleep 60; true' & exit 0"], Deadline(0.4, "it"), cwd=tmp_path)
    wait_gone(*pids_in(tmp_path / "pids", 1))


def test_only_what_is_left_of_a_deadline_may_be_used() -> None:
    deadline = Deadline(0.8, "several things")
    began = time.monotonic()
    run(["sleep", "0.5"], deadline)
    with pytest.raises(DeadlineExpired):
        run(["sleep", "60"], deadline)
    assert time.monotonic() - began < 1.7


INTERRUPTED = """
import sys
from pathlib import Path
from labs.command import run
from labs.deadline import Deadline
run(["sh", "-c", sys.argv[1]], Deadline(60, "it"), cwd=Path(sys.argv[2]))
"""
SPAWNER = """
import sys, time
from pathlib import Path
from labs.command import spawn
spawn(["sh", "-c", "echo $$ > pids; exec sleep 60"], log=Path("log"), cwd=Path(sys.argv[1]))
time.sleep(60)
"""


def lab(script: str, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        cwd=arguments[-1],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.DEVNULL,
    )


def test_ctrl_c_ends_the_family(tmp_path: Path) -> None:
    with lab(INTERRUPTED, FAMILY, str(tmp_path)) as process:
        pids = pids_in(tmp_path / "pids", 2)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) != 0
    wait_gone(*pids)


def test_a_spawned_child_dies_with_a_killed_lab(tmp_path: Path) -> None:
    with lab(SPAWNER, str(tmp_path)) as process:
        pids = pids_in(tmp_path / "pids", 1)
        assert alive(pids[0])
        process.kill()
        process.wait(30)
    wait_gone(*pids)


def test_a_spawned_child_writes_its_log_and_ends_with_its_family(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("before\n")
    process = spawn(["sh", "-c", FAMILY], log=tmp_path / "log", cwd=tmp_path)
    pids = pids_in(tmp_path / "pids", 2)
    assert pids[0] == process.pid
    end_group(process)
    end_group(process)
    wait_gone(*pids)
    assert process.returncode == -signal.SIGKILL
    assert (tmp_path / "log").read_text() == "before\nbegun\n"


def test_a_spawned_child_does_not_take_the_labs_input(tmp_path: Path) -> None:
    ours, (read_end, write_end) = os.dup(0), os.pipe()
    os.dup2(read_end, 0)
    try:
        process = spawn(["cat"], log=tmp_path / "log")
        assert process.wait(5) == 0
    finally:
        os.dup2(ours, 0)
        for end in (ours, read_end, write_end):
            os.close(end)


TIDY = "trap 'sleep 0.2; echo tidy > tidied; exit' INT; touch begun; while :; do sleep 0.05; done"


@pytest.mark.parametrize(
    "script, grace, tidied", [(TIDY, 10, True), (TIDY, 0, False), ("trap '' INT; yes", 0.5, False)]
)
def test_a_program_with_a_grace_ends_what_it_started(tmp_path: Path, script: str, grace: float, tidied: bool) -> None:
    began = time.monotonic()
    with pytest.raises(DeadlineExpired):
        run(["sh", "-c", script], Deadline(1.0, "it"), cwd=tmp_path, grace=grace)
    assert (tmp_path / "tidied").exists() == tidied
    assert time.monotonic() - began < 30  # `yes` fills a pipe that a busy host empties slowly
