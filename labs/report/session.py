"""One run for all processes of a session: the workers of pytest-xdist meet in it through a link named by its uid."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path

from labs.report.record import Run, append_line
from labs.store import Store


def open_run(
    records: Path, uid: str, plan: Mapping[str, Sequence[str]], command: Sequence[str], seed: int, deselected: int
) -> Run:
    """The run's record: a new one, or for a session with a uid the one that its first worker made. `deselected` counts
    the cases that options left out of the plan."""
    host = {"hostname": platform.node(), "kernel": platform.release(), "cpus": os.cpu_count() or 0}
    if not uid:
        return Run.create(records, plan, host, command, seed, deselected)
    link = _link(records, uid)
    with Store.of_user().lock("runs"):
        if not link.is_symlink():
            link.symlink_to(Run.create(records, plan, host, command, seed, deselected).path.name)
    return Run.open(link.resolve())


def joined_run(records: Path, uid: str) -> Run | None:
    """The run that the workers of a session made, if they got that far."""
    link = _link(records, uid)
    return Run.open(link.resolve()) if uid and link.is_symlink() else None


def close_run(records: Path, uid: str) -> None:
    """Forget the uid: the run itself stays."""
    if uid:
        _link(records, uid).unlink(missing_ok=True)


def claim(run: Run, nodeid: str) -> bool:
    """Whether a test may run: once, in one worker, whatever pytest-xdist hands out again after a worker has died."""
    path = run.path / ".claims"
    with run.locked():
        if path.exists() and nodeid in path.read_text().splitlines():
            return False
        append_line(path, f"{nodeid}\n".encode())
    return True


def _link(records: Path, uid: str) -> Path:
    return records / f".{uid}"
