"""Where hunks may lie: whole lines only, apart and in order, both ends of a file kept, and never by guess."""

from __future__ import annotations

from pathlib import Path

import pytest
from patching import DATA, base_tree, edit, one

from labs.series import examine, read
from labs.series.content import change
from labs.series.diff import parse
from labs.series.place import Miss, Spot, Text, locate
from labs.series.values import FileDiff, Where


def diff(body: str) -> FileDiff:
    parsed = parse(f"--- a/f\n+++ b/f\n{body}".encode(), lambda line: Where("f", line + 1))
    assert parsed.problems == ()
    return parsed.files[0]


def test_blocks_are_whole_lines() -> None:
    assert Text(b"xa\na\nxa\n").places(b"a\n", 0) == [1]
    assert Text(b"a\nab\na").places(b"a", 0) == [2]
    assert Text(b"a\na\na\n").places(b"a\n", 1) == [1, 2]


def test_a_hunk_lies_behind_the_one_before() -> None:
    (hunk,) = diff("@@ -1 +1 @@\n-a\n+b\n").hunks
    found = locate(Text(b"a\na\n"), hunk, 0, 1)
    assert isinstance(found, Spot) and found.index == 1
    two = diff("@@ -1 +1 @@\n-a\n+b\n@@ -2 +2 @@\n-a\n+c\n")
    assert change(b"x\na\n", two).state != "apply"


def test_an_end_without_a_newline_is_the_end_of_the_file() -> None:
    (hunk,) = diff("@@ -1 +1 @@\n-a\n+b\n\\ No newline at end of file\n").hunks
    assert isinstance(locate(Text(b"a\nc\n"), hunk, 0, 0), Miss)
    assert isinstance(locate(Text(b"a\n"), hunk, 0, 0), Spot)


def test_a_hunk_that_begins_the_file_needs_fuzz_elsewhere(tmp_path: Path) -> None:
    tree = base_tree(tmp_path / "tree")
    edit(tree / "README", "hello", "first\nhello")
    (series,) = read(str(DATA / "from-line-in-body.mbox"))
    assert [row.state for row in examine(series, tree)] == ["fuzz 1"]


def test_no_more_places_than_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("labs.series.place.MANY", 3)
    (hunk,) = diff("@@ -2 +2 @@\n-a\n+b\n").hunks
    found = locate(Text(b"a\n" * 9), hunk, 0, 0)
    assert isinstance(found, Miss) and (found.state, "in 3 places and more" in found.why) == ("ambiguous", True)


def test_the_offset_of_the_hunk_before_decides() -> None:
    old = b"new\n" * 2 + b"one\ntwo\nthree\nx\ny\nz\nx\ny\nz\n"
    whole = diff("@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n@@ -4,3 +4,3 @@\n x\n-y\n+Y\n z\n")
    done = change(old, whole)
    assert (done.state, [landing.offset for landing in done.landings]) == ("apply", [2, 2])
    assert done.data == b"new\nnew\none\n2\nthree\nx\nY\nz\nx\ny\nz\n"


def test_what_fits_both_ways_is_ambiguous() -> None:
    done = change(b"x\n" * 9, diff("@@ -2,6 +2,7 @@\n x\n x\n x\n+x\n x\n x\n x\n"))
    assert (done.state, "it fits both ways" in done.detail) == ("ambiguous", True)


def test_the_nearer_of_there_already_and_to_apply_counts() -> None:
    """Line 2 has it already; the same change would also fit at line 5, where nobody asked for it."""
    body = "@@ -1,3 +1,3 @@\n x\n-y\n+Y\n z\n"
    assert change(b"x\nY\nz\nx\ny\nz\n", diff(body)).state == "done"
    assert change(b"x\ny\nz\nx\nY\nz\n", diff(body)).state == "apply"


def test_a_new_file_that_is_there_makes_a_patch_partly_applied(tmp_path: Path) -> None:
    tree = base_tree(tmp_path / "tree")
    (tree / "new").write_text("one\n")
    text = "--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+one\n"
    text += "--- a/README\n+++ b/README\n@@ -1,2 +1,2 @@\n-hello\n+hi\n world\n"
    assert [row.state for row in examine(one(text, tmp_path), tree)] == ["partly applied"]


def test_the_same_patch_again_after_its_lines_changed(tmp_path: Path) -> None:
    text = "--- a/README\n+++ b/README\n@@ -1,2 +1,2 @@\n-{}\n+{}\n world\n"
    for number, pair in enumerate((("hello", "one"), ("one", "two"), ("hello", "one"))):
        (tmp_path / f"{number}.patch").write_text(text.format(*pair))
    (series,) = read(str(tmp_path))
    rows = examine(series, base_tree(tmp_path / "tree"))
    assert [row.state for row in rows] == ["clean", "clean", "already applied"]
    assert "same patch-id as '0.patch'" in rows[2].detail


def test_what_can_be_undone_only_with_fuzz_is_not_there(tmp_path: Path) -> None:
    tree = base_tree(tmp_path / "tree")
    (tree / "README").write_text("one\n2\n3\nNEW\n5\n6\n7\n")
    text = "--- a/README\n+++ b/README\n@@ -1,7 +1,7 @@\n 1\n 2\n 3\n-old\n+NEW\n 5\n 6\n 7\n"
    assert [row.state for row in examine(one(text, tmp_path), tree)] == ["conflict"]
