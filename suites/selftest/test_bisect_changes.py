"""What changed at a boundary: changelogs of packages, commits of a tree; and `labs judge`, for git bisect."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from archive import ROWS, FakeArchive
from click.testing import CliRunner
from fake_tree import git, write_tree

from labs.__main__ import main
from labs.bisect import guests
from labs.bisect import judge as judging
from labs.bisect.axes import axis_of
from labs.bisect.axis import Wish
from labs.bisect.changes import NEAR, changelog_lines, changes
from labs.bisect.search import Boundary
from labs.bisect.step import Step
from labs.child import Case
from labs.errors import LabError

SIGNED = "  * Sign kernel from linux 6.12.69-1~bpo12+1\n\n  * Rebuild for bookworm-backports\n"
ENTRIES = {
    "linux-signed-amd64 (6.12.69+1~bpo12+1)": SIGNED,
    "linux (6.12.69-1)": "  * New upstream stable update:\n    - net: one\n    - sched/fair: two that goes\n      on\n",
    "linux (6.12.63-1~bpo12+1)": "  * Rebuild for bookworm-backports\n",
    "linux (6.12.63-1)": "  * New upstream stable update:\n    - sched/fair: Forfeit vruntime on yield\n    - usb: x\n",
    "linux (6.12.57-1)": "  * New upstream stable update:\n    - sched/fair: too old\n",
}


@pytest.fixture
def deb(tmp_path: Path) -> Path:
    """A package with the changelog of a backport."""
    root = tmp_path / "deb"
    doc = root / "usr/share/doc/linux-image-x"
    doc.mkdir(parents=True)
    (root / "DEBIAN").mkdir()
    control = "Package: linux-image-x\nVersion: 1\nArchitecture: all\nMaintainer: a <a@b>\nDescription: x\n"
    (root / "DEBIAN/control").write_text(control)
    end = "\n -- a <a@b>  Thu, 01 Jan 1970 00:00:00 +0000\n\n"
    (doc / "changelog").write_text("".join(f"{head} x; urgency=low\n\n{text}{end}" for head, text in ENTRIES.items()))
    subprocess.run(["gzip", "-n", str(doc / "changelog")], check=True)
    subprocess.run(["dpkg-deb", "-b", str(root), str(tmp_path / "x.deb")], check=True, capture_output=True)
    return tmp_path / "x.deb"


def test_lines_of_the_versions_between(deb: Path) -> None:
    told = list(changelog_lines(deb, "6.12.57-1~bpo12+1", "6.12.69-1~bpo12+1"))
    assert told == [
        "6.12.69-1: net: one",
        "6.12.69-1: sched/fair: two that goes on",
        "6.12.63-1: sched/fair: Forfeit vruntime on yield",
        "6.12.63-1: usb: x",
    ]
    assert [line for line in told if NEAR.search(line)] == [told[1], told[2]]
    assert list(changelog_lines(deb, "6.12.63-1", "6.12.69-1~bpo12+1")) == told[:2]


@pytest.mark.parametrize(
    "line, near",
    [
        ("6.12.63-1: cpuset: Treat cpusets in attaching as populated", True),
        ("6.12.63-1: blk-cgroup: fix possible deadlock", True),
        ("6.12.63-1: mm: memcg: stop reclaim", True),
        ("6.12.63-1: net/sched: qfq: Use it", False),
        ("6.12.63-1: drm/sched: Fix race", False),
    ],
)
def test_what_is_near(line: str, near: bool) -> None:
    assert bool(NEAR.search(line)) == near


def test_a_package_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "x.deb").write_bytes(b"not a package")
    with pytest.raises(LabError, match="no changelog that can be read"):
        list(changelog_lines(tmp_path / "x.deb", "1", "2"))


def test_near_ones_come_first_and_other_axes_tell_their_own(
    deb: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = FakeArchive(tmp_path / "store", ROWS)
    monkeypatch.setattr(archive, "fetch", lambda package: deb)
    wish = Wish("kernel", good="6.12.57-1~bpo12+1", bad="7.3.4")
    axis = axis_of(wish, archive, tmp_path)
    told = changes(axis, wish, Boundary(0, len(axis.names) - 1), archive)
    assert told[0] == "6.12.69-1: sched/fair: two that goes on" and len(told) == 4
    tree = write_tree(tmp_path / "repo")
    git(tree, "init", "-q", "-b", "main")
    for name in ("one", "two", "three"):
        (tree / name).touch()
        git(tree, "add", "-A")
        git(tree, "commit", "-qm", f"{name}: why")
    wish = Wish("git", good="main~2", bad="main", kernel=f"git:{tree}")
    axis = axis_of(wish, archive, tmp_path)
    assert [line.partition(" ")[2] for line in changes(axis, wish, Boundary(0, 2), archive)] == [
        "three: why",
        "two: why",
    ]


# labs judge


@pytest.fixture
def labs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    monkeypatch.setattr(judging, "Archive", lambda store: FakeArchive(tmp_path / "store", ROWS))
    monkeypatch.setattr(judging, "find_case", lambda test, cell: Case(f"{test}[{cell.id}]", cell.id, "x.y"))
    monkeypatch.setattr(guests, "source_digest", lambda: "source")

    def call(*words: str, outcome: str = "good") -> Any:
        judged = lambda self, name: Step(name, outcome, "why", evidence="there")  # noqa: E731
        monkeypatch.setattr(guests.Guests, "__call__", judged)
        done = CliRunner().invoke(main, ["judge", *words])
        return SimpleNamespace(code=done.exit_code, text=done.output)

    monkeypatch.chdir(tmp_path)
    return call


@pytest.mark.parametrize("outcome, code", [("good", 0), ("bad", 1), ("skip", 125)])
def test_exit_codes_that_git_bisect_asks_for(outcome: str, code: int, labs: Callable[..., Any]) -> None:
    done = labs("--kernel", "6.12.107", "suites/x.py::test_y", outcome=outcome)
    assert (done.code, done.text) == (code, f"{outcome}: why (records/there)\n")


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--colour",),
        ("--kernel", "9.9", "t"),
        ("--kernel", "6.1", "--kernel", "7.3.4", "t"),
        ("--runtime", "x", "t"),
    ],
)
def test_no_mistake_of_ours_is_a_bad_commit(words: tuple[str, ...], labs: Callable[..., Any]) -> None:
    """git bisect takes 1 to 127 for an answer; from 128 on it stops."""
    assert labs(*words).code == 255
