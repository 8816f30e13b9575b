"""`labs series check`: rows, exit codes, and trees that are never touched."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fake_tree import FILES, patch, write_tree

from labs.__main__ import main


class Check:
    def __init__(self, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
        self.tree = write_tree(folder / "linux")
        self.capfd = capfd

    def __call__(self, *specs: str) -> tuple[int, list[dict[str, str]], str]:
        """Exit code, rows, and what stands on standard error."""
        with pytest.raises(SystemExit) as ended:
            main(["series", "check", *specs, "--kernel", f"tree:{self.tree}", "--json"], prog_name="labs")
        told = self.capfd.readouterr()
        return int(str(ended.value.code)), json.loads(told.out) if told.out else [], told.err


@pytest.fixture
def check(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Check:
    monkeypatch.setenv("LABS_STORE", str(tmp_path / "store"))
    return Check(tmp_path, capfd)


@pytest.fixture
def good(tmp_path: Path) -> Path:
    return patch(tmp_path, "kernel/sched/core.c", "period * 2", "period * 3")


def test_a_patch_that_fits(check: Check, good: Path) -> None:
    code, rows, _ = check(str(good))
    assert code == 0 and [(row["patch"], row["state"]) for row in rows] == [("change it", "clean")]
    assert rows[0].keys() == {"patch", "target", "state", "detail"} and rows[0]["target"].startswith("tree:")
    assert {name: (check.tree / name).read_text() for name in FILES} == FILES


def test_a_patch_that_the_tree_has(check: Check, good: Path) -> None:
    core = check.tree / "kernel/sched/core.c"
    core.write_text(core.read_text().replace("period * 2", "period * 3"))
    code, rows, _ = check(str(good))
    assert code == 0 and rows[0]["state"] == "already applied"


def test_a_conflict_names_file_and_line(check: Check, good: Path) -> None:
    core = check.tree / "kernel/sched/core.c"
    core.write_text(core.read_text().replace("period * 2", "period + period"))
    code, rows, _ = check(str(good))
    assert code == 1 and rows[0]["state"] == "conflict" and "kernel/sched/core.c:" in rows[0]["detail"]


def test_a_malformed_patch_needs_no_tree(check: Check, good: Path) -> None:
    good.write_text(good.read_text().replace("+++ b/kernel", "+++ b/../kernel"))
    code, rows, _ = check(str(good), "--kernel", "tree:" + str(check.tree))
    assert code == 2 and rows[0]["state"] == "malformed" and f"{good}:" in rows[0]["detail"]
    assert not list(Path(str(check.tree.parent / "store")).glob("tree/*"))


def test_a_series_without_patches_for_that_version(check: Check, good: Path) -> None:
    (good.parent / "series.toml").write_text(f'[[branch]]\nlow = "6.12"\nhigh = "6.13"\nfiles = ["{good.name}"]\n')
    code, rows, _ = check(str(good.parent))
    assert code == 1 and rows[0]["state"] == "target absent" and "6.12 up to 6.13" in rows[0]["detail"]


@pytest.mark.parametrize("spec", ["/no/such", "git:/no/such#a..b"])
def test_a_name_that_points_nowhere(check: Check, spec: str) -> None:
    code, rows, said = check(spec)
    assert code == 2 and rows == [] and said.startswith("labs: ") and said.count("\n") == 1
