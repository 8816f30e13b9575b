"""Matrix files: which cells come of one, what is refused and on which line, and what the bridge makes of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bridge import PASS, ROOT, Project, suite
from click.testing import CliRunner

from labs.__main__ import cells_
from labs.errors import BadInput
from labs.matrixfile import Matrix, asked, read

WHOLE = """\
[axes]
kernel = ["6.1", "6.12",
          "tree:/src/linux"]  # no key = "x" in here
runtime = ["runc", "crun"]

[[include]]
kernel = "6.12.57"
variant = ["lockdep", "kasan"]

[[exclude]]
cells = "6.1_crun"
reason = '''
[set.none]
has no crun'''

[[exclude]]
cells = ["*_kasan", "6.1_*"]
reason = "too slow"

[[override]]
cells = "6.12*"
cpus = 4
memory_mb = 2048

[[override]]
cells = "*_lockdep"
memory_mb = 4096

[feature.new]
since = "6.12"

[feature.old]
until = "6.12.57"

[feature.lockdep]
variant = "lockdep"

[suite."suites/x"]
requires = ["new", "lockdep"]

[suite."suites/y"]
requires = ["old"]

[set.smoke]
cells = "6.12_runc"
suites = ["suites/y", "suites/z"]

[set.nightly]
cells = ["6.*", "linux-*"]
suites = ["suites/x"]
full = true
minutes = 90
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "m.toml"
    path.write_text(text)
    return path


@pytest.fixture
def matrix(tmp_path: Path) -> Matrix:
    return read(written(tmp_path, WHOLE))


def ids(matrix: Matrix, name: str = "", *globs: str) -> list[str]:
    return [row.cell.id for row in matrix.chosen(name, globs)]


def test_axes_multiply_and_includes_follow(matrix: Matrix) -> None:
    assert [row.cell.id for row in matrix.rows] == [
        "6.1_runc", "6.1_crun", "6.12_runc", "6.12_crun", "linux-d43ba9_runc", "linux-d43ba9_crun",
        "6.12.57_runc_lockdep", "6.12.57_runc_kasan",
    ]  # fmt: skip


def test_excluded_cells_keep_the_first_reason(matrix: Matrix) -> None:
    reasons = {row.cell.id: row.excluded for row in matrix.rows if row.excluded}
    assert reasons == {
        "6.1_runc": "too slow", "6.1_crun": "[set.none] has no crun", "6.12.57_runc_kasan": "too slow"
    }  # fmt: skip


def test_the_later_override_of_a_size_counts(matrix: Matrix) -> None:
    sizes = {row.cell.id: dict(row.sizes) for row in matrix.rows if row.sizes}
    assert sizes["6.12_crun"] == {"cpus": 4, "memory_mb": 2048}
    assert sizes["6.12.57_runc_lockdep"] == {"cpus": 4, "memory_mb": 4096}
    assert not any("6.1_" in cell for cell in sizes)


def test_features_by_version_and_variant(matrix: Matrix) -> None:
    lacks = {row.cell.id: row.lacks for row in matrix.rows}
    assert lacks["6.12.57_runc_lockdep"] == {"suites/y": "kernel 6.12.57 has no old: before 6.12.57"}
    assert lacks["6.1_runc"] == {"suites/x": "kernel 6.1 has no new: since 6.12"}
    assert lacks["6.12_runc"] == {  # a line is its newest release
        "suites/x": "lockdep needs a kernel of variant lockdep",
        "suites/y": "kernel 6.12 has no old: before 6.12.57",
    }
    assert "suites/y" not in lacks["linux-d43ba9_runc"], "a tree does not tell its version"


def test_a_suite_is_told_from_its_neighbour_by_whole_names(matrix: Matrix) -> None:
    (row,) = [row for row in matrix.rows if row.cell.id == "6.12.57_runc_lockdep"]
    assert row.skipped("suites/y/test_a.py::test[6.12]") and not row.skipped("suites/yy/test_a.py::test")


def test_sets_choose_and_what_no_suite_of_a_set_can_judge_is_left_out(matrix: Matrix) -> None:
    assert ids(matrix, "smoke") == ["6.12_runc"]
    assert ids(matrix, "nightly") == ["6.12.57_runc_lockdep"]
    (crun,) = matrix.select("nightly", ["6.12_crun"])
    assert crun.excluded == "lockdep needs a kernel of variant lockdep" and crun.full
    assert (matrix.set("smoke").full, matrix.set("smoke").minutes, matrix.set("nightly").minutes) == (False, 60, 90)
    assert "6.12_crun" in ids(matrix), "no set, no suite"


@pytest.mark.parametrize(
    "name, globs, said",
    [
        ("smok", [], "no set is called smok; there are: smoke, nightly"),
        ("", ["6.1_crun"], "6.1_crun: no cell to run; 6.1_crun is excluded: [set.none]"),
        ("smoke", ["5.*"], "set smoke 5.*: no cell to run; there are: 6.12_runc"),
    ],
)
def test_a_choice_of_nothing_is_refused(matrix: Matrix, name: str, globs: list[str], said: str) -> None:
    with pytest.raises(BadInput) as caught:
        matrix.chosen(name, globs)
    assert said in str(caught.value)


AXES = '[axes]\nkernel = ["6.1"]\n'
SET = '[set.s]\ncells = "*"\nsuites = "suites/x"\n'
REFUSED = [
    ("", 1, "no cell is named"),
    ("[axes]\nkernel = [1\n", 3, "Unclosed array"),
    ('[axes]\nkernel = "6.1"\n\nkernel = "6.2"', 4, "Cannot overwrite"),
    (AXES + "\n[nope]\n", 4, "key 'nope' is not known"),
    (AXES + '# a\nruntme = "runc"\n', 4, "key 'runtme' is not known"),
    ("[axes]\nkernel = [\n  '6.1',\n  6.12]\n", 2, "axes.kernel has what is no text: 6.12"),
    ("[axes]\nkernel = 6.1\n", 2, "axes.kernel is no text: 6.1"),
    ("[axes]\nkernel = []\n", 2, "axes.kernel is empty"),
    ('[axes]\nkernel = [\n "6.1",\n "6.12",\n "6.12",\n]\n', 4, "axes.kernel has '6.12' twice"),
    ('[axes]\nkernel = ["6.1", ""]\n', 2, "kernel has an empty text"),
    (AXES + 'provider = "cloud"\n', 3, "provider cloud: not known"),
    (AXES + 'variant = [\n  "",\n  "lokdep",\n]\n', 5, "no variant 'lokdep'"),
    (AXES + 'series = "no/such"\n', 3, "no/such"),
    ("axes = 3\n", 1, "axes is no table"),
    ("include = 3\n" + AXES, 1, "include is no list of tables"),
    (AXES + "[[include]]\n", 3, "include names no axis"),
    (AXES + '[[include]]\nkernel = "6.2"\n[[include]]\nkernel = "6.1"\n', 5, "include of 6.1_runc, which is there"),
    (AXES + '[[include]]\nkernel = "6.2"\n[[include]]\nkernel = "6.2"\n', 5, "include of 6.2_runc, which is there"),
    (AXES + '[[exclude]]\ncells = [\n"*_runc",\n"6.2_*"]\nreason = "x"\n', 6, "exclude of '6.2_*' matches no cell"),
    (AXES + '[[exclude]]\ncells = "*"\n', 3, "exclude.reason is missing"),
    (AXES + '[[exclude]]\ncells = "*"\nreason = " "\n', 5, "exclude.reason is no text"),
    (AXES + '[[exclude]]\nreason = "x"\n', 3, "exclude.cells is missing"),
    (AXES + '[[override]]\ncells = "*"\n', 3, "override changes nothing"),
    (AXES + '[[override]]\ncells = "*"\ncpus = 0\n', 5, "override.cpus is no number of 1 or more: 0"),
    (AXES + '[[override]]\ncells = "*"\ncpus = true\n', 5, "override.cpus is no number"),
    (AXES + '[[override]]\ncells = "7*"\ncpus = 1\n', 4, "override of '7*' matches no cell; nearest: 6.1_runc"),
    (AXES + '[[exclude]]\ncells = "*"\nreason = "slow"\n' + SET, 6, "set s is empty: all its cells are excluded: slow"),
    (AXES + '[set.s]\ncells = "7*"\nsuites = "x"\n', 4, "set of '7*' matches no cell"),
    (AXES + '[set.s]\ncells = "*"\n', 3, "set.s.suites is missing"),
    (AXES + SET + "full = 1\n", 6, "set.s.full is neither true nor false: 1"),
    (AXES + SET.replace("set.s", "set.'S 1'"), 3, "not fit for the name of a job"),
    (AXES + "[feature.x]\n", 3, "feature x tells nothing"),
    (AXES + '[feature.x]\nsince = "six"\n', 4, "'six' is no version"),
    (AXES + '[suite.x]\nrequires = ["f"]\n', 4, "no feature 'f'"),
    (AXES + '[feature.f]\nsince = "7.0"\n[suite."suites/x"]\nrequires = "f"\n' + SET, 7, "kernel 6.1 has no f: since"),
]  # fmt: skip


@pytest.mark.parametrize("text, line, said", REFUSED)
def test_what_is_wrong_is_told_with_its_line(tmp_path: Path, text: str, line: int, said: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(BadInput) as caught:
        read(path)
    told = str(caught.value)
    assert told.startswith(f"{path}:{line}: ") and said in told and caught.value.mend and "\n" not in told, told


def test_machines_belong_to_the_cells_of_the_ssh_provider(tmp_path: Path) -> None:
    path = tmp_path / "m.toml"
    path.write_text('hosts = ["root@a:1", "root@b:2"]\n[axes]\nprovider = ["qemu", "ssh"]\n')
    assert {row.cell.id: row.hosts for row in read(path).rows} == {
        "6.1_runc": (),
        "6.1_runc_ssh": ("root@a:1", "root@b:2"),
    }
    path.write_text('[axes]\nprovider = "ssh"\n')
    with pytest.raises(BadInput, match=r"cell 6\.1_runc_ssh has no machine"):
        read(path)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_bytes(b"x = '\xff'")
    for name, said in (("none.toml", "No such file"), ("bad.toml", "not UTF-8")):
        with pytest.raises(BadInput, match=said):
            read(tmp_path / name)


def test_options_and_a_matrix_do_not_mix(tmp_path: Path) -> None:
    axes = {"kernels": [], "runtimes": [], "variants": [], "series": []}
    path = written(tmp_path, AXES)
    assert [row.cell.id for row in asked(path, "", [], provider="", **axes)] == ["6.1_runc"]
    for given in ({"kernels": ["6.1"]}, {"series": ["x"]}, {"provider": "vagrant"}):
        with pytest.raises(BadInput, match="both --matrix and options"):
            asked(path, "", [], **{"provider": "", **axes, **given})
    with pytest.raises(BadInput, match="--set without a matrix"):
        asked(None, "smoke", [], provider="", **axes)


def test_labs_cells_shows_excluded_cells_with_their_reason(tmp_path: Path) -> None:
    path = str(written(tmp_path, WHOLE))
    told = CliRunner().invoke(cells_, ["--matrix", path, "--cell", "6.1*_*un*", "--json"])
    rows = {row["id"]: row for row in json.loads(told.stdout)}
    assert rows["6.1_runc"]["excluded"] == "too slow" and rows["6.12_runc"]["excluded"] == ""
    assert rows["6.12_crun"]["note"].startswith("cpus 4; memory_mb 2048; not for suites/x: ")
    table = CliRunner().invoke(cells_, ["--matrix", path, "--set", "nightly"]).stdout
    assert "6.12.57_runc_lockdep" in table and "too slow" in table


def test_the_lab_s_own_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    matrix = read(Path("ci/matrix.toml"))
    assert ids(matrix, "smoke") == ["6.1_runc"]
    for name, chosen in matrix.sets.items():
        assert matrix.chosen(name) and all(Path(suite).is_dir() for suite in chosen.suites)


# The bridge


PROJECT = """\
[axes]
kernel = ["6.1", "6.12"]
[[exclude]]
cells = "6.1_*"
reason = "old"
[[include]]
kernel = "7.3"
[[override]]
cells = "6.12_*"
memory_mb = 2048
[feature.new]
since = "7.0"
[suite."test_it.py"]
requires = ["new"]
[set.big]
cells = ["6.12_*", "7.3_*"]
suites = "test_it.py"
full = true
"""


def test_pytest_runs_a_set(project: Project) -> None:
    written(project.root, PROJECT.replace('since = "7.0"', 'since = "6.0"'))
    body = "def test_a(bench, judge):\n    assert bench.full\n    " + PASS
    ended = project.run(suite(body), "--matrix", "m.toml", "--set", "big", "--cell", "6.12*")
    assert ended.code == 0 and ended.outcomes() == {"6.12_runc": {"a": "pass"}}
    assert (ended.root / "sizes.txt").read_text() == "{'memory_mb': 2048}", "of its override"


def test_pytest_skips_a_suite_where_its_feature_is_absent(project: Project) -> None:
    written(project.root, PROJECT)
    body = "def test_a(bench):\n    assert not bench.full\n    assert 0"
    ended = project.run(suite(body), "--matrix", "m.toml")
    assert ended.outcomes() == {"6.12_runc": {"a": "skip"}, "7.3_runc": {"a": "fail"}}
    assert ended.result("a", "6.12_runc").reason.endswith("kernel 6.12 has no new: since 7.0")
    assert "--matrix m.toml --cell 7.3_runc" in ended.result("a", "7.3_runc").replay
    assert (ended.root / "boots.txt").read_text() == "7.3_runc\n"


def test_a_cell_that_is_excluded_is_a_usage_error(project: Project) -> None:
    written(project.root, PROJECT)
    ended = project.run(suite(f"def test_a(bench, judge): {PASS}"), "--matrix", "m.toml", "--cell", "6.1_*")
    assert ended.code == 4 and "6.1_runc is excluded: old" in ended.text and "Traceback" not in ended.text
