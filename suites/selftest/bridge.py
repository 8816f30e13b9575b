"""Whole pytest sessions with the real conftest.py on the fake lab, each in a process of its own."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import sys
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

from labs.deadline import Deadline
from labs.report.record import CaseResult, Run

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 60.0  # seconds for one session; each takes about one
# A server that has the slow imports done and forks: a session starts in a tenth of a second instead of one.
FORK = multiprocessing.get_context("forkserver")
FORK.set_forkserver_preload(["labs.prepare", "labs.casebook", "labs.report.html", "labs.report.junit"])


def _main(root: Path, argv: list[str]) -> None:
    log = os.open(root / "log.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
    os.chdir(root)
    for name in [name for name in os.environ if name.startswith("PYTEST_")]:
        del os.environ[name]
    os.environ["LABS_STORE"] = str(root / "store")
    os.environ["PYTHONPATH"] = f"{ROOT}:{Path(__file__).parent}"  # for the workers of pytest-xdist
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # whatever else is installed here takes its time and its say
    # unraisableexception collects garbage five times at the end, to find what was not awaited: half of a session's time
    plugins = ["fake_lab", "no:cacheprovider", "no:unraisableexception", *(["xdist.plugin"] if "-n" in argv else [])]
    code = int(pytest.main([*(f"-p{name}" for name in plugins), "--rootdir", str(root), *argv]))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


HEAD = """
import os, time
from pathlib import Path
import pytest
from labs.errors import BadInput, DeadlineExpired, GuestLost, KernelFailed, LabError
from labs.invariant.verdict import Verdict
from labs.probe.register import Absent
"""


def suite(body: str) -> str:
    return HEAD + body


PASS = 'judge(Verdict("x", "pass", "ok"))'
FAIL = 'judge(Verdict("x", "fail", "bad"))'


@dataclass(frozen=True)
class Session:
    """A session that has ended, and what it left on disk."""

    root: Path
    code: int
    text: str  # what it printed

    @property
    def run(self) -> Run:
        (path,) = (self.root / "records").iterdir()
        return Run.open(path)

    def outcomes(self) -> dict[str, dict[str, str]]:
        """Cell -> case without its module -> outcome, as run.json has them."""
        row: dict[str, Any] = json.loads((self.run.path / "run.json").read_bytes())
        return {cell: {_short(case): what for case, what in cases.items()} for cell, cases in row["outcomes"].items()}

    def result(self, case: str, cell: str = "6.1_runc") -> CaseResult:
        (found,) = [result for result in self.run.results()[cell] if _short(result.case) == case]
        return found

    def pytest_outcomes(self) -> dict[str, str]:
        """Name of each test -> what pytest's own JUnit file says of it."""
        root = ET.parse(self.root / "own.xml").getroot()
        return {case.attrib["name"]: _element(case) for case in root.iter("testcase")}

    def junit(self) -> list[tuple[str, str, str]]:
        """(cell, case, element) of every case in the lab's JUnit file."""
        return [(c.attrib["classname"], c.attrib["name"], _element(c)) for c in self.junit_cases()]

    def junit_cases(self) -> list[ET.Element]:
        return list(ET.parse(self.root / "report/junit.xml").getroot().iter("testcase"))


def _short(case: str) -> str:
    return case.split(".", 1)[1]


def _element(case: ET.Element) -> str:
    return " ".join(child.tag for child in case if child.tag in ("failure", "error", "skipped")) or "case"


class Project:
    """A folder with the real conftest.py and tests of our own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(exist_ok=True)
        shutil.copy(ROOT / "conftest.py", root / "conftest.py")

    def start(self, tests: str, *argv: str) -> BaseProcess:
        (self.root / "test_it.py").write_text(tests)
        process = FORK.Process(target=_main, args=(self.root, [*argv, "--junitxml=own.xml", "test_it.py"]))
        process.start()
        return process

    def end(self, process: BaseProcess) -> Session:
        process.join(LIMIT)
        code = process.exitcode
        process.kill()
        assert code is not None, f"the session hangs:\n{self.text}"
        return Session(self.root, code, self.text)

    def run(self, tests: str, *argv: str) -> Session:
        return self.end(self.start(tests, *argv))

    @property
    def text(self) -> str:
        return (self.root / "log.txt").read_text()

    def wait_for(self, name: str) -> None:
        """Until a test has made that file."""
        Deadline(LIMIT, name).wait_for((self.root / name).exists)
