"""The agent's tracer, on plain files that stand for cgroup files: what each write came to, and one that is held."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from labs.probe.limits import Write, read_trace

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a filter of system calls needs root, as a guest has")


class Traced:
    """A shell under the tracer, with $root for the files that count."""

    def __init__(self, program: Path, folder: Path, script: str, hold: str = "-") -> None:
        self.folder = folder
        self.root = folder / "root"
        self.root.mkdir()
        argv = [str(program), "trace", str(self.root), hold, str(folder), "/bin/sh", "-c", script]
        self.process = subprocess.Popen(argv, env={"root": str(self.root), "PATH": "/usr/bin:/bin"})

    def writes(self) -> list[tuple[str, str, int]]:
        return [(one.file, one.text, one.errno) for one in self.trace()[0]]

    def trace(self) -> tuple[tuple[Write, ...], int, int]:
        self.process.wait(20)
        return read_trace((self.folder / "trace").read_text())


def test_writes_below_the_root_are_told(program: Path, tmp_path: Path) -> None:
    script = "echo 1 > $root/a; echo 2 > $root/../b; (echo 3 > $root/a; sh -c 'echo 4 > $root/c'); exit 3"
    traced = Traced(program, tmp_path, script)
    assert traced.writes() == [("a", "1", 0), ("a", "3", 0), ("c", "4", 0)]
    assert traced.process.returncode == 3
    writes, end, code = traced.trace()
    assert code == 3
    assert all(one.start <= one.end <= end for one in writes)


def test_a_refused_write_is_told_with_its_errno(program: Path, tmp_path: Path) -> None:
    traced = Traced(program, tmp_path, "> $root/a; exec 5< $root/a; echo 1 >&5 2> /dev/null; echo 2 > $root/a")
    assert traced.writes() == [("a", "1", 9), ("a", "2", 0)]


def test_a_program_ended_by_a_signal(program: Path, tmp_path: Path) -> None:
    traced = Traced(program, tmp_path, "kill -TERM $$")
    assert traced.trace()[2] == 128 + 15


def test_a_write_is_held_and_others_go_on(program: Path, tmp_path: Path) -> None:
    traced = Traced(program, tmp_path, "echo 1 > $root/b; (echo 2 > $root/a)& echo 3 > $root/b; wait", hold="a")
    until(lambda: (tmp_path / "held").exists() and (traced.root / "b").read_text() == "3\n")
    time.sleep(0.2)
    assert (traced.root / "a").read_text() == ""
    assert traced.process.poll() is None
    (tmp_path / "release").touch()
    assert sorted(traced.writes()) == [("a", "2", 0), ("b", "1", 0), ("b", "3", 0)]
    assert (traced.root / "a").read_text() == "2\n"


def until(true: Callable[[], bool]) -> None:
    limit = time.monotonic() + 20
    while not true():
        assert time.monotonic() < limit
        time.sleep(0.02)


CUT = ("write 1 2 0 x61 x62", "end 1", "wrote 1 2 0 x61 x62\nend 1 0", "write 1 2\nend 1 0", "")


@pytest.mark.parametrize("text", CUT)
def test_a_trace_that_is_cut_short_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        read_trace(text)


def test_tell_reads_first_lines(program: Path, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("max 100000\nmore\n")
    argv = [str(program), "tell", "0", str(tmp_path / "a"), str(tmp_path / "none")]
    told = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=True).stdout
    assert told == f"{tmp_path}/a\tmax 100000\n{tmp_path}/none\t\n"


def test_tell_as_the_first_process_of_a_container(program: Path, tmp_path: Path) -> None:
    """It has the number 1 there, as the agent that measures has it as the first process of a guest."""
    (tmp_path / "a").write_text("max 100000\n")
    argv = ["unshare", "-Urpf", str(program), "tell", "0", str(tmp_path / "a")]
    told = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=True).stdout
    assert told == f"{tmp_path}/a\tmax 100000\n"
