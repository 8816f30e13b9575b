"""Every recorded patch gets its state, and so does each on trees that differ from the one it was made for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from patching import BASE, BETA, DATA, as_git, base_tree, edit, one, run, snapshot

from labs.errors import DoesNotApply, LabError
from labs.series import Malformed, Series, apply, examine, lint, read

ROWS = [re.split(r"\s{2,}", line) for line in (DATA / "states.txt").read_text().splitlines() if line[:1] not in "#"]
TABLE = {row[0]: (row[1].split(", "), row[2] if len(row) > 2 else "") for row in ROWS}
APPLICABLE = ("clean", "offset", "fuzz")
SWAPPED = """\
--- a/kernel/cgroup/cgroup.c
+++ b/kernel/cgroup/cgroup.c
@@ -16,7 +16,7 @@ static int cg_beta(struct cgroup *c)
 \tint ret;

 \tlock(c);
-\tret = step(c);
+\tret = fast_step(c);
 \tunlock(c);
 \treturn ret;
 }
"""
PLAIN = SWAPPED.replace(" static int cg_beta(struct cgroup *c)", "")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return base_tree(tmp_path / "tree")


def states(series: Series, tree: Path) -> list[str]:
    return [row.state for row in examine(series, tree)]


def test_the_table_names_every_recorded_patch() -> None:
    there = {path.name for path in DATA.iterdir()} - {"base-tree", "states.txt", ".gitattributes"}
    assert set(TABLE) == there


@pytest.mark.parametrize("name", TABLE)
def test_recorded_patches(name: str, tree: Path) -> None:
    (series,) = read(str(DATA / name))
    expected, what = TABLE[name]
    rows = examine(series, BASE, "base")
    assert ([row.state for row in rows], {row.target for row in rows}) == (expected, {"base"})
    assert all(what in row.detail and name in row.detail for row in rows if what)
    assert bool(lint(series)) == ("malformed" in expected)
    before = snapshot(tree)
    if "malformed" in expected:
        with pytest.raises(Malformed, match=re.escape(name)) as caught:
            apply(series, tree)
        assert caught.value.exit_code == 2 and "\n" not in str(caught.value)
        assert snapshot(tree) == before
        return
    apply(series, tree)
    assert snapshot(tree) != before
    assert states(series, tree) == ["already applied"] * len(expected)
    changed = snapshot(tree)
    with pytest.raises(DoesNotApply, match="the tree has all of it already"):
        apply(series, tree)
    assert snapshot(tree) == changed


@pytest.mark.parametrize("name", [name for name, (expected, _) in TABLE.items() if expected == ["clean"]])
def test_the_result_is_what_git_makes(name: str, tree: Path, tmp_path: Path) -> None:
    """Where git apply takes a recorded patch, both trees are the same afterwards."""
    theirs = base_tree(tmp_path / "theirs")
    (series,) = read(str(DATA / name))
    done = run(theirs, "git", "apply", str(DATA / name), check=False)
    apply(series, tree)
    refused_by_git = {"base64.mbox", "base64-crlf.mbox", "crlf.patch"}
    assert (done.returncode != 0) == (name in refused_by_git)
    if done.returncode == 0:
        assert as_git(snapshot(tree)) == as_git(snapshot(theirs))


def test_two_files_one_there_already(tree: Path) -> None:
    (series,) = read(str(DATA / "two-files.patch"))
    edit(tree / "README", "hello", "hey")
    (row,) = examine(series, tree)
    assert (row.state, "there already: README; not there: kernel/cgroup/Kconfig" in row.detail) == (
        "partly applied",
        True,
    )
    before = snapshot(tree)
    with pytest.raises(DoesNotApply, match="partly applied") as caught:
        apply(series, tree)
    assert caught.value.exit_code == 1 and snapshot(tree) == before
    edit(tree / "kernel/cgroup/Kconfig", "default n", "default y")
    assert states(series, tree) == ["already applied"]


@pytest.mark.parametrize(
    "old, new, state, said",
    [
        ("world\n", "mundo\n", "conflict", "README:2: line 2 is 'mundo', the patch has 'world'"),
        ("hello\n", "hallo\n", "fuzz 1", ""),
        ("world", "world ", "conflict", "README:2: line 2 differs in white space or line end only"),
        ("hello\nworld\n", "hello\n", "conflict", "README:2: the file has no line 2"),
        ("hello", "first\nhello", "offset 1", ""),
    ],
)
def test_a_changed_readme(tree: Path, old: str, new: str, state: str, said: str) -> None:
    (series,) = read(str(DATA / "lf.patch"))
    edit(tree / "README", old, new)
    (row,) = examine(series, tree)
    assert row.state == state and said in row.detail
    assert not said or "lf.patch:14" in row.detail


def test_target_absent(tree: Path) -> None:
    (series,) = read(str(DATA / "two-files.patch"))
    (tree / "kernel/cgroup/Kconfig").unlink()
    (row,) = examine(series, tree)
    assert (row.state, "two-files.patch:19: there is no kernel/cgroup/Kconfig" in row.detail) == ("target absent", True)
    with pytest.raises(DoesNotApply, match="target absent"):
        apply(series, tree)
    assert (tree / "README").read_text() == "hello\nworld\n"


def test_a_part_of_a_series_is_there(tree: Path) -> None:
    """Steps 1 and 2 are in the tree; step 1 alone can no longer be undone, because step 2 stands on it."""
    (series,) = read(str(DATA / "out-of-order.mbox"))
    (tree / "README").write_text("hello\nworld\nline1\nline2\n")
    assert states(series, tree) == ["already applied", "already applied", "clean"]
    apply(series, tree)
    assert (tree / "README").read_text() == "hello\nworld\nline1\nline2\nline3\n"


def test_a_series_that_changes_one_line_twice_is_known_as_there(tree: Path, tmp_path: Path) -> None:
    text = "--- a/README\n+++ b/README\n@@ -1,2 +1,2 @@\n-{}\n+{}\n world\n"
    for number, pair in enumerate((("hello", "one"), ("one", "two"), ("two", "three"))):
        (tmp_path / f"{number}.patch").write_text(text.format(*pair))
    (series,) = read(str(tmp_path))
    assert states(series, tree) == ["clean"] * 3
    edit(tree / "README", "hello", "three")
    assert states(series, tree) == ["already applied"] * 3
    edit(tree / "README", "three", "two")
    assert states(series, tree) == ["already applied", "already applied", "clean"]


def test_the_same_patch_twice(tmp_path: Path, tree: Path) -> None:
    for name in ("1-a.patch", "2-b.patch"):
        (tmp_path / name).write_bytes((DATA / "lf.patch").read_bytes())
    (series,) = read(str(tmp_path))
    assert states(series, tree) == ["clean", "already applied"]


class TestFunctions:
    """The same seven lines stand in three functions; the header names the second."""

    def test_offset(self, tree: Path, tmp_path: Path) -> None:
        edit(tree / BETA, "/* demo */", "/* demo */\n/* more */\n/* lines */")
        series = one(SWAPPED, tmp_path)
        assert states(series, tree) == ["offset 2"]
        applied = apply(series, tree)
        (landing,) = applied.landings
        assert (landing.path, landing.line, landing.offset, landing.fuzz) == (BETA, 18, 2, 0)
        assert (landing.function, landing.hunk.line) == ("static int cg_beta(struct cgroup *c)", 3)
        assert (tree / BETA).read_text().split("fast_step")[0].count("cg_") == 2

    def test_other_functions_came_before(self, tree: Path, tmp_path: Path) -> None:
        """At the very line of the header stands cg_gamma now; patch would take it without a word."""
        text = (tree / BETA).read_text()
        head, alpha, beta, gamma = re.split(r"(?=static int)", text)
        (tree / BETA).write_text(head + alpha + gamma + beta)
        series = one(SWAPPED, tmp_path)
        assert states(series, tree) == ["offset 10"]
        apply(series, tree)
        assert (tree / BETA).read_text() == head + alpha + gamma + beta.replace("step(c)", "fast_step(c)")
        assert run(tree, "patch", "-p1", "-R", "--dry-run", stdin=SWAPPED.encode()).returncode == 0

    def test_a_function_that_came_between(self, tree: Path) -> None:
        """The hunk starts in cg_alpha and changes cg_beta, as its own lines say; cg_new stands between them now."""
        edit(tree / BETA, "static int cg_beta", "int cg_new(void)\n{\n\treturn ret;\n}\n\nstatic int cg_beta")
        (series,) = read(str(DATA / "empty-context-stripped.patch"))
        assert states(series, tree) == ["offset 5"]
        (landing,) = apply(series, tree).landings
        assert landing.function == "static int cg_beta(struct cgroup *c)"

    def test_what_differs_is_named_where_the_function_is_now(self, tree: Path, tmp_path: Path) -> None:
        head, _, beta, _ = re.split(r"(?=static int)", (tree / BETA).read_text())
        (tree / BETA).write_text(head + "/* more */\n" * 40 + beta.replace("step(c)", "step(c, 0)"))
        (row,) = examine(one(SWAPPED, tmp_path), tree)
        assert row.state == "conflict"
        assert f"{BETA}:49: line 49 is 'ret = step(c, 0);', the patch has 'ret = step(c);'" in row.detail

    def test_only_other_functions_are_left(self, tree: Path, tmp_path: Path) -> None:
        text = (tree / BETA).read_text()
        head, alpha, beta, gamma = re.split(r"(?=static int)", text)
        (tree / BETA).write_text(head + alpha + beta.replace("unlock", "free") + gamma)
        (row,) = examine(one(SWAPPED, tmp_path), tree)
        assert row.state == "conflict"
        assert "it fits only in another function (static int cg_alpha" in row.detail and "at line 14" in row.detail
        assert run(tree, "patch", "-p1", "--dry-run", stdin=SWAPPED.encode()).returncode == 0  # into cg_gamma

    def test_there_already_although_it_would_fit_elsewhere(self, tree: Path, tmp_path: Path) -> None:
        series = one(PLAIN, tmp_path)
        apply(series, tree)
        assert states(series, tree) == ["already applied"]
        assert run(tree, "git", "apply", "--check", str(tmp_path / "x.patch"), check=False).returncode == 0

    def test_no_function_named(self, tree: Path, tmp_path: Path) -> None:
        assert states(one(PLAIN, tmp_path), tree) == ["clean"]
        edit(tree / BETA, "/* demo */", "/* demo */\n/* more */")
        (row,) = examine(one(PLAIN, tmp_path), tree)
        assert row.state == "ambiguous" and "it fits equally well at lines 7, 17, 27" in row.detail
        before = snapshot(tree)
        with pytest.raises(DoesNotApply, match="ambiguous"):
            apply(one(PLAIN, tmp_path), tree)
        assert snapshot(tree) == before

    def test_two_places_in_the_function_that_is_named(self, tree: Path, tmp_path: Path) -> None:
        block = "\tint ret;\n\n\tlock(c);\n\tret = step(c);\n\tunlock(c);\n\treturn ret;\n}\n"
        text = (tree / BETA).read_text().split("static int cg_gamma")[0]
        (tree / BETA).write_text("/* more */\n" + text.rstrip("\n") + "\n" + block)
        (row,) = examine(one(SWAPPED, tmp_path), tree)
        assert row.state == "ambiguous" and "lines 17, 24" in row.detail

    def test_two_places_in_the_function_and_one_at_the_line_but_in_another(self, tree: Path, tmp_path: Path) -> None:
        head, alpha, beta, gamma = re.split(r"(?=static int)", (tree / BETA).read_text())
        (tree / BETA).write_text(head + alpha + gamma + beta + beta.split("{\n")[1])
        (row,) = examine(one(SWAPPED, tmp_path), tree)
        assert row.state == "ambiguous" and "lines 26, 34" in row.detail

    def test_a_function_whose_declaration_changed(self, tree: Path, tmp_path: Path) -> None:
        edit(tree / BETA, "/* demo */", "/* demo */\n/* more */")
        edit(tree / BETA, "static int cg_beta(struct cgroup *c)", "int cg_beta(struct cgroup *c, int flags)")
        assert states(one(SWAPPED, tmp_path), tree) == ["offset 1"]

    def test_a_label_is_no_function(self, tree: Path, tmp_path: Path) -> None:
        edit(tree / BETA, "/* demo */", "/* demo */\n/* more */")
        text = (tree / BETA).read_text()
        before, after = text.split("static int cg_beta(struct cgroup *c)\n{\n")
        (tree / BETA).write_text(f"{before}static int cg_beta(struct cgroup *c)\n{{\nout:\n{after}")
        assert states(one(SWAPPED, tmp_path), tree) == ["offset 2"]


class TestFuzz:
    def test_counted_and_refused_unless_allowed(self, tree: Path, tmp_path: Path) -> None:
        text = (tree / BETA).read_text()
        before, after = text.split("static int cg_beta", 1)
        (tree / BETA).write_text(before + "static int cg_beta" + after.replace("\tint ret;", "\tlong ret;", 1))
        series = one(SWAPPED, tmp_path)
        assert states(series, tree) == ["fuzz 1"]
        whole = snapshot(tree)
        with pytest.raises(DoesNotApply, match="fits only with fuzz 1, allowed is 0"):
            apply(series, tree)
        assert snapshot(tree) == whole
        applied = apply(series, tree, fuzz=1)
        assert [(landing.fuzz, landing.function) for landing in applied.landings] == [
            (1, "static int cg_beta(struct cgroup *c)")
        ]
        assert "\tlong ret;\n\n\tlock(c);\n\tret = fast_step(c);" in (tree / BETA).read_text()

    def test_fuzz_two_and_no_more(self, tree: Path, tmp_path: Path) -> None:
        text = (tree / BETA).read_text()
        before, after = text.split("static int cg_beta", 1)
        two = before + "static int cg_beta" + after.replace("\treturn ret;\n}", "\treturn 0;\n}", 1)
        (tree / BETA).write_text(two)
        assert states(one(SWAPPED, tmp_path), tree) == ["fuzz 2"]
        (tree / BETA).write_text(two.replace("\tunlock(c);\n\treturn 0;", "\trelease(c);\n\treturn 0;", 1))
        assert states(one(SWAPPED, tmp_path), tree) == ["conflict"]


@pytest.mark.parametrize("patch", ["lf.patch", "crlf.patch"])
@pytest.mark.parametrize("tree_ending", ["LF", "CRLF"])
def test_line_ends(patch: str, tree_ending: str, tree: Path, tmp_path: Path) -> None:
    """The target keeps its line ends, and they are never mixed; the difference is named."""
    end = b"\r\n" if tree_ending == "CRLF" else b"\n"
    (tree / "README").write_bytes(b"hello" + end + b"world" + end)
    (series,) = read(str(DATA / patch))
    (row,) = examine(series, tree)
    kind = "CRLF" if patch == "crlf.patch" else "LF"
    assert (row.state, row.detail) == ("clean", "" if kind == tree_ending else f"patch {kind}, tree {tree_ending}")
    (tmp_path / "series.toml").write_text('line_endings = "refuse"\nfiles = ["x.patch"]\n')
    (tmp_path / "x.patch").write_bytes((DATA / patch).read_bytes())
    (strict,) = read(str(tmp_path))
    assert states(strict, tree) == ["clean" if kind == tree_ending else "conflict"]
    apply(series, tree)
    assert (tree / "README").read_bytes() == b"hello" + end + b"world2" + end


def test_a_patch_that_changes_line_ends_is_taken_as_it_is(tree: Path, tmp_path: Path) -> None:
    (tree / "README").write_bytes(b"hello\r\nworld\r\n")
    text = b"--- a/README\n+++ b/README\n@@ -1,2 +1,2 @@\n-hello\r\n-world\r\n+hello\n+world\n"
    apply(one(text, tmp_path), tree)
    assert (tree / "README").read_bytes() == b"hello\nworld\n"


def test_examining_writes_nothing_and_reads_only_what_is_named(tree: Path) -> None:
    (tree / "other").symlink_to("/nonexistent")
    before = {path: path.lstat().st_mtime_ns for path in [tree, *tree.rglob("*")]}
    for name in TABLE:
        for series in read(str(DATA / name)):
            examine(series, tree)
    assert {path: path.lstat().st_mtime_ns for path in [tree, *tree.rglob("*")]} == before


def test_no_such_tree() -> None:
    (series,) = read(str(DATA / "lf.patch"))
    with pytest.raises(LabError, match="no such tree"):
        examine(series, DATA / "nothing")
