"""What a run that was killed may have left: processes, its folder for temporary files, half-written drafts."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

from labs.deadline import Deadline
from labs.errors import BadInput, LabError
from labs.run.plan import PLAN_FILE
from labs.store import remove_tree

MARK = "LABS_RUN"  # in the environment of all that a run starts: the run's folder
PARENT = "LABS_RUN_PARENT"  # and the process of `labs run`, without which none of them may go on
DRAFT = re.compile(r"\..+\.[0-9a-f]{8}")  # a file that replace_file or link_console had not yet put in place


@contextlib.contextmanager
def held(run: Path) -> Iterator[None]:
    """Hold a run: only one `labs run` drives it; the kernel lets go when that dies."""
    with (run / PLAN_FILE).open("rb") as plan:
        try:
            fcntl.flock(plan, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BadInput(f"{run} is being run by another process", mend="wait for it, or end it") from None
        yield


def is_held(run: Path) -> bool:
    """Whether a `labs run` drives the run just now."""
    try:
        with held(run):
            return False
    except BadInput:
        return True
    except FileNotFoundError:  # a run of one pytest session
        return False


def scratch(run: Path) -> Path:
    """The folder for temporary files of a run: short, as it holds sockets; the run's name tells it."""
    return Path(tempfile.gettempdir()) / f"cgroup-lab-{run.name.rpartition('-')[2]}"


def make_scratch(run: Path) -> Path:
    """That folder, made for this user alone."""
    path = scratch(run)
    path.mkdir(mode=0o700, exist_ok=True)
    if path.stat().st_uid != os.geteuid():
        raise LabError(f"{path} belongs to someone else", mend="set TMPDIR")
    return path


def clear(run: Path) -> None:
    """End what a killed run has left, and remove it; the caller holds the run, so that nothing of it is in use."""
    deadline = Deadline(20, f"ending what is left of {run}")
    while left := marked(run):
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        deadline.check()
        with contextlib.suppress(LabError):
            Deadline(1, "end").wait_for(lambda: not marked(run))
    remove_tree(scratch(run))
    for path in run.rglob(".*"):
        if DRAFT.fullmatch(path.name):
            path.unlink(missing_ok=True)


def marked(run: Path) -> list[int]:
    """Processes of this user, but not this one, that the run has started."""
    mark = f"{MARK}={run.resolve()}".encode()
    found = []
    for proc in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            mine = proc.stat().st_uid == os.geteuid() and int(proc.name) != os.getpid()
            if mine and mark in (proc / "environ").read_bytes().split(b"\0"):
                found.append(int(proc.name))
    return found


def orphaned() -> bool:
    """Whether this process is part of a run whose `labs run` is gone: it died before it could take this one along."""
    parent = os.environ.get(PARENT, "")
    return bool(parent) and os.getppid() != int(parent)
