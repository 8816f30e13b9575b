"""The lab as a user starts it, in a process of its own, and the QEMU that it starts, seen from outside."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from labs.command import end_group
from labs.deadline import Deadline

TOP = Path(__file__).parents[2]


def parents() -> dict[int, int]:
    """Parent of each process; those that end meanwhile are left out."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            found[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    return found


def descendants(pid: int) -> set[int]:
    family = parents()
    found = {pid}
    while more := {child for child, parent in family.items() if parent in found} - found:
        found |= more
    return found - {pid}


def is_qemu(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return "qemu-system" in Path(f"/proc/{pid}/exe").readlink().name
    return False


def alive(pid: int) -> bool:
    """Whether a process still runs; one that only waits to be reaped does not."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


class Lab:
    """A `python -m ...` of the lab that runs in a session of its own, with temporary files in a folder of its own."""

    def __init__(self, process: subprocess.Popen[str], temporary: Path) -> None:
        self.process = process
        self.temporary = temporary
        self.started: set[int] = set()

    def qemu(self, seconds: float = 60) -> int:
        """Process of the one QEMU, as soon as there is one that loads a guest's root image."""
        found: list[int] = []

        def ready() -> bool:
            assert self.process.poll() is None, self.process.communicate()
            found[:] = [pid for pid in descendants(self.process.pid) if is_qemu(pid)]
            return any((folder / "console.sock").exists() for folder in self.temporary.glob("cgroup-lab-*"))

        Deadline(seconds, "QEMU starts").wait_for(lambda: ready() and bool(found))
        self.started.update(found)
        (pid,) = found
        return pid

    def finish(self, seconds: float) -> tuple[int, str, str]:
        """Exit code, standard output and standard error."""
        out, err = self.process.communicate(timeout=seconds)
        return self.process.returncode, out, err


@contextlib.contextmanager
def lab(arguments: Sequence[str]) -> Iterator[Lab]:
    """Start `python -m ARGUMENTS`; all that it started is ended with the block."""
    with tempfile.TemporaryDirectory(prefix="lt-") as name:
        process = subprocess.Popen(
            [sys.executable, "-m", *arguments],
            cwd=TOP,
            env={**os.environ, "TMPDIR": name, "NO_COLOR": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        running = Lab(process, Path(name))
        try:
            yield running
        finally:
            started = descendants(process.pid) | {pid for pid in running.started if is_qemu(pid)}
            end_group(process)
            for pid in started:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
