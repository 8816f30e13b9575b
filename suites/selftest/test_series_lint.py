"""What no tree should ever see: cut, miscounted, damaged and dangerous patches, each family with its file and line."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from patching import BASE, DATA, base_tree, one, repository, run, snapshot

from labs.errors import BadInput, DoesNotApply
from labs.series import Malformed, apply, examine, lint, read

LF = (DATA / "lf.patch").read_bytes()
TWO = (DATA / "two-files.patch").read_bytes()
BINARY = (DATA / "binary-plus-text.patch").read_bytes()
STAT = re.compile(rb"---\n(?: [^\n]*\n)+\n", re.MULTILINE)


def refused(data: bytes | str, folder: Path) -> str:
    """All problems of a patch that must be malformed, in lint, examine and apply alike; the tree stays as it was."""
    series = one(data, folder)
    problems = "; ".join(map(str, lint(series)))
    rows = examine(series, BASE)
    assert {row.state for row in rows} == {"malformed"}, rows
    tree = base_tree(folder / "tree")
    (folder / "outside.txt").write_text("hello\nworld\n")
    before = snapshot(folder)
    with pytest.raises(Malformed) as caught:
        apply(series, tree)
    assert caught.value.exit_code == 2 and "\n" not in str(caught.value)
    assert snapshot(folder) == before
    return problems or rows[0].detail


@pytest.mark.parametrize("name", ["lf.patch", "two-files.patch", "rename-only.patch", "binary-plus-text.patch"])
@pytest.mark.parametrize("ending", [b"\n", b"\r\n"], ids=["lf", "crlf"])
def test_cut_after_any_line(name: str, ending: bytes, tmp_path: Path) -> None:
    """Cut anywhere above its last hunk line, a mail is malformed: never a shorter patch that fits."""
    whole = (DATA / name).read_bytes()
    lines = whole.splitlines(keepends=True)
    end = next(number for number in range(len(lines) - 1, 0, -1) if lines[number] == b"-- \n")
    end -= 2 if b"GIT binary" in whole else 0  # the empty line that ends the backward data, which is no use without it
    for count in range(1, end):
        text = b"".join(lines[:count]).replace(b"\n", ending)
        problems = lint(one(text, tmp_path))
        assert problems, f"cut after line {count}: {lines[count - 1]!r}"
        assert all(problem.where.file == str(tmp_path / "x.patch") for problem in problems)


@pytest.mark.parametrize("cut", range(1, 12))
def test_cut_inside_the_last_line(cut: int, tmp_path: Path) -> None:
    body = TWO[: TWO.index(b"-- \n")]
    assert lint(one(body, tmp_path)) == ()
    assert "ends" in refused(body[:-cut], tmp_path)


@pytest.mark.parametrize("field", range(4))
@pytest.mark.parametrize("by", [-1, 1, 100])
@pytest.mark.parametrize("signed", [True, False], ids=["signature", "bare"])
def test_counts_off(field: int, by: int, signed: bool, tmp_path: Path) -> None:
    """A header whose counts are not its body's. Line numbers alone may be off: that is an offset, no damage."""
    text = TWO if signed else TWO[: TWO.index(b"-- \n")]
    numbers = [1, 3, 1, 3]
    numbers[field] += by
    text = text.replace(b"@@ -1,3 +1,3 @@", b"@@ -%d,%d +%d,%d @@" % tuple(numbers))
    if field in (1, 3):
        assert re.search(r"x\.patch:2[3-9]", refused(text, tmp_path))
    elif numbers[field] > 0:
        assert lint(one(text, tmp_path)) == ()
    else:
        assert "lines at line 0" in refused(text, tmp_path)


def test_the_first_of_two_hunks_is_longer_than_it_says(tmp_path: Path) -> None:
    text = "--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n+d\n@@ -9 +9 @@\n-e\n+f\n"
    assert "x.patch:7: the hunk's body is longer than its header says" in refused(text, tmp_path)


def test_a_removed_line_that_looks_like_a_signature_is_a_line(tmp_path: Path) -> None:
    text = "--- a/README\n+++ b/README\n@@ -1,3 +1,2 @@\n hello\n-- \n world\n"
    assert lint(one(text, tmp_path)) == ()
    (hunk,) = one(text, tmp_path).patches[0].files[0].hunks
    assert hunk.old == (b"hello\n", b"- \n", b"world\n")


NAMES: dict[str, Callable[[str], str]] = {
    "in +++ only": lambda bad: f"--- a/README\n+++ b/{bad}\n@@ -1,2 +1,2 @@\n hello\n-world\n+w\n",
    "in --- only": lambda bad: f"--- a/{bad}\n+++ b/README\n@@ -1,2 +1,2 @@\n hello\n-world\n+w\n",
    "without prefix": lambda bad: f"--- {bad}\n+++ {bad}\n@@ -1,2 +1,2 @@\n hello\n-world\n+w\n",
    "new file": lambda bad: f"--- /dev/null\n+++ b/{bad}\n@@ -0,0 +1 @@\n+w\n",
    "deleted": lambda bad: f"--- a/{bad}\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-hello\n-world\n",
    "rename to": lambda bad: (
        f"diff --git a/README b/{bad}\nsimilarity index 100%\nrename from README\nrename to {bad}\n"
    ),
    "rename to, hidden": lambda bad: (
        f"diff --git a/README b/README\nsimilarity index 100%\nrename from README\nrename to {bad}\n"
    ),
    "rename from": lambda bad: (
        f"diff --git a/{bad} b/README2\nsimilarity index 100%\nrename from {bad}\nrename to README2\n"
    ),
    "copy to": lambda bad: f"diff --git a/README b/{bad}\nsimilarity index 100%\ncopy from README\ncopy to {bad}\n",
    "git line only": lambda bad: (
        f"diff --git a/{bad} b/{bad}\nindex 94954ab..b5056cb 100644\n--- a/README\n+++ b/README\n"
        "@@ -1,2 +1,2 @@\n hello\n-world\n+w\n"
    ),
    "mode": lambda bad: f"diff --git a/{bad} b/{bad}\nold mode 100644\nnew mode 100755\n",
    "with time": lambda bad: (
        f"--- a/{bad}\t2026-01-01 00:00:00\n+++ b/{bad}\t2026-01-01 00:00:01\n@@ -1,2 +1,2 @@\n hello\n-world\n+w\n"
    ),
    "quoted": lambda bad: (
        f'--- "a/{bad.replace(".", chr(92) + "056")}"\n+++ "b/{bad.replace(".", chr(92) + "056")}"\n'
        "@@ -1,2 +1,2 @@\n hello\n-world\n+w\n"
    ),
}


@pytest.mark.parametrize("form", NAMES)
@pytest.mark.parametrize(
    "bad", ["../outside.txt", "../../outside.txt", "x/../../outside.txt", "kernel/../../outside.txt", ".git/config"]
)
def test_no_name_leaves_the_tree(form: str, bad: str, tmp_path: Path) -> None:
    told = refused(NAMES[form](bad), tmp_path)
    assert "refused" in told and ("leaves the tree" in told or "git's own folder" in told)


@pytest.mark.parametrize("form", ["without prefix", "with time"])
def test_no_name_is_absolute(form: str, tmp_path: Path) -> None:
    text = NAMES[form]("ABSOLUTE").replace("a/ABSOLUTE", "ABSOLUTE").replace("b/ABSOLUTE", "ABSOLUTE")
    assert "is absolute: refused" in refused(text.replace("ABSOLUTE", f"{tmp_path}/outside.txt"), tmp_path)


@pytest.mark.parametrize("name", ["a//x", "a/./x", "a/x/", 'a/x"', "a/.GIT/hooks/post-checkout"])
def test_odd_names(name: str, tmp_path: Path) -> None:
    text = f"--- {name}\n+++ b{name[1:]}\n@@ -1 +1 @@\n-a\n+b\n"
    series = one(text, tmp_path)
    assert bool(lint(series)) == (name != 'a/x"')


@pytest.mark.parametrize("where", ["folder", "file", "outside folder"])
def test_symbolic_links_of_the_tree_are_not_followed(where: str, tmp_path: Path) -> None:
    tree, outside = base_tree(tmp_path / "tree"), tmp_path / "outside"
    outside.mkdir()
    (outside / "README").write_text("hello\nworld\n")
    link, name = {
        "folder": ("linked", "linked/README"),
        "file": ("README", "README"),
        "outside folder": ("kernel/linked", "kernel/linked/README"),
    }[where]
    if (tree / link).exists():
        (tree / link).unlink()
    (tree / link).symlink_to(outside / "README" if where == "file" else tree if where == "folder" else outside)
    before = snapshot(tmp_path)
    series = one(LF.replace(b"README", name.encode()), tmp_path)
    (row,) = examine(series, tree)
    assert row.state == ("conflict" if where == "file" else "malformed") and "symbolic link" in row.detail
    with pytest.raises(Exception, match="symbolic link"):
        apply(series, tree)
    (tmp_path / "x.patch").unlink()
    assert snapshot(tmp_path) == before


LINK = (
    "diff --git a/{0} b/{0}\nnew file mode 120000\nindex 0000000..1111111\n--- /dev/null\n+++ b/{0}\n@@ -0,0 +1 @@\n"
    "+{1}\n\\ No newline at end of file\n"
)
NEW = (
    "diff --git a/{0} b/{0}\nnew file mode 100644\nindex 0000000..1111111\n--- /dev/null\n+++ b/{0}\n"
    "@@ -0,0 +1 @@\n+x\n"
)


@pytest.mark.parametrize(
    "path, target, why",
    [
        ("link", "README", ""),
        ("kernel/link", "../README", ""),
        ("kernel/link", "..", ""),
        ("kernel/link", ".././/README", ""),
        ("kernel/link", ".././..", "leaves the tree"),
        ("kernel/link", "../../outside.txt", "leaves the tree"),
        ("link", "/etc/passwd", "leaves the tree"),
        ("link", "kernel/../../outside.txt", "behind a name"),
        ("link", "kernel/../README", "behind a name"),
    ],
)
def test_links_that_a_patch_makes_stay_inside(path: str, target: str, why: str, tmp_path: Path) -> None:
    text = LINK.format(path, target)
    if why:
        assert why in refused(text, tmp_path)
    else:
        tree = base_tree(tmp_path / "tree")
        apply(one(text, tmp_path), tree)
        assert os.readlink(tree / path) == target


@pytest.mark.parametrize("first", [0, 1])
def test_a_link_does_not_leave_the_tree_through_another_one(tmp_path: Path, first: int) -> None:
    """Each alone stays inside by the count of its words."""
    (tmp_path / "outside.txt").write_text("outside the tree")
    links = [LINK.format("d1/d2/l", "../.."), LINK.format("m", "d1/d2/l/../outside.txt")]
    assert "'..' behind a name" in refused(links[first] + links[1 - first], tmp_path)


def test_nothing_is_written_through_a_link_that_the_patch_made(tmp_path: Path) -> None:
    assert "inside link, which is no folder" in refused(LINK.format("link", "kernel") + NEW.format("link/x"), tmp_path)
    tree = tmp_path / "tree"
    (tmp_path / "many").mkdir()
    (tmp_path / "many/1.patch").write_text(LINK.format("link", "kernel"))
    (tmp_path / "many/2.patch").write_text(NEW.format("link/x"))
    (series,) = read(str(tmp_path / "many"))
    assert [row.state for row in examine(series, tree)] == ["clean", "malformed"]
    with pytest.raises(Malformed, match="link is a symbolic link"):
        apply(series, tree)
    assert not (tree / "link").exists()


@pytest.mark.parametrize("second", [NEW.format("made"), LINK.format("made", "README")], ids=["file", "link"])
def test_a_folder_that_an_earlier_patch_made_stays_one(second: str, tmp_path: Path) -> None:
    tree = base_tree(tmp_path / "tree")
    (tmp_path / "many").mkdir()
    (tmp_path / "many/1.patch").write_text(NEW.format("made/x"))
    (tmp_path / "many/2.patch").write_text(second)
    (series,) = read(str(tmp_path / "many"))
    assert [row.state for row in examine(series, tree)] == ["clean", "conflict"]
    with pytest.raises(DoesNotApply, match="made is a folder"):
        apply(series, tree)


MOVE = b"diff --git a/README b/README2\nsimilarity index 100%\nrename from README\nrename to README2\n"


@pytest.mark.parametrize(
    "data, said",
    [
        (LF.decode().encode("utf-16"), "text in UTF-16"),
        (LF.decode().encode("utf-16-le"), "text in UTF-16 without a mark"),
        (LF.decode().encode("utf-16-be"), "text in UTF-16 without a mark"),
        (LF.decode().encode("utf-32"), "text in UTF-32"),
        (LF.replace(b"world2", b"wor\0ld2"), "x.patch:17: a zero byte"),
        (b"\x1f\x8b\x08\0\0\0\0\0\0\3" + bytes(range(200)), "a zero byte"),
        (b"\n \n\n", "empty"),
        (b"*** a/x\n--- b/x\n***************\n*** 1 ****\n! a\n--- 1 ----\n! b\n", "a context diff"),
        (LF.replace(b"@@ -1,2", b"@@@ -1,2 -1,2"), "x.patch:14: a combined diff"),
        (LF.replace(b"@@ -1,2 +1,2 @@", b"@@ -1,two +1,2 @@"), "x.patch:14: hunk header cannot be read"),
        (LF.replace(b"@@ -1,2 +1,2 @@", b"@@ -1,9999999999 +1,2 @@"), "x.patch:14: hunk header cannot be read"),
        (re.sub(rb"(?s)diff --git.*?@@", b"@@", LF, count=1), "x.patch:10: a hunk without the names of its file"),
        (LF.replace(b"+++ b/README", b"+++ b/OTHER"), "names disagree: 'README' and 'OTHER'"),
        (
            LF.replace(b"--- a/README\n+++ b/README", b"--- a/OTHER\n+++ b/OTHER"),
            "names disagree: 'README' and 'OTHER'",
        ),
        (MOVE.replace(b"rename to README2", b"rename to OTHER"), "names disagree: 'README2' and 'OTHER'"),
        (MOVE.replace(b"100%", b"60%"), "a changed file without a hunk"),
        (MOVE + b"--- a/README\n+++ b/README2\n", "names of files without a hunk"),
        (MOVE.replace(b"rename from README\n", b""), "one name of a rename is missing"),
        (b"diff --git a/README b/README\nnew mode 100755\n", "one of 'old mode' and 'new mode' is missing"),
        (LF.replace(b"+world2\n", b"+world2\n\\ No newline at end of file\n+x\n").replace(b"+1,2", b"+1,3"), "middle"),
        (BINARY.replace(b"zcmV+{0n", b"zcmV+{1n"), "binary data is damaged"),
        (BINARY.replace(b"literal 300", b"literal 301"), "binary data is damaged"),
        (BINARY.replace(b"0000000000000000000000000000000000000000..4d4881fd", b"0000000..4d4881fd"), "full 'index'"),
        (BINARY.replace(b"..4d4881fd", b"..4d4881fe"), "does not make what 'index' says"),
        (LF.replace(b" hello", b"hello"), "x.patch:15: not a line of a hunk: 'hello'"),
        (LF.replace(b"100644", b"160000"), "submodules"),
        (LF + LF[LF.index(b"diff") :], "README is changed twice in one patch, first at line 10"),
    ],
)
def test_damage(data: bytes, said: str, tmp_path: Path) -> None:
    assert said in refused(data, tmp_path)


def test_a_diff_quoted_in_the_message(tmp_path: Path) -> None:
    """git am would apply the quotation too. Indented it is harmless."""
    quoted = b"--- a/README\n+++ b/README\n@@ -1,2 +1,2 @@\n-hello\n+hi\n world\n"
    text = LF.replace(b"\n\n---\n", b"\n\nThis broke:\n\n" + quoted + b"\nso mend it.\n---\n", 1)
    assert "x.patch:8: a diff is quoted in the message" in refused(text, tmp_path)
    indented = b"".join(b"    " + line for line in quoted.splitlines(keepends=True))
    series = one(text.replace(quoted, indented), tmp_path)
    assert (lint(series), len(series.patches[0].files)) == ((), 1)
    assert "    -hello" in series.patches[0].message


def test_an_edited_patch_with_its_old_diffstat_is_no_cut_one(tmp_path: Path) -> None:
    text = TWO.replace(b"2 files changed", b"3 files changed")
    assert lint(one(text, tmp_path)) == ()
    assert "cut short" in refused(text[: text.index(b"-- \n")], tmp_path)


def test_an_input_of_endless_size_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("labs.series.spec.LIMIT", 100)
    with pytest.raises(BadInput, match="larger than"):
        one(LF, tmp_path)


def test_hostile_input_is_refused_soon(tmp_path: Path) -> None:
    began = time.monotonic()
    for data in (
        b"--- a/" + b"x " * 200_000 + b"\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n",
        b"diff --git " + b'"' * 300_000 + b"\n" + b"@@ -1 +1 @@\n-a\n+b\n",
        b"From " + b"a " * 200_000 + b"\nFrom: x\n",
        b"Subject: " + b"[" * 200_000 + b"\n\nx\n",
        b"Subject: " + b"=?" * 100_000 + b"\n\nx\n",
        b"From: a\nSubject: b\n\n" + b"From x\n" * 10_000,
        b"Subject: " + b"=?a?q?" * 60_000 + b"\n\nx\n",
        b"Subject: " + b"re:" * 200_000 + b"\n\nx\n",
        (b"--- a/" + b" " * 8000 + b"x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n") * 40,
        b"".join(b'Content-Type: multipart/mixed; boundary="%d"\n\n--%d\n' % (n, n) for n in range(1500)),
        b'Subject: x\nContent-Type: multipart/mixed; boundary="0"\n\n--0\n'
        + b"".join(b'Content-Type: multipart/mixed; boundary="%d"\n\n--%d\n' % (n, n) for n in range(1, 1500)),
        b"--- a/x\n+++ b/x\n" + b"@@ -1 +1 @@\n-a\n+b\n" * 4_000,
    ):
        assert lint(one(data, tmp_path))
    assert time.monotonic() - began < 20  # a fraction of a second; what grows with the square takes minutes


def test_binary_data_does_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert lint(one(BINARY, tmp_path)) == ()
    monkeypatch.setattr("labs.series.diff.LIMIT", 299)
    assert "binary data is damaged, cut or too much" in str(lint(one(BINARY, tmp_path))[0])


def test_a_hunk_that_fits_everywhere_is_ambiguous_soon(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "x").write_text("a\n" * 100_000)
    series = one("--- a/x\n+++ b/x\n@@ -50000,3 +50000,4 @@ f(int a)\n a\n a\n+b\n a\n", tmp_path)
    began = time.monotonic()
    assert [row.state for row in examine(series, tree)] == ["ambiguous"]
    assert time.monotonic() - began < 20


def test_a_surrounding_repository_and_its_hooks_play_no_part(tmp_path: Path) -> None:
    tree = base_tree(tmp_path / "tree")
    repository(tree)
    hook = tree / ".git/hooks/applypatch-msg"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\ntouch ../ran\n")
    hook.chmod(0o755)
    before = snapshot(tree / ".git")
    apply(one(LF, tmp_path), tree)
    assert snapshot(tree / ".git") == before and not (tmp_path / "ran").exists()
    assert run(tree, "git", "diff", "--name-only").stdout == b"README\n"
