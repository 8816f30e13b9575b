"""Clean: the lab's own store entries, records, temporary folders and leftover guests, and nothing else."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

from labs.report.record import RUN_FILE
from labs.run.leftovers import is_held
from labs.store import Store, remove_tree

BISECT_FILE = "bisect.json"  # marks the folder of a search, with the records of its steps (labs/bisect/report.py)
PLAN_FILE = "plan.json"  # marks that of a proof (labs/prove) or of a sign-off (labs/signoff); runs of cells have it too
MARK = (b"-name", b"cgroup-lab")  # on every QEMU command line of the lab


def clean(store: Store, records: Path, *, dry_run: bool) -> Iterator[str]:
    """Yield a line for everything that goes (or would go). What a running lab uses stays."""
    verb = "would remove" if dry_run else "removed"
    for pid in leftover_guests():
        if not dry_run:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        yield f"{verb} guest with pid {pid}"
    for folder in store.shrink(0, dry_run=dry_run):
        yield f"{verb} {folder}"
    kept = (RUN_FILE, BISECT_FILE, PLAN_FILE) if records.is_dir() else ()
    folders = dict.fromkeys(path.parent for name in kept for path in records.glob(f"*/{name}"))
    leftovers = [folder for folder in folders if not is_held(folder)]
    caches = sorted((store.root / "ccache").glob("*"))
    for run in [*caches, *leftovers, *_stale_folders()]:
        if not dry_run:
            remove_tree(run)
        yield f"{verb} {run}"


def leftover_guests() -> list[int]:
    """Pids of this user's QEMUs with the lab's mark whose lab is gone: they were handed to pid 1."""
    found = []
    for proc in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            words = (proc / "cmdline").read_bytes().split(b"\0")
            parent = int((proc / "stat").read_text().rsplit(")", 1)[1].split()[1])
            named = any(pair == MARK for pair in itertools.pairwise(words))
            if b"qemu-system" in words[0] and named and parent == 1 and proc.stat().st_uid == os.geteuid():
                found.append(int(proc.name))
    return found


def _stale_folders() -> list[Path]:
    """Temporary folders of guests whose QEMU no longer runs."""
    running = b"\n".join(_command_lines())
    folders = Path(tempfile.gettempdir()).glob("cgroup-lab-*")
    return [f for f in folders if f.lstat().st_uid == os.geteuid() and str(f).encode() not in running]


def _command_lines() -> Iterator[bytes]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            yield path.read_bytes()
