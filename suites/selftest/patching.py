"""What the tests of series share: a small tree, what it holds, and patches made by the real git."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from pathlib import Path

from labs.series import Series, read

DATA = Path(__file__).parent / "data" / "series"
BASE = DATA / "base-tree"
BETA = "kernel/cgroup/cgroup.c"
ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    **{
        f"GIT_{who}_{what}": f"a{'@b' * (what == 'EMAIL')}"
        for who in ("AUTHOR", "COMMITTER")
        for what in ("NAME", "EMAIL")
    },
}


def base_tree(folder: Path) -> Path:
    """A private copy of the small tree."""
    return Path(shutil.copytree(BASE, folder))


def snapshot(tree: Path) -> dict[str, tuple[int, bytes]]:
    """Every path below a tree with its type and mode, and its bytes, link target, or nothing for a folder."""
    found = {}
    for path in sorted(tree.rglob("*")):
        mode = path.lstat().st_mode
        data = os.fsencode(os.readlink(path)) if stat.S_ISLNK(mode) else path.read_bytes() if path.is_file() else b""
        found[str(path.relative_to(tree))] = (mode, data)
    return found


def as_git(found: dict[str, tuple[int, bytes]]) -> dict[str, tuple[int, bytes]]:
    """A snapshot with no more of each mode than git keeps: the kind of file, and whether it can be run."""
    return {name: (mode & (0o170100 if stat.S_ISREG(mode) else 0o170000), data) for name, (mode, data) in found.items()}


def one(data: bytes | str, folder: Path, name: str = "x.patch") -> Series:
    """The series in these bytes."""
    file = folder / name
    file.write_bytes(data.encode() if isinstance(data, str) else data)
    (series,) = read(str(file))
    return series


def run(tree: Path, *argv: str, stdin: bytes = b"", check: bool = True) -> subprocess.CompletedProcess[bytes]:
    """A program in a folder, with nobody's configuration."""
    return subprocess.run(argv, cwd=tree, input=stdin, env=ENVIRONMENT, capture_output=True, check=check)


def repository(tree: Path) -> Path:
    """The tree as a git repository with one commit."""
    run(tree, "git", "init", "-q", "-b", "main")
    commit(tree, "base")
    return tree


def commit(tree: Path, message: str) -> None:
    run(tree, "git", "add", "-A")
    run(tree, "git", "commit", "-qm", message)


def edit(path: Path, old: str, new: str, count: int = 1) -> None:
    text = path.read_bytes().decode()
    assert old in text
    path.write_bytes(text.replace(old, new, count).encode())


def everything(folder: Path) -> tuple[Path, bytes]:
    """A repository whose second commit adds, deletes, renames with and without change, copies, changes modes, text and
    binary data, and makes a link; and that commit as a mail."""
    tree = base_tree(folder)
    (tree / "big").write_text("".join(f"line {number}\n" for number in range(200)))
    (tree / "blob").write_bytes(bytes(range(256)) * 20)
    (tree / "tool").write_text("#!/bin/sh\n")
    (tree / "gone").write_text("gone\nsoon")
    (tree / "with space é").write_text("a\n")
    repository(tree)
    edit(tree / "big", "line 7\n", "line seven\n")
    edit(tree / "big", "line 150\n", "line 150\nand more\n")
    (tree / "big").rename(tree / "large")
    (tree / "blob").write_bytes(bytes(range(256)) * 10 + b"x" + bytes(range(256)) * 10)
    (tree / "blob2").write_bytes(bytes(range(200)))
    (tree / "tool").chmod(0o755)
    (tree / "gone").unlink()
    (tree / "empty").touch()
    (tree / "with space é").write_text("b\n")
    (tree / "README").rename(tree / "kernel/README")
    (tree / "link").symlink_to("large")
    edit(tree / "kernel/cgroup/cgroup.c", "/* demo */", "/* demo 2 */")
    (tree / "copy").write_bytes((tree / "kernel/cgroup/cgroup.c").read_bytes())
    commit(tree, "all of it")
    words = ("git", "format-patch", "--stdout", "-C", "--find-copies-harder", "--binary", "--full-index", "-1")
    text = run(tree, *words).stdout
    assert text.count(b"diff --git") == 11 and b"copy from" in text and b"delta" in text
    return tree, text
