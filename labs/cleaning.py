"""Clean: the lab's own store entries, records, temporary folders and leftover guests, and nothing else."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import signal
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from labs.report.record import RUN_FILE
from labs.run.leftovers import is_held
from labs.store import Store, remove_tree

# What the lab calls its own, and what is in it: nobody else's folder is taken for one. A run; a proof or a sign-off; a
# search; a comparison; a judgement for git bisect.
RECORD = re.compile(
    r"(bisect-|compare-|prove-|signoff-.+-)?\d{8}T\d{6}(\.\d{6})?Z(-[0-9a-f]{4}|-[0-9a-f]{6})?|judge-[a-z0-9_]{8}"
)
BISECT_FILE = "bisect.json"
INSIDE = (RUN_FILE, BISECT_FILE, "plan.json", "compare.json", "steps")
TEMPORARY = re.compile(r"cgroup-lab-(git-)?([a-z0-9_]{8}|[0-9a-f]{6})")  # as tempfile has it; of a run of cells
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
    folders = [path for path in sorted(records.glob("*/")) if RECORD.fullmatch(path.name) and not path.is_symlink()]
    folders = [path for path in folders if any((path / name).exists() for name in INSIDE)]
    running = b"\n".join(_command_lines())  # of what works in a folder: sessions and guests are told its name
    leftovers = [path for path in folders if not is_held(path) and bytes(path.resolve()) not in running]
    caches = sorted((store.root / "ccache").glob("*"))
    for run in [*caches, *leftovers, *_stale_folders(running)]:
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


def _stale_folders(running: bytes) -> list[Path]:
    """Temporary folders of guests whose QEMU no longer runs."""
    folders = [path for path in Path(tempfile.gettempdir()).iterdir() if TEMPORARY.fullmatch(path.name)]
    return [f for f in folders if _private(f.lstat()) and str(f).encode() not in running]


def _private(status: os.stat_result) -> bool:
    """As tempfile makes a folder: of this user, and for nobody else."""
    return stat.S_ISDIR(status.st_mode) and status.st_mode & 0o777 == 0o700 and status.st_uid == os.geteuid()


def _command_lines() -> Iterator[bytes]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            yield path.read_bytes()
