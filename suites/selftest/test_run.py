"""`labs run` on the fake lab: many cells, each in a pytest of its own, one record, and what becomes of trouble."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path

import archive
import pytest
from bridge import FAIL, PASS, suite
from click.testing import CliRunner
from fake_run import Labs

from labs.__main__ import main
from labs.deadline import Deadline
from labs.report.record import Run
from labs.run.leftovers import PARENT, held, is_held, orphaned

CELLS = ["--kernel", "6.1", "--kernel", "6.12", "--kernel", "7.3"]
TWO = CELLS[:4]
THREE = f"""
def test_a(bench, judge): {PASS}
def test_b(bench, judge): {PASS}
def test_c(bench, judge): {PASS}
def test_no_cell(): assert False, "asks for no cell, and has no place in the record"
"""


def test_one_record_of_all_cells_and_one_report(tmp_path: Path) -> None:
    labs = Labs(tmp_path / "p", suite(THREE))
    ended = labs.run("test_it.py", *CELLS, "--seed", "7")
    assert ended.code == 0, ended.err
    cells = ["6.1_runc", "6.12_runc", "7.3_runc"]
    assert ended.outcomes() == {cell: dict.fromkeys("abc", "pass") for cell in cells}
    assert ended.run.seed == 7 and list(ended.run.plan) == cells
    assert sorted(labs.boots()) == sorted(cells)
    assert (labs.root / "report/junit.xml").read_text().count("<testcase") == 9
    assert (labs.root / "report/index.html").exists() and (ended.run.path / "report/junit.xml").exists()
    assert "3 of 3 cells" in ended.err and "6.1_runc: started, expected" in ended.err
    assert list((labs.root / "tmp").iterdir()) == []
    elsewhere = labs.end(labs.start("run", "--resume", str(ended.run.path), folder=tmp_path))
    assert elsewhere.code == 2 and f"the run was planned in {labs.root}" in elsewhere.err
    with held(ended.run.path):
        second = labs.run("--resume", str(ended.run.path))
        assert is_held(ended.run.path)
    assert not is_held(ended.run.path)
    assert second.code == 2 and "is being run by another process" in second.err
    again = labs.run("--resume", str(ended.run.path))
    assert again.code == 0 and len(labs.boots()) == 3  # nothing is left to do
    with (labs.root / "conftest.py").open("a") as lab:
        lab.write("# other\n")
    other = labs.run("--resume", str(ended.run.path))
    assert other.code == 2 and "the lab or its suites have changed since the run was planned" in other.err


def test_infrastructure_trouble_is_tried_again_on_a_fresh_guest_and_never_hidden(tmp_path: Path) -> None:
    """A guest that is lost in a case, once; one that never boots; a pytest that dies without a word."""
    body = f"""
def test_lost(bench, judge):
    once = Path("lost-once")
    if bench.kernel == (6, 1, 192) and not once.exists():
        once.touch()
        bench.guest.run("vanish")
    {PASS}
def test_dies(bench, judge):
    if bench.kernel == (7, 3, 4): os._exit(9)
    {PASS}
def test_last(bench, judge): {PASS}
"""
    labs = Labs(tmp_path / "p", suite(body))
    ended = labs.run("test_it.py", "--kernel", "6.1", "--kernel", "7.3", "--kernel", "5.5", "--jobs", "2")
    assert ended.code == 3, ended.err
    told = {
        cell: {one.case.split(".")[1]: (one.outcome, one.attempts, one.earlier) for one in cases}
        for cell, cases in ended.run.results().items()
    }
    assert told["6.1_runc"]["lost"] == ("pass", 2, ("error",)) and told["6.1_runc"]["last"] == ("pass", 1, ())
    assert told["5.5_runc"] == dict.fromkeys(["lost", "dies", "last"], ("error", 3, ()))
    assert told["7.3_runc"]["lost"] == ("pass", 1, ())  # had its outcome, and was not repeated
    assert told["7.3_runc"]["dies"] == ("error", 3, ("error", "error"))
    assert "it.dies: the cell's pytest ended with 9" in ended.out
    assert "pass: 6.1_runc it.lost: ok (attempt 2; before: error)" in ended.out
    assert labs.boots().count("5.5_runc") == 1  # made once; the three boots were of one session


SLOW = f"""
@pytest.mark.parametrize("n", range(4))
def test_a(bench, judge, n):
    time.sleep(0.15)
    {PASS}
"""


def test_killed_at_any_moment_it_goes_on_without_loss_or_repetition(tmp_path: Path) -> None:
    for number, lines in enumerate(random.Random(5).sample(range(8), 2)):
        labs = Labs(tmp_path / str(number), suite(SLOW))
        run = labs.kill_when(labs.start("run", "test_it.py", *TWO, "--jobs", "2"), lines)
        before = {cell: [one.outcome for one in cases] for cell, cases in Run.open(run).results().items()}
        finished = [cell for cell, outcomes in before.items() if set(outcomes) == {"pass"}]
        boots = len(labs.boots())
        (run / ".run.json.0123abcd").touch()  # as if it had been killed in the middle of writing
        ended = labs.run("--resume", str(run))
        assert ended.code == 0, ended.err
        assert [path.name for path in (labs.root / "records").iterdir()] == [run.name]
        assert {(one.outcome, one.attempts) for cases in ended.run.results().values() for one in cases} == {("pass", 1)}
        assert labs.lines() == 8
        assert not set(labs.boots()[boots:]) & set(finished)
        assert list((labs.root / "tmp").iterdir()) == [] and not (run / ".run.json.0123abcd").exists()
        assert (labs.root / "report/junit.xml").read_text().count("<testcase") == 8


def test_interrupted_it_ends_its_guests_and_says_how_to_go_on(tmp_path: Path) -> None:
    labs = Labs(tmp_path / "p", suite(SLOW))
    process = labs.start("run", "test_it.py", *TWO, "--jobs", "2")
    Deadline(60, "a result").wait_for(lambda: labs.lines() > 0)
    process.send_signal(signal.SIGTERM)
    ended = labs.end(process)
    assert ended.code == 130
    assert f"to go on: labs run --resume records/{ended.run.path.name}" in ended.err and "Traceback" not in ended.err
    assert (labs.root / "ended.txt").exists() and list((labs.root / "tmp").iterdir()) == []
    assert labs.run("--resume", f"records/{ended.run.path.name}").code == 0
    assert labs.lines() == 8


def test_what_failed_is_repeated_in_a_run_of_its_own(tmp_path: Path) -> None:
    body = f"""
def test_a(bench, judge): {PASS}
def test_b(bench, judge):
    if bench.kernel == (6, 1, 192) and not Path("mended").exists(): {FAIL}
    {PASS}
"""
    labs = Labs(tmp_path / "p", suite(body))
    first = labs.run("test_it.py", *CELLS)
    assert first.code == 1 and "fail: 6.1_runc it.b: bad" in first.out
    path = first.run.path
    (labs.root / "mended").touch()
    second = labs.run("--failed")
    assert second.code == 0 and second.run.path != path
    assert second.run.plan == {"6.1_runc": ("it.b",)} and second.run.deselected == 5
    assert Run.open(path).results()["6.1_runc"][1].outcome == "fail"
    nothing = labs.run("--failed", "test_it.py", "--kernel", "6.1")
    assert nothing.code == 2 and "nothing of this failed in records/" in nothing.err


def test_an_archive_that_moves_in_mid_run_changes_nothing(tmp_path: Path) -> None:
    """Its lists, and so what names mean, are replaced while the first cell runs, and once more before going on."""
    body = f"""
def test_a(bench, judge):
    lists = Path("store/apt/index.json")
    lists.write_text(lists.read_text().replace("6.1.192-3", "6.1.199-1").replace("7.3.4-1", "7.3.9-1"))
    if bench.booted.artifacts.found.cell.kernel == "6.12" and not Path("stop").exists():
        Path("stop").touch()
        os.kill(int(os.environ["LABS_RUN_PARENT"]), 9)
        time.sleep(5)
    {PASS}
"""
    labs = Labs(tmp_path / "p", suite(body))
    begun = labs.run("test_it.py", *CELLS, "--jobs", "1", LAB_FINDS="archive")
    assert begun.code == -signal.SIGKILL
    labs.lists([archive.package("linux-image-6.1.0-99-cloud-amd64", "6.1.199-1"), *archive.ROWS[-5:]])
    ended = labs.run("--resume", str(begun.run.path), LAB_FINDS="archive")
    assert ended.code == 0, ended.err
    versions = {cell.id: cell.artifacts()["kernel"]["version"] for cell in ended.run.cells()}
    assert versions == {"6.1_runc": "6.1.192-3", "6.12_runc": "6.12.107-1", "7.3_runc": "7.3.4-1"}
    labs.lists([row for row in archive.ROWS if row.version != "6.1.192-3"])
    later = labs.run("test_it.py", "--kernel", "6.1", LAB_FINDS="archive")
    assert later.run.cell("6.1_runc").artifacts()["kernel"]["version"] == "6.1.190-1"  # what the name means by then


def test_a_file_that_changes_in_mid_run_is_an_error_and_not_another_kernel(tmp_path: Path) -> None:
    body = f"""
def test_a(bench, judge):
    Path("bzImage").write_bytes(bytes(0x202) + b"HdrS another")
    {PASS}
"""
    labs = Labs(tmp_path / "p", suite(body))
    (labs.root / "bzImage").write_bytes(bytes(0x202) + b"HdrS one")
    kernels = ["--kernel", "6.1", "--kernel", f"path:{labs.root}/bzImage", "--jobs", "1"]
    begun = labs.run("test_it.py", *kernels, LAB_FINDS="archive")
    assert begun.code == 3, begun.err
    outcomes = {cell: set(cases.values()) for cell, cases in begun.outcomes().items()}
    assert sorted(map(sorted, outcomes.values())) == [["error"], ["pass"]]
    assert "is no longer what the run was planned with: kernel was" in begun.out


BAD = [
    (["nowhere.py"], "nowhere.py: file or directory not found: nowhere.py"),
    (["test_it.py", "-k", "nothing"], "test_it.py: no case for a cell: -k or -m left out all 3"),
    (["test_it.py", "--kernel", "9.9"], "kernel 9.9: not in the archive; nearest: 7.3.4-1"),
    (["test_it.py", "--jobs", "none"], "--jobs none: no number of jobs"),
    (["test_it.py", "--set", "smoke"], "--set without a matrix"),
    (["test_it.py", "--matrix", "m.toml"], "m.toml:2: no variant 'odd'"),
    (["test_it.py", "--matrix", "gone.toml"], "gone.toml: No such file or directory"),
    (["test_it.py", "--series", "-"], "--series -: "),
    ([], "no suite is named"),
    (["--resume", "gone"], "gone is no run of `labs run`"),
    (["--resume", "gone", "--kernel", "6.1"], "--resume goes on with what is planned"),
    (["--failed"], "records has no run of `labs run`"),
]


@pytest.mark.parametrize("argv, told", BAD, ids=[" ".join(argv) or "nothing" for argv, _ in BAD])
def test_bad_input_is_one_line_and_exit_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, argv: list[str], told: str
) -> None:
    labs = Labs(tmp_path / "p", suite(THREE))
    (labs.root / "m.toml").write_text('[axes]\nvariant = "odd"\n')
    monkeypatch.chdir(labs.root)
    for name, value in labs.environment().items():
        monkeypatch.setenv(name, value)
    ended = CliRunner().invoke(main, ["run", *argv])
    assert ended.exit_code == 2, ended.output
    assert len(ended.stderr.splitlines()) == 1 and told in ended.stderr
    assert not list((labs.root / "records").glob("2*"))


def test_a_dry_run_tells_time_and_disk_and_leaves_nothing(tmp_path: Path) -> None:
    labs = Labs(tmp_path / "p", suite(THREE))
    ended = labs.run("test_it.py", *CELLS, "--dry-run", COLUMNS="120")
    assert ended.code == 0, ended.err
    assert "3 cells, 9 cases, 0 builds: expected" in ended.out and "MB of disk" in ended.out
    assert labs.boots() == [] and not list((labs.root / "records").glob("2*"))


def test_a_pytest_whose_run_has_ended_runs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`labs run` may die before the kernel knows that this child is to die with it."""
    monkeypatch.setenv(PARENT, str(os.getppid()))
    assert not orphaned()
    monkeypatch.setenv(PARENT, str(os.getpid()))
    assert orphaned()
