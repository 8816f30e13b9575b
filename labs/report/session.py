"""One run for all processes of a session: the workers of pytest-xdist meet in it through a link named by its uid."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from labs.report.record import Run, append_line
from labs.store import Store, digest, file_digest

CHECKOUT = Path(__file__).resolve().parents[2]
SUFFIXES = (".py", ".toml", ".c", ".h", ".config")  # of files that decide about a verdict, besides the cell


def source_digest(root: Path = CHECKOUT) -> str:
    """Digest of the files of the lab and its suites, the same in every checkout of a commit."""
    files = [root / "conftest.py", *sorted((root / "labs").rglob("*")), *sorted((root / "suites").rglob("*"))]
    files = [path for path in files if path.suffix in SUFFIXES and "selftest" not in path.parts and path.is_file()]
    return digest([[str(path.relative_to(root)), file_digest(path)] for path in files])


def host_facts() -> dict[str, Any]:
    """This host, and the code that judges here."""
    cpuinfo = Path("/proc/cpuinfo").read_text(errors="replace")
    model = re.search(r"^model name\s*: (.*)$", cpuinfo, re.M)
    return {
        "hostname": platform.node(),
        "kernel": platform.release(),
        "cpus": os.cpu_count() or 0,
        "cpu": model[1] if model else "",
        "memory_mb": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20,
        "python": platform.python_version(),
        "test_code": source_digest(),
    }


def open_run(
    records: Path, uid: str, plan: Mapping[str, Sequence[str]], command: Sequence[str], seed: int, deselected: int
) -> Run:
    """The run's record: a new one, or for a session with a uid the one that its first worker made. `deselected` counts
    the cases that options left out of the plan."""
    host = host_facts()
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
