"""The bridge when things end: a guest that fails or is lost, an interrupt, a worker that dies."""

from __future__ import annotations

import os
import signal

import pytest
from bridge import FAIL, PASS, Project, suite


def test_a_panic_fails_its_case_and_the_next_cell_goes_on(project: Project) -> None:
    body = f"""
def test_a(bench, judge): {PASS}
def test_b(bench): bench.guest.run("panic" if bench.kernel == (6, 1, 192) else "true")
def test_c(bench): bench.guest.run("true")
def test_d(bench): bench.guest.run("true")
"""
    ended = project.run(suite(body), "--kernel", "6.1", "--kernel", "6.12")
    assert ended.code == 1
    assert ended.outcomes() == {
        "6.1_runc": {"a": "pass", "b": "fail", "c": "error", "d": "error"},
        "6.12_runc": dict.fromkeys("abcd", "pass"),
    }
    assert "sysrq triggered crash" in ended.result("b").verdict.evidence  # type: ignore[union-attr]
    assert ended.result("c").reason.startswith("not run: the guest ended in it.b")
    assert ended.pytest_outcomes()["test_b[6.1_runc]"] == "failure"
    assert ended.pytest_outcomes()["test_c[6.1_runc]"] == "error"


def test_a_lost_guest_is_an_error_and_the_next_cell_goes_on(project: Project) -> None:
    body = """
def test_a(bench): bench.guest.run("vanish" if bench.kernel == (6, 1, 192) else "true")
def test_b(bench): bench.guest.run("true")
"""
    ended = project.run(suite(body), "--kernel", "6.1", "--kernel", "6.12")
    assert ended.code == 3
    assert ended.outcomes() == {"6.1_runc": {"a": "error", "b": "error"}, "6.12_runc": {"a": "pass", "b": "pass"}}
    assert "killed by signal 9" in ended.result("a").reason


@pytest.mark.parametrize("kernel, outcome, code", [("5.1", "error", 3), ("5.2", "fail", 1)], ids=["lab", "kernel"])
def test_a_cell_that_does_not_boot(project: Project, kernel: str, outcome: str, code: int) -> None:
    body = f"def test_a(bench, judge): {PASS}\ndef test_b(bench, judge): {PASS}"
    ended = project.run(suite(body), "--kernel", kernel, "--kernel", "6.12")
    assert ended.code == code
    assert ended.outcomes() == {f"{kernel}_runc": {"a": outcome, "b": outcome}, "6.12_runc": {"a": "pass", "b": "pass"}}
    assert ended.result("a", f"{kernel}_runc").attempts == 1
    assert (ended.root / "boots.txt").read_text().splitlines() == [f"{kernel}_runc", "6.12_runc"]


def test_infrastructure_trouble_in_a_boot_is_tried_again_on_a_fresh_guest_and_counted(project: Project) -> None:
    body = f"def test_a(bench, judge): {PASS}\ndef test_b(bench, judge): {PASS}"
    ended = project.run(suite(body), "--kernel", "5.4", "--kernel", "5.5", "--kernel", "5.2")
    assert ended.code == 1
    lost, never, panics = (ended.run.results()[f"{kernel}_runc"] for kernel in ("5.4", "5.5", "5.2"))
    assert [(case.outcome, case.attempts) for case in lost] == [("pass", 2)] * 2
    assert [(case.outcome, case.attempts) for case in never] == [("error", 3)] * 2
    assert [(case.outcome, case.attempts) for case in panics] == [("fail", 1)] * 2  # the kernel's own end is a verdict
    assert "5.4_runc: boot 1 of at most 3: lost in boot-1" in ended.text
    assert "ok (attempt 2)" in ended.text and "lost in boot-3 (attempt 3)" in ended.text
    names = {
        (c.get("classname"), p.get("value"))
        for c in ended.junit_cases()
        for p in c.iter("property")
        if p.get("name") == "attempts"
    }
    assert names == {("5.4_runc", "2"), ("5.5_runc", "3"), ("5.2_runc", "1")}
    assert sorted(path.name for path in ended.run.path.glob("5.4_runc/boot-*")) == ["boot-1", "boot-2"]


def test_a_guest_that_does_not_end(project: Project) -> None:
    ended = project.run(suite(f"def test_a(bench, judge): {PASS}"), "--kernel", "5.3")
    assert ended.code == 3
    assert ended.outcomes() == {"5.3_runc": {"a": "pass", "a (teardown)": "error"}}


# Interrupted


def test_after_x_the_rest_is_not_run(project: Project) -> None:
    body = f"def test_a(bench, judge): {PASS}\ndef test_b(bench, judge): {FAIL}\ndef test_c(bench, judge): {PASS}"
    ended = project.run(suite(body), "-x")
    assert ended.code == 1
    assert ended.outcomes() == {"6.1_runc": {"a": "pass", "b": "fail", "c": "not-run"}}
    assert ("6.1_runc", "it.c", "error") in ended.junit()
    assert "not-run" in ended.text


def test_after_ctrl_c_the_rest_is_not_run_and_the_guest_ended(project: Project) -> None:
    body = f"""
def test_a(bench, judge): {PASS}
def test_b(bench):
    Path("begun").touch()
    time.sleep(30)
def test_c(bench, judge): {PASS}
"""
    process = project.start(suite(body))
    project.wait_for("begun")
    assert process.pid
    os.kill(process.pid, signal.SIGINT)
    ended = project.end(process)
    assert ended.code == 2
    assert ended.outcomes() == {"6.1_runc": {"a": "pass", "b": "not-run", "c": "not-run"}}
    assert len(ended.junit()) == 3
    assert (ended.root / "ended.txt").exists()


# pytest-xdist


OTHER = f"""
@pytest.mark.parametrize("n", range(3))
def test_c(bench, judge, n): {PASS}
"""
XDIST = f"""
@pytest.mark.parametrize("n", range(4))
def test_a(bench, judge, n): {PASS}
def test_crash(bench): os._exit(7)
def test_b(bench, judge): {PASS}
"""


def test_a_worker_that_dies(project: Project) -> None:
    """Trial 28: each planned case has one outcome, one run serves all workers, and the report is written.

    The case that killed its worker is an error and is not tried again; the rest of its file is run by the next worker.
    """
    ended = project.run(suite(XDIST), "-n", "2", "--dist", "loadfile", "--max-worker-restart", "1", "--seed", "11")
    assert ended.code == 3 and ended.run.seed == 11
    cases = [f"a[{n}]" for n in range(4)] + ["crash", "b"]
    expected = dict.fromkeys(cases, "pass") | {"crash": "error"}
    assert ended.outcomes() == {"6.1_runc": expected} and list(ended.outcomes()["6.1_runc"]) == cases
    assert sorted(case for _, case, _ in ended.junit()) == sorted(f"it.{case}" for case in cases)
    assert {ended.result(case).attempts for case in cases} == {1}
    assert "= verdicts =" in ended.text and "-n" in ended.run.command


@pytest.mark.parametrize("dist", ["load", "loadscope", "loadfile", "worksteal"])
def test_a_worker_that_dies_loses_and_repeats_no_case(project: Project, dist: str) -> None:
    (project.root / "test_other.py").write_text(suite(OTHER))
    options = ["--kernel", "6.1", "--kernel", "6.12", "-n", "2", "--dist", dist, "test_other.py"]
    ended = project.run(suite(XDIST), *options)
    expected = {**dict.fromkeys([f"a[{n}]" for n in range(4)], "pass"), "crash": "error", "b": "pass"}
    expected |= dict.fromkeys([f"c[{n}]" for n in range(3)], "pass")
    assert ended.outcomes() == {"6.1_runc": expected, "6.12_runc": expected}, ended.text
    assert {r.attempts for results in ended.run.results().values() for r in results} == {1}
    assert "not torn down properly" not in ended.text
    boots = (ended.root / "boots.txt").read_text().splitlines()
    assert len(boots) <= 2 * (2 + 2)  # a boot a cell and worker: two workers, and two that replace those that died


def test_bad_input_under_xdist(project: Project) -> None:
    ended = project.run(suite(f"def test_a(bench, judge): {PASS}"), "-n", "1", "--kernel", "9.9")
    assert ended.code == 4
    assert "kernel 9.9: not in the archive; nearest: 6.1" in ended.text and "INTERNALERROR" not in ended.text
