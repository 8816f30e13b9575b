"""`labs run` as a user starts it, on the fake lab, in a process of its own, seen from outside."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import archive
from bridge import ROOT, Project

from labs.deadline import Deadline
from labs.report.record import Run
from labs.run.leftovers import marked
from labs.source.debian import Package, _index

LIMIT = 90.0


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str
    root: Path

    @property
    def run(self) -> Run:
        """The newest."""
        return Run.open(max((self.root / "records").glob("2*"), key=lambda run: (run / "plan.json").stat().st_mtime_ns))

    def outcomes(self) -> dict[str, dict[str, str]]:
        """Cell -> case without its module -> outcome."""
        results = self.run.results()
        return {cell: {one.case.split(".", 1)[1]: one.outcome for one in cases} for cell, cases in results.items()}


class Labs:
    """A folder with the real conftest.py and tests of our own, an archive's lists, and `labs run` in it."""

    def __init__(self, root: Path, tests: str) -> None:
        self.root = Project(root).root
        (root / "test_it.py").write_text(tests)
        (root / "tmp").mkdir()
        self.lists(archive.ROWS)

    def lists(self, packages: list[Package]) -> None:
        """What the archive offers from now on."""
        index = self.root / "store/apt/index.json"
        index.parent.mkdir(parents=True, exist_ok=True)
        index.write_bytes(_index(packages))

    def environment(self) -> dict[str, str]:
        return {
            "LABS_STORE": str(self.root / "store"),
            "PYTHONPATH": f"{ROOT}:{Path(__file__).parent}",
            "PYTEST_ADDOPTS": "-pfake_lab -pno:unraisableexception",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "TMPDIR": str(self.root / "tmp"),
        }

    def start(self, *argv: str, folder: Path | None = None, **environment: str) -> subprocess.Popen[str]:
        env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        return subprocess.Popen(
            [sys.executable, "-m", "fake_labs", *argv],
            cwd=folder or self.root, env=env | self.environment() | environment, text=True, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def end(self, process: subprocess.Popen[str]) -> Ended:
        try:
            out, err = process.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            raise AssertionError(f"labs run hangs:\n{out}{err}") from None
        return Ended(process.returncode, out, err, self.root)

    def run(self, *argv: str, **environment: str) -> Ended:
        return self.end(self.start("run", *argv, **environment))

    def kill_when(self, process: subprocess.Popen[str], lines: int) -> Path:
        """kill -9 once so many results are on record; the run's folder. Nothing that it started may live on."""
        Deadline(LIMIT, f"{lines} results").wait_for(lambda: self.lines() >= lines or process.poll() is not None)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        (run,) = (self.root / "records").glob("2*")
        Deadline(5, "all that it started ends").wait_for(lambda: not marked(run))
        return run

    def lines(self) -> int:
        """Results on record, of all runs."""
        return sum(len(path.read_bytes().splitlines()) for path in self.root.glob("records/*/*/verdicts.jsonl"))

    def boots(self) -> list[str]:
        path = self.root / "boots.txt"
        return path.read_text().splitlines() if path.exists() else []

    def tasks(self, run: Path) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (run / "tasks.jsonl").read_text().splitlines()]
