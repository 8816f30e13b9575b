"""The bridge: what conftest.py makes of outcomes, losses and interrupts, in sessions on the fake lab."""

from __future__ import annotations

import shlex

import pytest
from bridge import FAIL, HEAD, PASS, Project, Session, suite

from labs.casebook import named

OUTCOMES = (
    HEAD
    + """
def verdict(outcome):
    return Verdict("an invariant", outcome, f"it is {outcome}", evidence="seen")

def test_pass(bench, judge): judge(verdict("pass"))
def test_plain(bench): pass
def test_fail(bench, judge): judge(verdict("fail"))
def test_inconclusive(bench, judge): judge(verdict("inconclusive"))
def test_skip(bench, judge): judge(verdict("skip"))
def test_error(bench, judge): judge(verdict("error"))
def test_absent(bench): raise Absent("io.weight does not exist here")
def test_skipped(bench): pytest.skip("why")
@pytest.mark.skip(reason="marked")
def test_marked(bench): pass
def test_assert(bench): assert 1 == 2
def test_late(bench): raise DeadlineExpired("not done after 60 s")
def test_bug(bench): {}["no such key"]
def test_exits(bench): raise SystemExit(0)
def test_pass_then_assert(bench, judge):
    judge(verdict("pass"))
    assert False, "after all"
def test_pass_then_error(bench, judge):
    judge(verdict("pass"))
    raise LabError("after all")
@pytest.fixture
def broken(bench): assert False, "in the fixture"
def test_fixture(broken): pass
@pytest.fixture
def unclean(bench):
    yield
    raise LabError("not cleaned up")
def test_teardown(bench, judge, unclean): judge(verdict("pass"))
def test_last(bench): pass
"""
)
EXPECTED = {  # case -> (outcome on record, what pytest's own JUnit says)
    "pass": ("pass", "case"),
    "plain": ("pass", "case"),
    "fail": ("fail", "failure"),
    "inconclusive": ("inconclusive", "skipped"),
    "skip": ("skip", "skipped"),
    "error": ("error", "error"),
    "absent": ("skip", "skipped"),
    "skipped": ("skip", "skipped"),
    "marked": ("skip", "skipped"),
    "assert": ("fail", "failure"),
    "late": ("error", "error"),
    "bug": ("error", "error"),
    "exits": ("error", "error"),
    "pass_then_assert": ("fail", "failure"),
    "pass_then_error": ("error", "error"),
    "fixture": ("error", "error"),
    "teardown": ("pass", "error"),
    "last": ("pass", "case"),
}


@pytest.fixture(scope="module")
def every_outcome(tmp_path_factory: pytest.TempPathFactory) -> Session:
    return Project(tmp_path_factory.mktemp("outcomes") / "project").run(OUTCOMES)


@pytest.mark.parametrize("case", EXPECTED)
def test_record_and_pytest_tell_the_same(every_outcome: Session, case: str) -> None:
    on_record = every_outcome.outcomes()["6.1_runc"][case]
    assert (on_record, every_outcome.pytest_outcomes()[f"test_{case}[6.1_runc]"]) == EXPECTED[case]


def test_a_session_with_a_fail_exits_with_1(every_outcome: Session) -> None:
    assert every_outcome.code == 1


def test_a_broken_teardown_is_on_record_beside_its_case(every_outcome: Session) -> None:
    assert every_outcome.result("teardown (teardown)").outcome == "error"
    assert every_outcome.result("teardown (teardown)").reason == "not cleaned up"


def test_every_case_is_once_on_record_and_in_junit(every_outcome: Session) -> None:
    cases = [*EXPECTED, "teardown (teardown)"]
    lines = (every_outcome.run.path / "6.1_runc/verdicts.jsonl").read_text().splitlines()
    assert len(lines) == len(cases)
    assert sorted(case for _, case, _ in every_outcome.junit()) == sorted(f"it.{case}" for case in cases)


def test_verdicts_keep_reason_and_evidence(every_outcome: Session) -> None:
    for case, reason in {"fail": "it is fail", "late": "not done after 60 s", "absent": "io.weight does not"}.items():
        assert reason in every_outcome.result(case).reason
    verdict = every_outcome.result("fail").verdict
    assert verdict is not None and verdict.evidence == "seen"


def test_the_record_is_complete(every_outcome: Session) -> None:
    names = {str(path.relative_to(every_outcome.run.path)) for path in every_outcome.run.path.rglob("*")}
    files = ["artifacts.json", "cell.json", "console.log", "boot-1/console.log", "verdicts.jsonl"]
    assert names >= {"run.json", "report/junit.xml", "report/index.html", *(f"6.1_runc/{name}" for name in files)}
    assert "Linux version" in every_outcome.run.cell("6.1_runc").console_path.read_text()
    assert every_outcome.run.command[0] == "pytest" and "test_it.py" in every_outcome.run.command


def test_the_summary_tells_where_things_are(every_outcome: Session) -> None:
    for words in (
        "= verdicts =",
        "report/index.html",
        "report/junit.xml",
        "records/",
        f"--seed {every_outcome.run.seed}",
    ):
        assert words in every_outcome.text


def test_a_guest_is_booted_once_a_cell_and_ended(every_outcome: Session) -> None:
    assert (every_outcome.root / "boots.txt").read_text() == "6.1_runc\n"
    assert (every_outcome.root / "ended.txt").read_text() == "6.1_runc\n"


# Exit codes

PANICS_LATER = "@pytest.fixture\ndef late(bench):\n    yield\n    bench.guest.run('panic')\n"


@pytest.mark.parametrize(
    "body, code",
    [
        ("def test_a(bench): raise LabError('no')\ndef test_b(bench): pass", 3),
        (f"def test_a(bench): raise LabError('no')\ndef test_b(bench, judge): {FAIL}", 1),
        ("def test_a(bench): raise LabError('no')\ndef test_b(): assert False", 1),
        ("def test_a(bench): {}['x']", 3),
        (f"{PANICS_LATER}def test_a(bench, late): pass", 1),
    ],
    ids=["infrastructure", "both", "a plain test fails", "a bug of the suite", "a panic in teardown"],
)
def test_exit_codes(project: Project, body: str, code: int) -> None:
    assert project.run(suite(body)).code == code


@pytest.mark.parametrize(
    "argv, said",
    [
        (["--kernel", "9.9"], "ERROR: kernel 9.9: not in the archive; nearest: 6.1"),
        (["--provider", "cloud"], "provider cloud: not known"),
        (["--cell", "nothing*"], "no cell matches nothing*"),
    ],
)
def test_bad_input_is_one_line_and_code_4(project: Project, argv: list[str], said: str) -> None:
    ended = project.run(suite(f"def test_a(bench, judge): {PASS}"), *argv)
    assert ended.code == 4
    assert said in ended.text and "Traceback" not in ended.text
    assert not (ended.root / "records").exists() and not (ended.root / "boots.txt").exists()


def test_an_unusable_store_is_bad_input(project: Project) -> None:
    (project.root / "store").write_text("a file")
    ended = project.run(suite(f"def test_a(bench, judge): {PASS}"))
    assert ended.code == 4 and "set LABS_STORE" in ended.text and "Traceback" not in ended.text


def test_a_full_disk_ends_the_session_in_one_line(project: Project) -> None:
    full = "import labs.report.record as r\ndef full(*a): raise LabError('cannot write x: No space left on device')\n"
    ended = project.run(suite(f"{full}def test_a(bench): r.append_line = full\ndef test_b(bench): pass"))
    assert ended.code == 3
    assert "lab error: cannot write x: No space left on device" in ended.text and "Traceback" not in ended.text


def test_a_report_that_cannot_be_written_is_told(project: Project) -> None:
    a_file = 'Path("report").rmdir(); Path("report").touch()'
    ended = project.run(suite(f"def test_a(bench, judge): {a_file}; {PASS}"))
    assert ended.code == 3
    assert "lab error: no report" in ended.text and "Traceback" not in ended.text


# Selection


def test_collecting_only_touches_nothing(project: Project) -> None:
    ended = project.run(suite(f"def test_a(bench, judge): {PASS}"), "--collect-only", "--kernel", "9.9")
    assert ended.code == 0 and "test_a[9.9_runc]" in ended.text
    assert not (ended.root / "records").exists()


def test_every_case_on_several_guests(project: Project) -> None:
    """Each guest has a seed, and its cases are cases of their own; one that fails says how to run it again."""
    body = f"""
def test_a(bench, judge):
    open('seeds.txt', 'a').write(f'{{bench.seed}} ')
    judge(Verdict('x', 'fail' if bench.seed == 8 else 'pass', 'ok'))
def test_b(bench, judge): {PASS}
"""
    ended = project.run(suite(body), "--boots", "3", "--seed", "7", "--kernel", "6.1", "--kernel", "6.12")
    assert sorted((project.root / "seeds.txt").read_text().split()) == ["7", "7", "8", "8", "9", "9"]
    assert sorted((project.root / "ended.txt").read_text().split()) == ["6.12_runc"] * 3 + ["6.1_runc"] * 3
    cases = {f"it.{case}[boot{n}]" for case in "ab" for n in (1, 2, 3)}
    results = {result.case: result for result in ended.run.cell("6.1_runc").results()}
    assert results.keys() == cases
    assert [case for case, result in results.items() if result.outcome == "fail"] == ["it.a[boot2]"]
    assert "--boots 3" in results["it.a[boot2]"].replay and "boot2" in results["it.a[boot2]"].replay


def test_what_is_deselected_is_not_planned(project: Project) -> None:
    body = f"def test_a(bench, judge): {PASS}\ndef test_b(bench, judge): {FAIL}"
    ended = project.run(suite(body), "-k", "test_a and not 6.12", "--kernel", "6.1", "--kernel", "6.12")
    assert ended.code == 0 and ended.outcomes() == {"6.1_runc": {"a": "pass"}}


def test_a_test_named_twice_is_planned_once(project: Project) -> None:
    ended = project.run(suite(f"def test_a(bench, judge): {PASS}"), "--keep-duplicates", "test_it.py", "test_it.py")
    assert ended.code == 0 and ended.outcomes() == {"6.1_runc": {"a": "pass"}}


def test_without_cells_there_is_no_record(project: Project) -> None:
    ended = project.run(suite("def test_a(): pass"))
    assert ended.code == 0 and not (ended.root / "records").exists()


def test_parameters_with_the_cells_own_words(project: Project) -> None:
    body = f"""
@pytest.mark.parametrize("x", ["a-b", "6.1_runc", "x6.1_runcx", "[1]", ""])
@pytest.mark.parametrize("y", ["p", "q"])
def test_a(bench, judge, x, y): {PASS}
class TestC:
    def test_m(self, bench, judge): {PASS}
"""
    ended = project.run(suite(body), "--kernel", "6.1", "--kernel", "6.12")
    first, second = ended.outcomes()["6.1_runc"], ended.outcomes()["6.12_runc"]
    assert list(first) == list(second) and len(first) == 11
    assert set(first.values()) | set(second.values()) == {"pass"}
    assert {"a[p-6.1_runc]", "a[p-x6.1_runcx]", "a[p-a-b]"} <= set(first) and "TestC::test_m" in first


@pytest.mark.parametrize(
    "parameters, cell, case",
    [
        ("p-x6.1_runcx-6.1_runc", "6.1_runc", "it.a[p-x6.1_runcx]"),
        ("6.1.192-3_runc-p", "6.1.192-3_runc", "it.a[p]"),
        ("p-3_runc", "3_runc", "it.a[p]"),
    ],
)
def test_a_tests_cell_and_case_by_its_name(parameters: str, cell: str, case: str) -> None:
    cells = ["3_runc", "6.1_runc", "6.1.192-3_runc"]
    assert named(f"suites/x/test_it.py::test_a[{parameters}]", cells) == (cell, case)


# Known defects


LOST = """
from labs.probe.history import INITIAL
from histories import Op, register_of, with_tail
from labs.invariant.atomicity import no_lost_update
def test_bandwidth(bench, judge):
    judge(Verdict("no lost update", "fail", "lost 12 of 100 writes of cpu.max"), ("cpu.max", "cpu.max.burst"))
def test_weight(bench, judge):
    judge(Verdict("no lost update", "fail", "lost 12 of 100 writes of cpu.max"), ("cpu.weight",))
"""


@pytest.mark.parametrize("known, outcome, code", [("report", "known", 0), ("ignore", "fail", 1)])
def test_known_defects(project: Project, known: str, outcome: str, code: int) -> None:
    ended = project.run(suite(LOST), "--known", known, "-k", "bandwidth")
    assert (ended.code, ended.outcomes()["6.1_runc"]["bandwidth"]) == (code, outcome)
    assert (ended.result("bandwidth").verdict.known != "") == (known == "report")  # type: ignore[union-attr]


def test_a_known_defect_hides_no_other_file(project: Project) -> None:
    assert project.run(suite(LOST), "-k", "weight").code == 1


def test_a_bad_end_comes_with_the_command_that_runs_it_again(every_outcome: Session) -> None:
    replay = every_outcome.result("fail").replay
    again = ["--kernel", "6.1", "--runtime", "runc", "--seed", str(every_outcome.run.seed), "--known", "report"]
    assert shlex.split(replay)[0] == "pytest" and shlex.split(replay)[1].endswith("test_it.py::test_fail[6.1_runc]")
    assert shlex.split(replay)[2:] == again
    assert replay in every_outcome.text and every_outcome.result("pass").replay == ""


def test_the_command_names_the_machines(project: Project) -> None:
    """Without them a cell of provider ssh is refused."""
    ended = project.run(suite(LOST), "--ssh", "root@192.0.2.7:22", "--known", "ignore", "-k", "weight")
    (result,) = ended.run.results()["6.1_runc_ssh"]
    assert "--provider ssh --ssh root@192.0.2.7:22" in result.replay


def test_a_bad_end_comes_with_what_the_kernel_said_meanwhile(project: Project) -> None:
    body = f"""
def say(bench, text):
    with bench.guest.console.path.open("a") as log: log.write(f"[    9.000001] {{text}}\\n")
def test_a(bench):
    open("System.map", "w").write("ffffffff81000000 T start\\nffffffff81000100 T end\\n")
    for text in ("cgroup-lab: begin it.a", "of a at 0xffffffff81000010", "cgroup-lab: end it.a"): say(bench, text)
    assert False
def test_b(bench, judge):
    for text in ("cgroup-lab: begin it.b", "of b", "cgroup-lab: end it.b"): say(bench, text)
    {PASS}
def test_c(bench): assert False
"""
    ended = project.run(suite(body))
    console = ended.result("a").console
    assert "of a at start+0x10" in console and "of b" not in console
    assert ended.result("b").console == ended.result("c").console == ""


def test_the_report_goes_where_it_was_asked_to(project: Project) -> None:
    """So that a search's steps leave the report of the last real run alone."""
    ended = project.run(suite(f"def test_a(bench, judge): {PASS}"), "--report", "else/where")
    assert (ended.root / "else/where/junit.xml").exists() and not (ended.root / "report").exists()
