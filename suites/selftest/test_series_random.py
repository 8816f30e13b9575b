"""Random files: what is applied is what the diff said, and what cannot be told is refused, never guessed."""

from __future__ import annotations

import difflib
import tempfile
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st
from patching import run

from labs.series.content import change
from labs.series.diff import parse
from labs.series.identity import blob_digest
from labs.series.place import Text
from labs.series.values import FileDiff, Where

LINES = st.lists(st.sampled_from(["", "a", "b", "}", "\tx;", "int f(int a)", "int g(int a)", "out:"]), max_size=24)
END = st.sampled_from(["\n", "\r\n"])
QUICK = settings(max_examples=60, deadline=None, database=None, derandomize=True)


@st.composite
def contents(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """Two contents, mostly alike."""
    old = draw(LINES)
    new = list(old)
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(new)))
        new[at : at + draw(st.integers(0, 2))] = draw(st.lists(st.sampled_from(["new", "a", "}"]), max_size=2))
    end = draw(END)
    cut = [draw(st.booleans()) and len(end) for _ in range(2)]
    made = [end.join([*lines, ""]) for lines in (old, new)]
    return tuple(text[: len(text) - drop].encode() for text, drop in zip(made, cut, strict=True))  # type: ignore[return-value]


def diff_of(old: bytes, new: bytes, context: int, blobs: bool) -> FileDiff | None:
    """The FileDiff that diff -u makes, None where nothing differs."""
    before, after = (Text(data).lines for data in (old, new))
    marked = difflib.diff_bytes(difflib.unified_diff, before, after, b"a/f", b"b/f", n=context)
    text = b"".join(
        line if line.endswith(b"\n") else line + b"\n\\ No newline at end of file\n" for line in list(marked)[2:]
    )
    if not text:
        return None
    index = f"index {blob_digest(old)}..{blob_digest(new)} 100644\n".encode() if blobs else b""
    parsed = parse(b"diff --git a/f b/f\n" + index + b"--- a/f\n+++ b/f\n" + text, lambda line: Where("f", line + 1))
    assert parsed.problems == ()
    return parsed.files[0]


@QUICK
@given(contents(), st.integers(0, 3))
def test_with_blobs_it_always_applies_and_reverses(pair: tuple[bytes, bytes], context: int) -> None:
    old, new = pair
    diff = diff_of(old, new, context, blobs=True)
    if diff:
        done = change(old, diff)
        assert (done.state, done.data) == ("apply", new)
        assert {(landing.offset, landing.fuzz) for landing in done.landings} == {(0, 0)}
        back = change(new, diff.reversed())
        assert (back.state, back.data) == ("apply", old)
        assert change(new, diff).state == "done" and change(old, diff.reversed()).state == "done"


@QUICK
@given(contents(), st.integers(1, 3))
def test_without_blobs_it_is_right_or_refused(pair: tuple[bytes, bytes], context: int) -> None:
    old, new = pair
    diff = diff_of(old, new, context, blobs=False)
    if diff:
        done = change(old, diff)
        assert done.state in ("apply", "ambiguous", "conflict", "partly applied")
        assert done.state != "apply" or done.data == new
        assert change(new, diff).state != "apply" or change(new, diff).data != new


@QUICK
@given(contents(), st.integers(1, 9), st.integers(1, 3))
@example((b"a\nb\nint f(int a)\n{\n\tx;\n}\n", b"a\nb\nint f(int a)\n{\n\ty;\n}\n"), 3, 3)
def test_lines_before_are_an_offset(pair: tuple[bytes, bytes], lines: int, context: int) -> None:
    old, new = pair
    above = b"".join(b"above %d\n" % number for number in range(lines))
    diff = diff_of(old, new, context, blobs=False)
    if diff:
        done = change(above + old, diff)
        if done.state == "apply" and not any(landing.fuzz for landing in done.landings):
            moved = {landing.offset for landing in done.landings}
            assert moved != {lines} or done.data == above + new


@settings(max_examples=20, deadline=None, database=None, derandomize=True)
@given(contents())
def test_git_makes_the_same(pair: tuple[bytes, bytes]) -> None:
    """Diffs that git makes, applied by git and here."""
    old, new = pair
    with tempfile.TemporaryDirectory() as folder:
        for name, data in (("old", old), ("new", new), ("f", old)):
            (Path(folder) / name).write_bytes(data)
        text = run(Path(folder), "git", "diff", "--no-index", "--full-index", "old", "new", check=False).stdout
        text = text.replace(b"a/old", b"a/f").replace(b"b/new", b"b/f")
        if text:
            parsed = parse(text, lambda line: Where("f", line + 1))
            run(Path(folder), "git", "apply", "-", stdin=text)
            assert (Path(folder) / "f").read_bytes() == change(old, parsed.files[0]).data == new


@QUICK
@given(st.binary(max_size=300), st.integers(0, 3))
def test_no_bytes_break_the_reader(noise: bytes, kind: int) -> None:
    head = [b"", b"--- a/f\n+++ b/f\n@@ -1 +1 @@\n", b"diff --git a/f b/f\n", b"diff --git a/f b/f\nGIT binary patch\n"]
    parse(head[kind] + noise, lambda line: Where("f", line + 1))
