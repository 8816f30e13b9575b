"""The record: nothing is lost, nothing is overwritten, a kill at any moment leaves it readable."""

from __future__ import annotations

import json
import secrets
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from labs.command import run as run_command
from labs.deadline import Deadline
from labs.errors import BadInput, LabError
from labs.invariant.verdict import Step, Verdict
from labs.report.record import CaseResult, Run, replace_file
from labs.report.table import table, verdict_rows

ROOT = Path(__file__).resolve().parents[2]
PLAN = {"6.1_runc": ["torn", "stale", "latency"], "6.12_crun": ["torn"]}
KILLED = -signal.SIGKILL

APPEND = """
import sys
from pathlib import Path
from labs.report.record import CaseResult, Run
cell = Run.open(Path(sys.argv[1])).cell("6.1_runc")
for number in range(20):
    cell.add(CaseResult(f"{sys.argv[2]}-{number}", "pass", reason="x" * 5000))
"""
# Dies in the middle of the write, with the lock held, as a worker does that is killed or out of memory.
DIE_APPENDING = """
import os, signal, sys
from pathlib import Path
from labs.report.record import CaseResult, Run
cell = Run.open(Path(sys.argv[1])).cell("6.1_runc")
cell.add(CaseResult("torn", "pass"))
write = os.write
def half(descriptor, data):
    write(descriptor, data[: len(data) // 2])
    os.kill(os.getpid(), signal.SIGKILL)
os.write = half
cell.add(CaseResult("stale", "pass"))
"""
DIE_REPLACING = """
import os, signal, sys
from pathlib import Path
from labs.report.record import CaseResult, Run
cell = Run.open(Path(sys.argv[1])).cell("6.1_runc")
os.replace = lambda *names: os.kill(os.getpid(), signal.SIGKILL)
cell.add(CaseResult("torn", "pass"))
"""


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.create(tmp_path, PLAN, {"accelerator": "tcg"}, ["pytest", "suites"], 7)


def outcomes(run: Run, cell: str = "6.1_runc") -> dict[str, str]:
    return {result.case: result.outcome for result in Run.open(run.path).results()[cell]}


def written_outcomes(run: Run) -> dict[str, dict[str, str]]:
    row: dict[str, dict[str, dict[str, str]]] = json.loads((run.path / "run.json").read_text())
    return row["outcomes"]


def child(script: str, *arguments: str, expect: int = 0) -> None:
    argv = [sys.executable, "-c", script, *arguments]
    run_command(argv, Deadline(60, "child"), env={"PYTHONPATH": str(ROOT)}, expect=(expect,))


def test_every_planned_case_is_born_not_run(run: Run) -> None:
    assert outcomes(run) == dict.fromkeys(PLAN["6.1_runc"], "not-run")
    assert written_outcomes(run) == {cell: dict.fromkeys(cases, "not-run") for cell, cases in PLAN.items()}


def test_open_gives_back_what_create_was_told(run: Run) -> None:
    assert Run.open(run.path) == run


def test_a_result_reads_back_whole(run: Run) -> None:
    steps = (Step("w0", "write cpu.max", "1 2", 0, 1500, "first"), Step("r1", "read cpu.max", "\udcff", 10, 20))
    figures = {"p50 us": float(np.float32(0.5)), "n": np.int64(3)}
    verdict = Verdict("torn", "fail", "why", {"operations": 3}, figures, steps, "\x1b[31m", "")  # type: ignore[arg-type]
    result = CaseResult("torn", "fail", verdict, 1.5, "why", 2, "2026-01-01T00:00:00+00:00", ("histories/a.npz",))
    run.cell("6.1_runc").add(result)
    assert run.cell("6.1_runc").results()[0] == result
    assert written_outcomes(run)["6.1_runc"] == {"torn": "fail", "stale": "not-run", "latency": "not-run"}


def test_a_result_without_a_plan_is_kept(run: Run) -> None:
    run.cell("6.1_runc").add(CaseResult("surprise", "fail"))
    run.cell("other").add(CaseResult("torn", "error"))
    assert outcomes(run)["surprise"] == "fail"
    assert outcomes(run, "other") == {"torn": "error"}


def test_the_last_of_several_reports_decides_and_none_is_lost(run: Run) -> None:
    cell = run.cell("6.1_runc")
    cell.add(CaseResult("torn", "error", reason="worker lost"))
    cell.add(CaseResult("torn", "fail"))
    cell.add(CaseResult("torn", "pass", attempts=2))
    (torn,) = [result for result in cell.results() if result.case == "torn"]
    assert (torn.outcome, torn.attempts, torn.earlier) == ("pass", 4, ("error", "fail"))
    assert len(cell.results()) == len(PLAN["6.1_runc"])
    assert "attempt 4; before: error, fail" in verdict_rows(run)[0].reason


def test_creators_at_the_same_moment_get_folders_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = iter(["same"] * 8 + [f"t{number}" for number in range(200)])
    real = secrets.token_hex
    monkeypatch.setattr(secrets, "token_hex", lambda size: next(tokens) if size == 3 else real(size))
    with ThreadPoolExecutor(8) as pool:
        runs = list(pool.map(lambda seed: Run.create(tmp_path, PLAN, {}, [], seed), range(8)))
    assert len({run.path for run in runs}) == 8
    assert [Run.open(run.path).seed for run in runs] == list(range(8))


def test_processes_append_to_one_cell_at_the_same_time(run: Run) -> None:
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda name: child(APPEND, str(run.path), name), "abc"))
    expected = {f"{name}-{number}" for name in "abc" for number in range(20)}
    assert {case for case, outcome in outcomes(run).items() if outcome == "pass"} == expected
    assert written_outcomes(run)["6.1_runc"] == outcomes(run)
    assert (run.path / "6.1_runc" / "verdicts.jsonl").read_bytes().count(b"\n") == 60


def test_killed_while_appending(run: Run) -> None:
    child(DIE_APPENDING, str(run.path), expect=KILLED)
    assert not (run.path / "6.1_runc" / "verdicts.jsonl").read_bytes().endswith(b"\n"), "nothing was torn"
    assert outcomes(run) == {"torn": "pass", "stale": "not-run", "latency": "not-run"}
    run.cell("6.1_runc").add(CaseResult("latency", "inconclusive"))
    assert outcomes(run) == {"torn": "pass", "stale": "not-run", "latency": "inconclusive"}


def test_killed_while_bringing_outcomes_up_to_date(run: Run) -> None:
    child(DIE_REPLACING, str(run.path), expect=KILLED)
    assert written_outcomes(run)["6.1_runc"]["torn"] == "not-run"
    assert outcomes(run)["torn"] == "pass"
    run.cell("6.1_runc").add(CaseResult("stale", "fail"))
    assert written_outcomes(run)["6.1_runc"] == {"torn": "pass", "stale": "fail", "latency": "not-run"}


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "/etc", ".hidden", "a b", "a\n", "run.json", "x" * 300])
def test_a_cell_stays_inside_its_run(run: Run, name: str) -> None:
    with pytest.raises(BadInput):
        run.cell(name)
    with pytest.raises(BadInput):
        Run.create(run.path.parent, {name: ["torn"]}, {}, [], 0)


def test_a_plan_with_two_cases_of_one_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="twice"):
        Run.create(tmp_path, {"c": ["torn", "torn"]}, {}, [], 0)


@pytest.mark.parametrize("content", [None, "", "[]", "{}", '{"plan": 3}'])
def test_a_folder_that_is_no_run_is_refused(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "run.json").write_text(content)
    with pytest.raises(BadInput, match=r"run\.json"):
        Run.open(tmp_path)


def test_facts_add_up_and_a_changed_one_is_kept(run: Run) -> None:
    cell = run.cell("6.1_runc")
    assert cell.facts() == {"accelerator": "tcg", "seed": 7}
    cell.write_facts({"build-id": "aa", "accelerator": "kvm", "cpus": (0, 1)})
    cell.write_facts({"build-id": "bb", "cpus": (0, 1)})
    expected = {"build-id": "bb", "accelerator": "kvm", "cpus": [0, 1], "seed": 7, "earlier": [{"build-id": "aa"}]}
    assert cell.facts() == expected
    cell.write_artifacts({"kernel": "sha256:1"})
    assert cell.artifacts() == {"kernel": "sha256:1"}


def test_histories_and_boots_never_overwrite(run: Run) -> None:
    cell = run.cell("6.1_runc")
    paths = [cell.history_path("suites/x.py::test[a]/../b") for _ in range(50)]
    assert len(set(paths)) == 50
    assert {path.parent for path in paths} == {cell.path / "histories"}
    with ThreadPoolExecutor(4) as pool:
        boots = list(pool.map(lambda _: cell.new_boot().name, range(8)))
    assert sorted(boots) == [f"boot-{number}" for number in range(1, 9)]


def test_a_refused_file_leaves_the_old_one(tmp_path: Path) -> None:
    def refuse(path: Path) -> None:
        raise LabError(f"no good: {path.read_text()}")

    path = tmp_path / "deep" / "file"
    replace_file(path, b"old")
    with pytest.raises(LabError, match="no good: new"):
        replace_file(path, b"new", refuse)
    assert [entry.name for entry in path.parent.iterdir()] == ["file"]
    assert path.read_bytes() == b"old"


def test_the_table_has_every_case_and_no_terminal_control(run: Run) -> None:
    run.cell("6.1_runc").add(CaseResult("torn", "fail", reason="\x1b[2J [red]gone"))
    assert [(row.cell, row.case, row.outcome) for row in verdict_rows(run)] == [
        ("6.1_runc", "torn", "fail"),
        ("6.1_runc", "stale", "not-run"),
        ("6.1_runc", "latency", "not-run"),
        ("6.12_crun", "torn", "not-run"),
    ]
    assert verdict_rows(run)[0].reason == "\ufffd[2J [red]gone"
    assert table(run).row_count == 4
