"""What a person types and the lab cannot do: one line, the exit code of its kind, before anything boots."""

from __future__ import annotations

import errno
import importlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import archive as small
import pytest
from bridge import PASS, ROOT, Project, suite
from click.testing import CliRunner, Result

import labs.bisect.judge as judging
import labs.signoff.command as signing
from labs import cleaning, doctor, start
from labs.__main__ import main
from labs.bisect.guests import Guests
from labs.child import Case, _cases
from labs.report.record import CaseResult, Run
from labs.run import begin
from labs.run.collect import Collected
from labs.signoff import capsule
from labs.source.debian import _index

SERIES = str(ROOT / "patches/kernel/cpu-max-atomic")
TEST = "suites/cgroup_atomicity/test_quiet.py::quiet_kernel"
Typed = Callable[..., Result]


@pytest.fixture
def typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Typed:
    """`labs` in a folder of its own, with the lists of a small archive; whatever boots ends the test."""
    for name in ("suites", "patches", "ci", "conftest.py", "pyproject.toml"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "file").write_text("a file\n")
    (tmp_path / "store/apt").mkdir(parents=True)
    (tmp_path / "store/apt/index.json").write_bytes(
        _index([*small.ROWS, small.package("linux-source-6.1", "6.1.192-3")])
    )
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/qemu-system-x86_64").write_text("#!/bin/sh\nexit 9\n")
    (tmp_path / "bin/qemu-system-x86_64").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setenv("LABS_STORE", str(tmp_path / "store"))
    monkeypatch.chdir(tmp_path)
    return lambda *words: CliRunner().invoke(main, list(words))


def refused(done: Result, code: int, said: str = "") -> None:
    """One line on standard error, and nothing else."""
    assert done.exit_code == code and isinstance(done.exception, SystemExit), done.output
    assert len(done.stderr.splitlines()) == 1 and said in done.stderr, done.stderr


@pytest.mark.parametrize(
    "error, code, said",
    [
        (OSError(errno.ENOSPC, "No space left on device", "x"), 3, "labs: x: No space left on device\n"),
        (PermissionError(errno.EACCES, "Permission denied", "x"), 2, "labs: x: Permission denied\n"),
        (ValueError("odd\nthing"), 3, "labs: ValueError: odd thing; with LABS_TRACEBACK=1 it is told where\n"),
    ],
)
def test_what_nobody_foresaw_is_one_line(
    error: Exception, code: int, said: str, typed: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr(doctor, "examine", fails)
    done = typed("doctor")
    assert (done.exit_code, done.stderr) == (code, said)
    monkeypatch.setenv("LABS_TRACEBACK", "1")
    assert "in fails\n" in typed("doctor").stderr

    monkeypatch.setattr(judging, "find_case", fails)
    assert typed("judge", TEST).exit_code == 255


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_what_cannot_be_printed_is_no_success(unbuffered: str) -> None:
    env = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with open("/dev/full", "w") as full:
        argv = [sys.executable, "-m", "labs", "cells"]
        done = subprocess.run(argv, env=env, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (3, "labs: No space left on device\n")


def test_a_judgement_that_is_lost_is_none(typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Guests, name: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(judging, "find_case", lambda test, cell: Case(test, cell.id, "x.y"))
    monkeypatch.setattr(Guests, "__call__", full)
    refused(typed("judge", TEST), 255, "No space left")
    for place in ("file", "file/x", "/proc/x"):
        refused(typed("judge", TEST, "--record", place), 255, "name another folder with --record")


def test_a_case_is_only_what_has_the_cell(typed: Typed) -> None:
    refused(typed("judge", "::quiet_kernel"), 255, "::quiet_kernel: no such test")
    lines = ["suites/selftest/test_x.py::test_y[--cell 6.1_runc]", "suites/a/test_b.py::test_c[6.1_runc-d]", "6.1_runc"]
    assert [case.name for case in _cases(lines, "6.1_runc")] == ["b.c[d]"]


REFUSED = [
    ("build --kernel path:/bin/ls", 2, "kernel path:/bin/ls: no x86 kernel image"),
    ("build --runtime path:/etc/passwd", 2, "runtime path:/etc/passwd: no program"),
    (f"series check {SERIES} --runtime foo", 2, "runtime foo: not in the archive"),
    ("series check /dev/null", 2, "/dev/null: neither a file nor a folder"),
    ("boot --gdb 5555 --ssh root@192.0.2.7", 2, "--gdb: provider ssh has no QEMU"),
    ("boot 6.1_runc_vagrant --qemu-args", 2, "--qemu-args: provider vagrant has no QEMU"),
    ("boot 6.1_runc_ssh", 2, "provider ssh: no machine is named"),
    ("capsule 6.1_runc -o cell.tar --test nope", 2, "nope: no test in cell 6.1_runc"),
    ("promises --recorded /nope", 2, "/nope: no recorded outcomes"),
    ("compare a b --bound 3", 2, "'3' is no part; write it as 5%"),
    ("build --colour", 2, "No such option '--colour'. (see main build --help)"),
    ("signoff", 2, "Missing option '--series'"),
    (f"signoff --series {SERIES} --sign file", 2, "file: no such key"),
    (f"signoff --series {SERIES} --proof proof", 2, "proof: has no plan.json"),
]


@pytest.mark.parametrize("words, code, said", REFUSED, ids=[words for words, *_ in REFUSED])
def test_what_is_not_there_is_refused_before_anything_is_made(words: str, code: int, said: str, typed: Typed) -> None:
    Path("proof").mkdir()
    Path("proof/prove.json").write_text('{"defects": []}')
    refused(typed(*words.split()), code, said)
    assert not Path("records").exists() and not Path("cell.tar").exists()


@pytest.mark.parametrize("damage", ["{}", "5", "[]"])
@pytest.mark.parametrize("file", ["verdicts.jsonl", "cell.json"])
def test_damaged_records(file: str, damage: str, typed: Typed) -> None:
    run = Run.create(Path("records"), {"6.1_runc": ["a"]}, {}, ["pytest"], 1)
    run.cell("6.1_runc").add(CaseResult("a", "pass"))
    damage = "" if (file, damage) == ("cell.json", "{}") else damage
    with (run.path / "6.1_runc" / file).open("a") as record:
        record.write(f"{damage}\n")
    for words in (f"diff {run.path} {run.path}", "summary", "history", f"summary {run.path}"):
        refused(typed(*words.split()), 2, f"{run.path}/6.1_runc/{file}".removeprefix("records/"))
    assert typed("index").exit_code == 0


def test_a_run_in_a_folder_whose_name_is_no_text(typed: Typed) -> None:
    run = Run.create(Path("records"), {"6.1_runc": ["a"]}, {}, ["pytest"], 1)
    (run.path / "report").mkdir()
    (run.path / "report/index.html").touch()
    os.rename(run.path, b"records/caf\xe9")
    assert typed("index").exit_code == 0
    assert 'href="caf%E9/report/index.html"' in Path("records/index.html").read_text()


CLOSED = "/closed/x"
INTO = [f"series check {CLOSED}", f"cells --series {CLOSED}", f"build --kernel path:{CLOSED}", f"summary {CLOSED}",
        f"build --runtime path:{CLOSED}", f"verify {CLOSED}", f"promises --recorded {CLOSED}"]  # fmt: skip


@pytest.mark.parametrize("words", INTO)
def test_a_folder_that_this_user_may_not_enter(words: str, typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.stat

    def stat(path: object, *more: Any, **named: Any) -> os.stat_result:
        if str(path).startswith("/closed"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real(path, *more, **named)  # type: ignore[call-overload]

    monkeypatch.setattr(os, "stat", stat)  # as another user's folder answers; root may enter all
    refused(typed(*words.split()), 2, f"{CLOSED}")


@pytest.mark.parametrize("command, code", [("judge", 255), ("bisect", 2)])
def test_a_signature_that_is_no_expression(command: str, code: int, typed: Typed) -> None:
    done = typed(command, "--signature", "(", TEST)
    assert done.exit_code == code and "missing ), unterminated" in done.stderr


@pytest.mark.parametrize(
    "words, option",
    [
        ("run suites/cgroup_atomicity --dry-run --record", "--record"),
        ("run suites/cgroup_atomicity --report", "--report"),
        (f"bisect --good 6.1.190-1 --bad 7.3.4-1 {TEST} --record", "--record"),
        (f"signoff --series {SERIES} --record", "--record"),
        (f"signoff --series {SERIES} -o", "-o"),
        ("replay capsule --record", "--record"),
        ("capsule 6.1_runc -o", "-o"),
    ],
)
def test_where_nothing_can_be_kept(words: str, option: str, typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(begin.draft, "__defaults__", (lambda *_: Collected({"6.1_runc": ("x",)}, 0, frozenset()),))
    monkeypatch.setattr(capsule, "unpack", lambda *_: None)
    for place in ("file", "file/x", "/proc/x"):
        refused(typed(*words.split(), place if "capsule 6" not in words else f"{place}/y"), 2, f"folder with {option}")


@pytest.mark.parametrize("option, workers", [("--record", ()), ("--report", ()), ("--record", ("-n", "1"))])
def test_pytest_where_nothing_can_be_kept(option: str, workers: Sequence[str], project: Project) -> None:
    (project.root / "file").touch()
    done = project.run(suite(f"def test_a(bench, judge): {PASS}"), option, "file", *workers)
    assert done.code == 4 and f"file cannot be used: File exists; name another folder with {option}" in done.text
    assert "INTERNALERROR" not in done.text and not (project.root / "boots.txt").exists()


@pytest.mark.parametrize("words, said", [("suites/cgroup_atomicity --kernel 9.9", "kernel 9.9: "), ("nope", "nope: ")])
def test_a_proof_of_nothing_makes_no_record(words: str, said: str, typed: Typed) -> None:
    refused(typed("prove", *words.split()), 2, said)
    assert not Path("records").exists()


MINE = (
    "svc/run.json",
    "myproj/plan.json",
    "20260101T000000Z-aaaaaa/notes",
    "prove-it/plan.json",
    "judge-mental/steps/x",
)
LABS = (
    "20260101T000000Z-aaaaab/run.json",
    "bisect-20260101T000000.123456Z/bisect.json",
    "compare-20260101T000000.123456Z/compare.json",
    "judge-mrefwo9_/steps/001-6.1/pytest.log",
    "prove-20260101T000000.123456Z/plan.json",
    "signoff-cpu-max-atomic-20260101T000000Z-0a1b/plan.json",
)
USED = "prove-20260101T000000.654321Z/plan.json"  # by a session that runs
PRIVATE = (("cgroup-lab-notes", 0o700), ("cgroup-lab-projects", 0o755), ("cgroup-lab-abcdefg_", 0o700))


def test_clean_removes_what_is_the_labs_and_nothing_else(
    typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (*MINE, *LABS, USED):
        (tmp_path / "home" / name).parent.mkdir(parents=True)
        (tmp_path / "home" / name).write_text("{}")
    (tmp_path / "home/20260101T000000Z-aaaaac").symlink_to(tmp_path / "home/svc")
    for name, mode in PRIVATE:
        (tmp_path / "tmp" / name).mkdir(parents=True)
        (tmp_path / "tmp" / name).chmod(mode)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.setattr(cleaning, "leftover_guests", lambda: [])
    sleeps = [
        sys.executable,
        "-c",
        "import time; print(flush=True); time.sleep(60)",
        str((tmp_path / "home" / USED).parent / "boots/001"),
    ]
    with subprocess.Popen(sleeps, stdout=subprocess.PIPE) as session:
        assert session.stdout and session.stdout.readline()  # it has its words only once it runs
        told = typed("clean", "--record", "home", "--dry-run").stdout.splitlines()
        done = typed("clean", "--record", "home")
        session.kill()
    assert (
        done.exit_code == 0 and [line.replace("would remove", "removed") for line in told] == done.stdout.splitlines()
    )
    assert len(told) == len(LABS) + 1
    kept = {path.name for path in (*(tmp_path / "home").iterdir(), *(tmp_path / "tmp").iterdir())}
    mine = {name.partition("/")[0] for name in (*MINE, USED)}
    assert kept == mine | {"20260101T000000Z-aaaaac", "cgroup-lab-notes", "cgroup-lab-projects"}


@pytest.mark.parametrize("words", ["history --flaky", "history --json", "summary", "clean --record", "index --record"])
def test_a_folder_of_records_that_is_not_there(words: str, typed: Typed) -> None:
    refused(typed(*words.split(), "/nope"), 2, "/nope")


def test_equal_file_names_in_two_suites_are_collected_together() -> None:
    files = ["suites/selftest/test_convoy.py", "suites/latency/test_convoy.py"]
    words = [sys.executable, "-m", "pytest", "--collect-only", "-q", *files]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and all(f"{file}::" in done.stdout for file in files), done.stdout


def test_an_interrupt_while_modules_load(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(importlib, "import_module", interrupted)
    with pytest.raises(SystemExit) as ended:
        start.main()
    assert (ended.value.code, capsys.readouterr().err) == (130, "labs: interrupted\n")


def test_a_decision_is_told_also_where_its_copy_fails(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    made = {"decision": "not proven", "series": {"name": "x"}, "reasons": [], "notes": [], "trailers": ["Tested: no"]}

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(signing.cells, "run", lambda *_: None)
    monkeypatch.setattr(signing, "copy_patches", lambda plan, *_: plan)
    monkeypatch.setattr(signing, "write", lambda folder: made)
    monkeypatch.setattr(signing, "copy", full)
    done = typed("signoff", "--series", SERIES, "-o", "out")
    assert done.exit_code == 3 and done.stdout.splitlines()[0] == "not proven: x" and "Tested: no" in done.stdout
    assert done.stderr.splitlines()[-1] == "labs: No space left on device"
