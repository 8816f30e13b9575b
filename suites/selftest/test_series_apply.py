"""All of a series or nothing: bytes, modes and links as meant, and a tree as before after every kind of failure."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from patching import BASE, BETA, DATA, as_git, base_tree, edit, everything, one, run, snapshot

from labs.errors import DoesNotApply, LabError
from labs.series import Malformed, apply, examine, read
from labs.series.binary import Binary, result

TWO = DATA / "two-files.patch"


def plain(tree: Path) -> dict[str, tuple[int, bytes]]:
    return {name: what for name, what in snapshot(tree).items() if not name.startswith(".git")}


def pristine(repository: Path, folder: Path) -> Path:
    """The tree of the commit before the last."""
    run(repository, "git", "worktree", "add", "-q", "--detach", str(folder), "HEAD~1")
    (folder / ".git").unlink()
    return folder


def test_all_that_git_can_say_and_back(tmp_path: Path) -> None:
    repository, text = everything(tmp_path / "repository")
    tree = pristine(repository, tmp_path / "tree")
    before = snapshot(tree)
    applied = apply(one(text, tmp_path), tree)
    assert as_git(snapshot(tree)) == as_git(plain(repository))
    assert len(applied.files) == 13
    assert {landing.path for landing in applied.landings} == {"large", "with space é", "kernel/cgroup/cgroup.c", "copy"}
    assert [row.state for row in examine(one(text, tmp_path), tree)] == ["already applied"]
    (tmp_path / "series").write_text("x.patch -R\n")
    (back,) = read(str(tmp_path / "series"))
    apply(back, tree)
    assert as_git(snapshot(tree)) == as_git(before)


@pytest.mark.parametrize("name", ["two-files.patch", "rename-only.patch", "out-of-order.mbox", "quilt"])
def test_hard_links_keep_the_old_content(name: str, tmp_path: Path) -> None:
    shared = base_tree(tmp_path / "shared")
    before, inodes = snapshot(shared), {path: path.stat().st_ino for path in shared.rglob("*")}
    tree = tmp_path / "tree"
    shutil.copytree(shared, tree, copy_function=os.link)
    apply(read(str(DATA / name))[0], tree)
    assert snapshot(shared) == before and snapshot(tree) != before
    assert {path: path.stat().st_ino for path in shared.rglob("*")} == inodes


@pytest.mark.parametrize("mode", [0o644, 0o755, 0o600, 0o440])
def test_permissions_stay(mode: int, tmp_path: Path) -> None:
    tree = base_tree(tmp_path / "tree")
    (tree / "README").chmod(mode)
    apply(read(str(TWO))[0], tree)
    assert (tree / "README").stat().st_mode & 0o7777 == mode


@pytest.mark.parametrize("before, after", [(0o644, 0o755), (0o600, 0o700), (0o640, 0o750)])
def test_a_patch_of_the_mode(before: int, after: int, tmp_path: Path) -> None:
    tree = base_tree(tmp_path / "tree")
    (tree / "README").chmod(before)
    series = one("diff --git a/README b/README\nold mode 100644\nnew mode 100755\n", tmp_path)
    apply(series, tree)
    assert (tree / "README").stat().st_mode & 0o7777 == after
    assert [row.state for row in examine(series, tree)] == ["already applied"]


def git_patch(tmp_path: Path, change: Callable[[Path], object], *options: str) -> bytes:
    """What git diff says of a change of the small tree."""
    for name in ("a", "b"):
        base_tree(tmp_path / "diff" / name)
    change(tmp_path / "diff" / "b")
    text = run(tmp_path / "diff", "git", "diff", "--no-index", "--no-prefix", *options, "a", "b", check=False).stdout
    shutil.rmtree(tmp_path / "diff")
    return text


RENAMED = (
    b"diff --git a/README b/docs/deep/README\nsimilarity index 60%\nrename from README\nrename to docs/deep/README\n"
    b"index 94954ab..b5056cb 100644\n--- a/README\n+++ b/docs/deep/README\n@@ -1,2 +1,2 @@\n hello\n-world\n+world2\n"
)


class TestRenames:
    def test_into_a_new_folder_and_out_of_it(self, tmp_path: Path) -> None:
        tree = base_tree(tmp_path / "tree")
        before = snapshot(tree)
        series = one(RENAMED, tmp_path)
        assert apply(series, tree).files == ("README", "docs/deep/README")
        assert (tree / "docs/deep/README").read_text() == "hello\nworld2\n" and not (tree / "README").exists()
        assert [row.state for row in examine(series, tree)] == ["already applied"]
        (tmp_path / "series").write_text("x.patch -R")
        apply(read(str(tmp_path / "series"))[0], tree)
        assert snapshot(tree) == before

    @pytest.mark.parametrize(
        "change, state, said",
        [
            (lambda tree: (tree / "README").unlink(), "target absent", "there is no README"),
            (lambda tree: (tree / "docs/deep").mkdir(parents=True), "clean", ""),
            (lambda tree: (tree / "docs").write_text("x"), "conflict", "docs is not a folder"),
            (lambda tree: edit(tree / "README", "world", "mundo"), "conflict", "line 2 is 'mundo'"),
            (lambda tree: shutil.copytree(tree / "kernel", tree / "docs/deep/README"), "conflict", "is not a file"),
        ],
    )
    def test_on_other_trees(self, change: Callable[[Path], object], state: str, said: str, tmp_path: Path) -> None:
        tree = base_tree(tmp_path / "tree")
        change(tree)
        (row,) = examine(one(RENAMED, tmp_path), tree)
        assert row.state == state and said in row.detail

    def test_the_new_name_is_taken(self, tmp_path: Path) -> None:
        tree = base_tree(tmp_path / "tree")
        (tree / "README.txt").write_text("hello\nworld\n")
        (series,) = read(str(DATA / "rename-only.patch"))
        (row,) = examine(series, tree)
        assert (row.state, "README.txt to rename to exists" in row.detail) == ("conflict", True)
        (tree / "README").unlink()
        assert [row.state for row in examine(series, tree)] == ["already applied"]


NEW = "--- /dev/null\n+++ b/new/file\n@@ -0,0 +1,2 @@\n+one\n+two\n"
GONE = "--- a/README\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-hello\n-world\n"


@pytest.mark.parametrize(
    "text, path, content, state",
    [
        (NEW, "new/file", None, "clean"),
        (NEW, "new/file", "one\ntwo\n", "already applied"),
        (NEW, "new/file", "one\n", "conflict"),
        (GONE, "README", "hello\nworld\n", "clean"),
        (GONE, "README", None, "already applied"),
        (GONE, "README", "hello\nworld\nmore\n", "conflict"),
    ],
)
def test_new_and_deleted_files(text: str, path: str, content: str | None, state: str, tmp_path: Path) -> None:
    tree = base_tree(tmp_path / "tree")
    (tree / path).unlink(missing_ok=True)
    if content is not None:
        (tree / path).parent.mkdir(exist_ok=True)
        (tree / path).write_text(content)
    assert [row.state for row in examine(one(text, tmp_path), tree)] == [state]


@pytest.mark.parametrize(
    "old, new",
    [
        ("a\nb", "a\nb\n"),
        ("a\nb\n", "a\nb"),
        ("a\nb", "a\nc"),
        ("a", "a\nb"),
        ("a\r\nb\r\n", "a\nb\r\n"),
        ("", "a"),
        ("a", ""),
    ],
)
def test_ends_of_files(old: str, new: str, tmp_path: Path) -> None:
    tree = base_tree(tmp_path / "tree")
    (tree / "README").write_bytes(old.encode())
    text = git_patch(tmp_path, lambda b: [(b / "README").write_bytes(new.encode()),
                                          (b.parent / "a/README").write_bytes(old.encode())])  # fmt: skip
    series = one(text, tmp_path)
    apply(series, tree)
    assert (tree / "README").read_bytes() == new.encode()
    (tree / "README").write_bytes(b"a\nb\nc\n")
    if old.endswith("b"):
        assert [row.state for row in examine(series, tree)] == ["conflict"]


def test_binary_data_only_on_its_own_base(tmp_path: Path) -> None:
    repository, text = everything(tmp_path / "repository")
    tree = pristine(repository, tmp_path / "tree")
    (tree / "blob").write_bytes((tree / "blob").read_bytes()[:-1] + b"!")
    before = snapshot(tree)
    with pytest.raises(DoesNotApply, match="blob is not the file that the binary patch was made for"):
        apply(one(text, tmp_path), tree)
    assert snapshot(tree) == before


def test_a_delta_is_for_one_old_file_only() -> None:
    delta = bytes([4, 3, 0x90, 2, 1]) + b"x"  # 4 bytes become 3: copy two, insert one
    assert result(Binary(True, delta), b"abcd") == b"abx"
    for other, old in ((delta, b"abc"), (delta[:-1], b"abcd"), (delta + b"\x01y", b"abcd"), (b"", b""), (b"\xff", b"")):
        assert result(Binary(True, other), old) is None
    assert result(Binary(True, bytes([4, 3, 0x91, 3, 3])), b"abcd") is None  # beyond the end


class TestFailure:
    """Whatever goes wrong while writing, the tree is as before, without a trace of what was tried."""

    PATCH = RENAMED.decode() + NEW + (
        "--- a/kernel/cgroup/Kconfig\n+++ b/kernel/cgroup/Kconfig\n@@ -1,3 +1,2 @@\n config DEMO\n"
        '-\tbool "demo"\n \tdefault n\n'
    )  # fmt: skip

    @pytest.mark.parametrize("kind", [OSError, KeyboardInterrupt], ids=["full", "Ctrl-C"])
    @pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
    @pytest.mark.parametrize("name", ["rename", "mkdir", "write_bytes", "chmod", "lstat"])
    def test_at_any_call(
        self, name: str, after: bool, kind: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        series = one(self.PATCH, tmp_path)
        failed, patched = 0, base_tree(tmp_path / "patched")
        apply(series, patched)
        patched = snapshot(patched)
        for number in range(40):
            tree = base_tree(tmp_path / f"{number}")
            before = snapshot(tree)
            place = os if name == "lstat" else Path
            real, left = getattr(place, name), [number]

            def fail(*args: object, real: Callable[..., object] = real, left: list[int] = left, **kw: object) -> object:
                left[0] -= 1
                result = real(*args, **kw) if after or left[0] != -1 else None
                if left[0] == -1:
                    raise kind(errno.ENOSPC, "full")
                return result

            with monkeypatch.context() as patch:
                patch.setattr(place, name, fail)
                try:
                    apply(series, tree)
                except (LabError, KeyboardInterrupt):
                    failed += 1
                else:
                    break
            now = {name: what for name, what in snapshot(tree).items() if not name.startswith(".cgroup-lab-")}
            # Ctrl-C while the old files are thrown away comes too late: all of it is done by then
            assert now in (before, patched) if kind is KeyboardInterrupt and name == "lstat" else now == before
        assert failed and (tree / "docs/deep/README").exists()

    def test_somebody_else_writes(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        tree = base_tree(tmp_path / "tree")
        before = snapshot(tree)
        real = Path.rename

        def rename(path: Path, target: Path) -> Path:
            done = real(path, target)
            if path.name.startswith("new-"):
                target.write_text("mine")
            return done

        monkeypatch.setattr(Path, "rename", rename)
        with pytest.raises(LabError, match="is not what was written"):
            apply(read(str(TWO))[0], tree)
        assert snapshot(tree) == before

    def test_a_tree_that_is_read_only(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        tree = base_tree(tmp_path / "tree")
        monkeypatch.setattr("tempfile.mkdtemp", lambda *_: (_ for _ in ()).throw(OSError(errno.EROFS, "read-only")))
        with pytest.raises(LabError, match=r"cannot be changed: .*read-only; the tree is as before"):
            apply(read(str(TWO))[0], tree)

    def test_the_last_patch_of_a_series_does_not_fit(self, tmp_path: Path) -> None:
        tree = base_tree(tmp_path / "tree")
        (series,) = read(f"{DATA / 'out-of-order.mbox'}")
        edit(tree / "README", "world\n", "world\nline0\n")
        before = snapshot(tree)
        assert [row.state for row in examine(series, tree)] == ["conflict"] * 3
        with pytest.raises(DoesNotApply) as caught:
            apply(series, tree)
        assert caught.value.exit_code == 1 and caught.value.evidence.count("\n") == 2
        assert snapshot(tree) == before

    def test_malformed_after_sound_patches(self, tmp_path: Path) -> None:
        tree = base_tree(tmp_path / "tree")
        (tmp_path / "series").write_text("1.patch\n2.patch\n")
        shutil.copy(TWO, tmp_path / "1.patch")
        shutil.copy(DATA / "truncated.patch", tmp_path / "2.patch")
        (series,) = read(str(tmp_path / "series"))
        assert [row.state for row in examine(series, BASE)] == ["clean", "malformed"]
        with pytest.raises(Malformed, match=r"2\.patch:19"):
            apply(series, tree)
        assert snapshot(tree) == snapshot(BASE)


def test_a_name_that_no_file_system_takes(tmp_path: Path) -> None:
    (row,) = examine(one(NEW.replace("new/file", "x" * 300), tmp_path), BASE)
    assert row.state == "conflict" and "File name too long" in row.detail


def test_special_files_are_not_opened(tmp_path: Path) -> None:
    tree = base_tree(tmp_path / "tree")
    (tree / "README").unlink()
    os.mkfifo(tree / "README")
    (row,) = examine(read(str(TWO))[0], tree)
    assert (row.state, "README is not a file" in row.detail) == ("conflict", True)


def test_what_landed_where(tmp_path: Path) -> None:
    tree = base_tree(tmp_path / "tree")
    applied = apply(read(str(DATA / "empty-context-stripped.patch"))[0], tree)
    (landing,) = applied.landings
    assert (landing.path, landing.line, landing.offset, landing.function, landing.hunk.line) == (
        BETA, 11, 0, "static int cg_beta(struct cgroup *c)", 14)  # fmt: skip
    assert (applied.files, [row.state for row in applied.rows]) == ((BETA,), ["clean"])
