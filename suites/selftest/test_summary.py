"""From records to a summary: what is missing is not-run, what may ship is judged by rules, text stays text."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from bridge import PASS, ROOT, Project, suite
from click.testing import CliRunner

from labs.errors import BadInput
from labs.matrixfile import Matrix, read
from labs.report.gather import gather, runs_in
from labs.report.markdown import ROWS, markdown
from labs.report.record import CaseResult, Run
from labs.report.required import read_required, unmet
from labs.run_commands import index, summary

MATRIX = """\
[axes]
kernel = ["6.1", "6.12"]
runtime = ["runc", "crun"]
[[exclude]]
cells = "6.1_crun"
reason = "not here"
[set.smoke]
cells = "*_runc"
suites = ["suites/x"]
[set.nightly]
cells = "*"
suites = ["suites/x", "suites/y"]
full = true
"""
SIGNOFF = """\
matrix = "matrix.toml"
set = "smoke"

[[must]]
cells = "6.1_*"
cases = "a[1]"
some = ["fail"]
reason = "the base shows it"

[[must]]
cells = "*"
cases = ["a*", "b"]
every = ["pass", "fail"]
reason = "it held"
"""
COMMAND = ("pytest", "suites/x/", "suites", "--set", "nightly")
GOOD = {"6.1_runc": {"a[1]": "fail", "b": "pass"}, "6.12_runc": {"a[1]": "pass", "b": "pass"}}


def record(
    folder: Path, cells: Mapping[str, Mapping[str, str]], deselected: int = 0, command: tuple[str, ...] = COMMAND
) -> Run:
    plan = {cell: list(cases) for cell, cases in cells.items()}
    run = Run.create(folder / "records", plan, {"accelerator": "kvm"}, command, 7, deselected)
    for cell, cases in cells.items():
        for case, outcomes in cases.items():
            for outcome in outcomes.split():
                if outcome != "not-run":
                    run.cell(cell).add(CaseResult(case, outcome, reason=f"is {outcome}"))
    return run


@pytest.fixture
def matrix(tmp_path: Path) -> Matrix:
    (tmp_path / "matrix.toml").write_text(MATRIX)
    (tmp_path / "signoff.toml").write_text(SIGNOFF)
    return read(tmp_path / "matrix.toml")


def outcomes(tmp_path: Path, matrix: Matrix | None, name: str = "smoke") -> dict[str, dict[str, str]]:
    cells = gather(runs_in([tmp_path / "records"]), matrix, name if matrix else "")
    return {one.cell: {result.case: result.outcome for result in one.results} for one in cells}


def command(tmp_path: Path, *options: str) -> tuple[int, str]:
    result = CliRunner().invoke(summary, [*options, str(tmp_path / "records")])
    return result.exit_code, result.stdout


# Gathering


def test_cells_without_a_run_are_not_run(tmp_path: Path, matrix: Matrix) -> None:
    assert outcomes(tmp_path, matrix) == {cell: {"the whole cell": "not-run"} for cell in GOOD}
    record(tmp_path, {"6.1_runc": GOOD["6.1_runc"]})
    assert outcomes(tmp_path, matrix)["6.1_runc"] == GOOD["6.1_runc"]
    assert outcomes(tmp_path, matrix)["6.12_runc"] == {"the whole cell": "not-run"}
    assert command(tmp_path, "--matrix", str(tmp_path / "matrix.toml"), "--set", "smoke")[0] == 1, "a fail is worse"


def test_no_record_at_all_is_red(tmp_path: Path, matrix: Matrix) -> None:
    code, text = command(tmp_path, "--matrix", matrix.path, "--set", "smoke")
    assert code == 3 and text.startswith("## not-run: set smoke of ") and "| `6.12_runc` | not-run |" in text
    assert isinstance(CliRunner().invoke(summary, [str(tmp_path / "records")]).exception, BadInput)
    code, text = command(tmp_path, "--signoff", str(tmp_path / "signoff.toml"))
    assert code == 3 and "**May not ship:** 2 against it." in text


def test_a_case_that_other_cells_ran_is_not_run(tmp_path: Path, matrix: Matrix) -> None:
    record(tmp_path, {"6.1_runc": {"a": "pass"}, "6.12_runc": {"a": "pass", "b": "not-run"}})
    assert outcomes(tmp_path, matrix) == {
        "6.1_runc": {"a": "pass", "b": "not-run"}, "6.12_runc": {"a": "pass", "b": "not-run"}
    }  # fmt: skip
    assert outcomes(tmp_path, None)["6.1_runc"] == {"a": "pass"}, "without a matrix nobody asked for more"


@pytest.mark.parametrize(
    "name, command, deselected, said",
    [
        ("smoke", ("pytest", "suites/x"), 0, ""),
        ("smoke", ("pytest", "suites/"), 0, ""),
        ("smoke", ("pytest", "suites/x", "-k", "a"), 3, "left out 3 tests"),
        ("smoke", ("pytest", "suites/x", "--lf"), 0, "was narrowed"),
        ("smoke", ("pytest", "suites/x", "--ignore=suites/x/a.py"), 0, "was narrowed"),
        ("smoke", ("pytest", "suites/x/test_a.py"), 0, "did not ask for the whole of suites/x"),
        ("smoke", ("pytest", "suites/xx"), 0, "did not ask for the whole of suites/x"),
        ("nightly", ("pytest", "suites/x", "--full"), 0, "did not ask for the whole of suites/y"),
        ("nightly", ("pytest", "suites", "--full"), 0, ""),
        ("nightly", ("pytest", "suites", "--set", "nightly"), 0, ""),
        ("nightly", ("pytest", "suites", "--set=nightly"), 0, ""),
        ("nightly", ("pytest", "suites", "--set", "smoke"), 0, "had not the large sizes"),
    ],
)
def test_a_narrowed_run_is_no_whole_run(
    tmp_path: Path, matrix: Matrix, name: str, command: tuple[str, ...], deselected: int, said: str
) -> None:
    record(tmp_path, {"6.1_runc": {"a": "pass"}}, deselected, command)
    (cell,) = gather(runs_in([tmp_path / "records"]), matrix, name, ["6.1_runc"])
    *_, last = cell.results
    assert (last.outcome, said in last.reason) == (("not-run", True) if said else ("pass", True)), last


def test_the_newest_run_of_a_cell_tells_of_it_whole(tmp_path: Path) -> None:
    old, new = record(tmp_path, {"x": {"a": "fail"}, "y": {"a": "known"}}), record(tmp_path, {"x": {"b": "pass"}})
    for run, day in ((old, "02"), (new, "03")):
        facts = json.loads((run.path / "run.json").read_text())
        (run.path / "run.json").write_text(json.dumps({**facts, "started": f"2026-01-{day}T00:00:00+00:00"}))
    new_first = new.path.rename(tmp_path / "records/0-new")
    runs = runs_in([tmp_path / "records", new_first])
    assert len(runs) == 2
    assert [(one.cell, one.run.path if one.run else None) for one in gather(runs)] == [
        ("x", new_first),
        ("y", old.path),
    ]


@pytest.mark.parametrize("build_ids, earlier", [(("aa", "aa"), ("error", "fail")), (("aa", "bb"), ()), (("", ""), ())])
def test_what_the_same_kernel_gave_before_stays_visible(
    tmp_path: Path, build_ids: tuple[str, str], earlier: tuple[str, ...]
) -> None:
    runs = [record(tmp_path, {"x": {"a": outcomes}}) for outcomes in ("error fail", "pass")]
    for run, build_id in zip(runs, build_ids, strict=True):
        run.cell("x").write_facts({"build_id": build_id})
    (cell,) = gather(runs)
    assert (cell.results[0].outcome, cell.results[0].earlier) == ("pass", earlier)
    assert ("(attempt 3; before: error, fail)" in markdown("t", [cell])) is bool(earlier)


def test_a_malformed_record_is_refused(tmp_path: Path) -> None:
    (record(tmp_path, {"x": {"a": "pass"}}).path / "run.json").write_text("{")
    with pytest.raises(BadInput, match="malformed"):
        runs_in([tmp_path / "records"])


# What may ship


@pytest.mark.parametrize(
    "change, said",
    [
        ({}, []),
        (
            {"6.1_runc": {"a[1]": "pass", "b": "pass"}},
            [("6.1_runc", "a[1]", "pass", "one must be fail: the base")],
        ),
        ({"6.12_runc": {"a[1]": "pass", "b": "known"}}, [("6.12_runc", "b", "known", "must be pass or fail: it held")]),
        ({"6.12_runc": {"a[1]": "pass", "b": "not-run"}}, [("6.12_runc", "b", "not-run", "has not run to its end")]),
        ({"6.12_runc": {"a[1]": "pass", "b": "error"}}, [("6.12_runc", "b", "error", "has not run to its end")]),
        (
            {"6.1_runc": {"a[1]": "fail", "b": "error"}, "6.12_runc": {"a[1]": "pass", "b": "known"}},
            [("6.1_runc", "b", "error", "has not run"), ("6.12_runc", "b", "known", "must be")],
        ),
        ({"6.12_runc": {"a[1]": "pass", "b": "known pass"}}, [("6.12_runc", "b", "pass", "must be pass or fail")]),
        ({"6.12_runc": {"a[1]": "pass", "b": "error pass"}}, []),
        (
            {"6.1_runc": {"a1": "fail", "b": "pass"}, "6.12_runc": {"a1": "pass", "b": "pass"}},
            [("6.1_runc", "a[1]", "not-run", "there is no such case")],
        ),
        (
            {"6.1_runc": {**GOOD["6.1_runc"], "c": "pass"}, "6.12_runc": {**GOOD["6.12_runc"], "c": "pass"}},
            [("6.1_runc", "c", "pass", "no rule looks at it"), ("6.12_runc", "c", "pass", "no rule looks at it")],
        ),
    ],
)
def test_what_stands_against_shipping(
    tmp_path: Path, matrix: Matrix, change: dict[str, dict[str, str]], said: list[tuple[str, str, str, str]]
) -> None:
    record(tmp_path, {**GOOD, **change})
    required = read_required(tmp_path / "signoff.toml")
    found = unmet(required, gather(runs_in([tmp_path / "records"]), required.matrix, required.set))
    assert [(one.cell, one.case, one.outcome) for one in found] == [row[:3] for row in said], found
    assert all(one.why.startswith(row[3]) for one, row in zip(found, said, strict=True)), found
    code, text = command(tmp_path, "--signoff", str(tmp_path / "signoff.toml"))
    assert ("**May ship:**" in text) is text.startswith("## may ship: ") is (not said)
    assert code == (0 if not said else 3 if {row[2] for row in said} <= {"error", "not-run"} else 1)


def test_a_cell_that_nobody_gathered_stands_against_it(tmp_path: Path, matrix: Matrix) -> None:
    assert [one.cell for one in unmet(read_required(tmp_path / "signoff.toml"), [])] == list(GOOD)


@pytest.mark.parametrize(
    "old, new, line, said",
    [
        ('"smoke"', '"smok"', 2, "no set is called smok"),
        ('"matrix.toml"', '"m.toml"', 0, "m.toml: No such file"),
        ('some = ["fail"]', 'some = ["fail", "not-run"]', 7, "'not-run' cannot be allowed"),
        ('some = ["fail"]', 'some = ["fial"]', 7, "'fial' cannot be allowed"),
        ('some = ["fail"]', "", 4, "must has either every or some"),
        ('reason = "it held"', "", 10, "must.reason is missing"),
        ('cells = "6.1_*"', 'cells = "6.3_*"', 5, "'6.3_*' matches no cell of the set"),
        ('cells = "*"', 'cells = "6.1_*"', 4, "no rule with `every` looks at cell 6.12_runc"),
        ("[[must]]", "[[most]]", 4, "key 'most' is not known"),
    ],
)
def test_a_sign_off_file_is_checked(tmp_path: Path, matrix: Matrix, old: str, new: str, line: int, said: str) -> None:
    path = tmp_path / "signoff.toml"
    path.write_text(SIGNOFF.replace(old, new))
    with pytest.raises(BadInput) as caught:
        read_required(path)
    assert said in str(caught.value) and (not line or str(caught.value).startswith(f"{path}:{line}: ")), caught.value


def test_the_lab_s_own_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert "6.1_runc_torn-weight.patched" in read_required(Path("ci/signoff.toml")).cells


# Text


def test_a_summary_shows_what_ran_and_where_its_record_is(tmp_path: Path) -> None:
    run = record(tmp_path, {"x": {"a": "pass", "b": "skip", "c": "known"}})
    run.cell("x").write_facts({"release": "6.1.0-40", "runtime": {"version": "1.1.5"}})
    text = markdown("t", gather([run]), link="https://ci.example/1")
    ran = "kernel-release 6.1.0-40, runtime-version 1.1.5, accelerator kvm"
    row = f"| `x` | known | 1 known, 1 pass, 1 skip | {ran} | [`{run.path.name}`](https://ci.example/1) |"
    assert text.startswith("## known: t\n") and row in text and "| `x` | `c` | known | is known |" in text
    assert "`a`" not in text and "`b`" not in text
    assert command(tmp_path)[0] == 0


def test_what_a_guest_prints_stays_text(tmp_path: Path) -> None:
    run = record(tmp_path, {"x": {"a`|b": "pass"}})
    run.cell("x").add(CaseResult("a`|b", "fail", reason="<b>| [x](y) `z`\n# *w* @all\x1b " + "long " * 100))
    (line,) = [line for line in markdown("t", gather([run])).splitlines() if "long" in line]
    assert line.startswith("| `x` | `a'\\|b` | fail | &lt;b&gt;\\| \\[x\\](y) \\`z\\` \\# \\*w\\* \\@all\ufffd long")
    assert len(line) < 320 and line.endswith("… |")


def test_a_long_table_is_cut_and_says_so(tmp_path: Path) -> None:
    run = record(tmp_path, {"x": {f"c{number}": "not-run" for number in range(ROWS + 2)}})
    text = markdown("t", gather([run]))
    assert "... and 2 more" in text and len(re.findall(r"^\| `x` \| `c", text, re.MULTILINE)) == ROWS


def test_options_that_do_not_go_together(tmp_path: Path, matrix: Matrix) -> None:
    for options in (["--signoff", "x", "--set", "smoke"], ["--set", "smoke"], ["--cell", "x"]):
        result = CliRunner().invoke(summary, options)
        assert isinstance(result.exception, BadInput), options


# The page over runs


def test_the_index_has_every_run_newest_first(tmp_path: Path) -> None:
    runs = [record(tmp_path, {"x": {"a": outcome}}, 0, ("pytest", "<script>")) for outcome in ("pass", "fail")]
    (runs[0].path / "report").mkdir()
    (runs[0].path / "report/index.html").write_text("page")
    broken = tmp_path / "records/00-broken"
    broken.mkdir()
    (broken / "run.json").write_text("<b>")
    result = CliRunner().invoke(index, ["--record", str(tmp_path / "records")])
    page = (tmp_path / "records/index.html").read_text()
    assert result.stdout.strip() == str(tmp_path / "records/index.html")
    places = [page.index(name) for name in sorted([run.path.name for run in runs], reverse=True)]
    assert places == sorted(places) and places[-1] < page.index("00-broken")
    assert f'<a href="{runs[0].path.name}/report/index.html">' in page and f"{runs[1].path.name} (no page)" in page
    assert '<span class="outcome fail">fail</span>' in page and "is malformed" in page
    assert "&lt;script&gt;" in page and "<script" not in page
    assert isinstance(CliRunner().invoke(index, ["--record", str(tmp_path / "no")]).exception, BadInput)


# The bridge


def test_a_run_tells_what_was_deselected(project: Project) -> None:
    body = suite(f"def test_a(bench, judge): {PASS}\ndef test_b(bench): pass\ndef test_plain(): pass")
    assert project.run(body, "-k", "test_a").run.deselected == 1
