"""Searches whose culprit is known: a series for runc and the commits of a kernel tree, made here from packaged source.

Both have one defect, one change that does not build and is mended by the next, and the tree a commit that panics at
boot. The places are such that the search meets all of them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from labs.build.runtime import runtime_tree
from labs.command import run
from labs.deadline import Deadline
from labs.source.debian import Archive
from labs.source.runtimes import find_runtime
from labs.source.trees import find_source, kernel_tree
from labs.store import Store

pytestmark = pytest.mark.full
SUITES = Path(__file__).parents[1]
Change = tuple[str, str, str]  # a file, what is replaced ('': at its end), by what

PIDS = "libcontainer/cgroups/fs2/pids.go"
BROKEN_GO = "\nvar labBroken int = labMissing\n"
PATCHES: Mapping[str, Change] = {
    **{f"mark {n}": ("main.go", "", f"\nvar labMark{n} = {n}\n") for n in (1, 2, 3, 4)},
    "one more": (PIDS, "numToStr(r.PidsLimit)", "numToStr(r.PidsLimit + 1)"),
    "break the build": ("create.go", "", BROKEN_GO),
    "mend the build": ("create.go", BROKEN_GO, ""),
    "mark 8": ("main.go", "", "\nvar labMark8 = 8\n"),
}

PANIC = '\nstatic int __init lab_end(void)\n{\n\tpanic("lab: made to end");\n}\nlate_initcall(lab_end);\n'
BROKEN_C = "\nint lab_broken = lab_missing;\n"
BURST = "u64 burst = tg->cfs_bandwidth.burst"
QUIET = ("async", "cred", "groups", "kmod", "nsproxy", "pid", "range", "resource", "umh", "user", "utsname")


def marked(name: str) -> Change:
    return (f"kernel/{name}.c", "", f'\nconst char lab_mark_{name}[] = "marked";\n')


COMMITS: Mapping[str, Change] = {
    "mark async": marked("async"),
    "mark cred": marked("cred"),
    "panic at boot": ("kernel/reboot.c", "", PANIC),
    "boot again": ("kernel/reboot.c", PANIC, ""),
    "divide the burst": ("kernel/sched/core.c", f"{BURST};", f"{BURST} / 1000;"),
    "mark groups": marked("groups"),
    "mark kmod": marked("kmod"),
    "break the build": ("kernel/ksysfs.c", "", BROKEN_C),
    "mend the build": ("kernel/ksysfs.c", BROKEN_C, ""),
    **{f"mark {name}": marked(name) for name in QUIET[4:]},
}


def git(folder: Path, *words: str) -> str:
    who = {f"GIT_{role}_{what}": "a@b" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    env = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1", **who}
    argv = ["git", "-C", str(folder), "-c", "core.autocrlf=false", "-c", "gc.auto=0", *words]
    return subprocess.run(argv, env=env, check=True, capture_output=True, text=True).stdout


def repository(tree: Path, folder: Path, changes: Mapping[str, Change]) -> Path:
    """A repository whose base is the tree, with a commit for each change."""
    run(["cp", "-a", str(tree), str(folder)], Deadline(300, "copying the tree"))
    run(["chmod", "-R", "u+w", str(folder)], Deadline(300, "copying the tree"))
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", "-A", "-f")
    git(folder, "commit", "-qm", "base")
    git(folder, "tag", "base")
    for subject, (name, old, new) in changes.items():
        path = folder / name
        text = path.read_text()
        assert old in text, f"{name} has no {old!r}"
        path.write_text(text.replace(old, new, 1) if old else text + new)
        git(folder, "commit", "-qam", subject)
    return folder


def bisect(folder: Path, *words: str) -> tuple[dict[str, Any], str]:
    """`labs bisect`, which must find one culprit: what it says as JSON, and its progress."""
    argv = [sys.executable, "-m", "labs", "bisect", *words, "--record", str(folder / "records"), "--json"]
    done = run(argv, Deadline(3 * 3600, "the search"), expect=None)
    assert done.code == 0, done.err[-3000:]
    (row,) = json.loads(done.out)
    return row, done.err


def skipped(row: dict[str, Any]) -> dict[str, str]:
    return {step["candidate"]: step["reason"] for step in row["steps"] if step["outcome"] == "skip"}


@pytest.fixture
def archive() -> Archive:
    return Archive(Store.of_user())


def test_the_patch_of_a_series(archive: Archive, tmp_path: Path) -> None:
    tree = runtime_tree(archive.store, archive, find_runtime("runc@1.1.5", archive))
    made = repository(tree, tmp_path / "runc", PATCHES)
    git(made, "format-patch", "-q", "-o", str(tmp_path / "eight"), "base..main")
    (tmp_path / "eight/series.toml").write_text('title = "Eight"\nintent = "fix"\ncomponent = "runc"\n')
    test = f"{SUITES}/runtime_semantics/test_semantics.py::in_force[pids]"
    row, said = bisect(
        tmp_path, "--axis", "series", "--series", str(tmp_path / "eight"), "--runtime", "runc@1.1.5", test
    )
    found = {"after": "4", "culprits": ["5"], "confidence": 1.0, "changes": ["one more"]}
    assert row["answer"]["boundaries"] == [found], said
    assert list(skipped(row)) == ["6"] and skipped(row)["6"].startswith("not built: "), skipped(row)


def test_the_commit_of_a_tree(archive: Archive, tmp_path: Path) -> None:
    tree = kernel_tree(archive.store, archive, find_source("6.1", archive))
    made = repository(tree, tmp_path / "linux", COMMITS)
    assert len(COMMITS) == 16
    names = dict(zip(git(made, "log", "--format=%h", "--abbrev=12").split(), [*COMMITS][::-1], strict=False))
    test = f"{SUITES}/cpu_bandwidth/test_bandwidth.py::{leaves_alone()}"
    row, said = bisect(tmp_path, "--axis", "git", "--kernel", f"git:{made}", "--good", "base", "--bad", "main", test)
    (edge,) = row["answer"]["boundaries"]
    assert [names[name] for name in edge["culprits"]] == ["divide the burst"], said
    reasons = {names[name]: reason for name, reason in skipped(row).items()}
    assert reasons["break the build"].startswith("not built: ") and "lab_missing" in reasons["break the build"]
    assert reasons["panic at boot"].startswith("unrelated failure (panic)"), reasons
    assert len(reasons) == 2


def leaves_alone() -> str:
    return "promise[cpu.max-and-cpu.max.burst-leave-each-other-12]"
