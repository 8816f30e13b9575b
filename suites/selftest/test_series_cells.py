"""A series in the matrix: which cells it gives, what they are built from, and what the bridge makes of its end."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from archive import ROWS, FakeArchive, package
from bridge import PASS, Project, suite
from fake_tree import patch, write_tree

from labs import prepare
from labs.errors import BadInput, LabError
from labs.matrix import Cell, cells
from labs.session import Result
from labs.store import file_digest

TOML = """\
intent = "{intent}"
component = "{component}"
mends = ["no lost update", "cpu-max-burst-lost-update"]
files = ["0001-change-it.patch"]
"""


@pytest.fixture
def archive(tmp_path: Path) -> FakeArchive:
    return FakeArchive(tmp_path / "store", [*ROWS, package("linux-source-6.1", "6.1.192-3")])


def series(folder: Path, intent: str = "fix", component: str = "kernel", more: str = "") -> str:
    patch(folder, "kernel/sched/core.c", "period * 2", "period * 3")
    (folder / "series.toml").write_text(TOML.format(intent=intent, component=component) + more)
    return str(folder)


@pytest.fixture
def fix(tmp_path: Path) -> str:
    (tmp_path / "mend").mkdir()
    return series(tmp_path / "mend")


def test_a_series_gives_base_and_patched(fix: str) -> None:
    made = cells(["6.1"], ["runc"], series=[fix])
    assert [cell.id for cell in made] == ["6.1_runc_mend.base", "6.1_runc_mend.patched"]
    assert made[0].options == made[1].options == ["--kernel", "6.1", "--runtime", "runc", "--series", fix]


def test_a_defect_with_a_switch_has_the_same_binary_without_it(tmp_path: Path) -> None:
    spec = series(tmp_path, "defect", more='parameters = { "cglab.torn_us" = 50 }\n')
    assert [cell.role for cell in cells([], [], series=[spec])] == ["base", "off", "patched"]


def test_variants_multiply(fix: str) -> None:
    made = cells(["6.1"], [], series=[fix], variants=["default", "lockdep"])
    assert [cell.id for cell in made][::3] == ["6.1_runc_default_mend.base", "6.1_runc_lockdep_mend.patched"]


def test_two_series_of_one_name_are_refused(tmp_path: Path) -> None:
    for name in ("a/mend", "b/mend"):
        (tmp_path / name).mkdir(parents=True)
        series(tmp_path / name)
    with pytest.raises(BadInput, match=r"two cells would be called 6\.1_runc_mend\.base"):
        cells([], [], series=[str(tmp_path / "a/mend"), str(tmp_path / "b/mend")])


def test_base_and_patched_are_built_from_one_source(archive: FakeArchive, fix: str) -> None:
    base, patched = (prepare.find(cell, archive) for cell in cells(["6.1"], [], series=[fix]))
    assert base.source == patched.source and base.config == patched.config and base.source
    assert base.source.origin == "linux-source-6.1 6.1.192-3" and base.kernel.version == "6.1.192"
    assert base.applied == () and [one.name for one in patched.applied] == ["mend"]
    assert base.mends == frozenset() and patched.mends == {"no lost update", "cpu-max-burst-lost-update"}


def test_the_switch_is_on_in_the_patched_cell_alone(archive: FakeArchive, tmp_path: Path) -> None:
    spec = series(tmp_path, "defect", more='parameters = { "cglab.torn_us" = 50 }\n')
    base, off, on = (prepare.find(cell, archive) for cell in cells([], [], series=[spec]))
    assert (base.switches, off.switches, on.switches) == ({}, {}, {"cglab.torn_us": "50"})
    assert base.applied == () and off.applied == on.applied != () and on.mends == frozenset()


def test_a_runtime_series_leaves_the_kernel_the_archives(archive: FakeArchive, tmp_path: Path) -> None:
    spec = series(tmp_path, component="runc")
    base, patched = (prepare.find(cell, archive) for cell in cells(["6.1"], ["runc"], series=[spec]))
    assert base.source is None and base.kernel.packages and patched.kernel == base.kernel
    assert patched.applied_to("kernel") == () and len(patched.applied_to("runc")) == 1


@pytest.mark.parametrize(
    "component, runtime, words", [("runc", "crun", "is for runc, the cell has crun"), ("docker", "runc", "docker")]
)
def test_a_series_for_another_component_is_refused(
    archive: FakeArchive, tmp_path: Path, component: str, runtime: str, words: str
) -> None:
    spec = series(tmp_path, component=component)
    with pytest.raises(BadInput, match=words):
        prepare.find(cells(["6.1"], [runtime], series=[spec])[1], archive)


def test_distro_needs_the_archives_source(archive: FakeArchive, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="variant distro"):
        prepare.find(Cell(f"tree:{write_tree(tmp_path / 'linux')}", variant="distro"), archive)


def test_a_version_that_is_not_in_the_archive_is_the_release(archive: FakeArchive) -> None:
    found = prepare.find(Cell(f"6.6.99@sha256:{'a' * 64}"), archive)
    assert found.source and found.source.url.endswith("/v6.x/linux-6.6.99.tar.xz") and found.config
    assert prepare.find(Cell("6.1.192"), archive).source is None


def test_a_malformed_series_is_refused_before_anything(project: Project, tmp_path: Path) -> None:
    (tmp_path / "bad.patch").write_text("--- a/../../x\n+++ b/../../x\n@@ -1 +1 @@\n-a\n+b\n")
    ended = project.run(suite(f"def test_a(bench, judge): {PASS}"), "--series", str(tmp_path / "bad.patch"))
    assert ended.code == 4 and "bad.patch:" in ended.text and "Traceback" not in ended.text


def test_known_defects_are_not_known_any_more_where_a_series_mends_them(project: Project, fix: str) -> None:
    """By the defect's id: what mends lost updates of other files is no cure for those of cpu.max."""
    toml = Path(fix) / "series.toml"
    body = """
def test_a(bench, judge):
    judge(Verdict("no lost update", "fail", "lost 3 of 9 writes of cpu.max"), ["cpu.max"])
"""
    ended = project.run(suite(body), "--series", fix)
    assert ended.outcomes() == {"6.1_runc_mend.base": {"a": "known"}, "6.1_runc_mend.patched": {"a": "fail"}}
    shutil.rmtree(ended.root / "records")
    toml.write_text(toml.read_text().replace(', "cpu-max-burst-lost-update"', ""))
    ended = project.run(suite(body), "--series", fix)
    assert ended.outcomes() == {"6.1_runc_mend.base": {"a": "known"}, "6.1_runc_mend.patched": {"a": "known"}}


class Parameters:
    """A guest with one module parameter that reads as `told`, whatever is written."""

    def __init__(self, told: str) -> None:
        self.told = told
        self.commands: list[str] = []

    def must(self, command: str) -> str:
        self.commands.append(command)
        return self.told


@pytest.mark.parametrize("told", ["50\n", "Y\n", "N\n", "7\n"])
@pytest.mark.parametrize("value", ["50", "1", "0"])
def test_a_switch_is_read_back(value: str, told: str) -> None:
    guest = Parameters(told)
    if (value, told) in {("50", "50\n"), ("1", "Y\n"), ("0", "N\n")}:
        assert prepare.switch_on(guest, {"cglab.torn_us": value}) == {"switches": {"cglab.torn_us": value}}  # type: ignore[arg-type]
        assert guest.commands[0].startswith(f"echo {value} > /sys/module/cglab/parameters/torn_us")
    else:
        with pytest.raises(LabError, match=rf"cglab\.torn_us is {told.strip()} after {value}"):
            prepare.switch_on(guest, {"cglab.torn_us": value})  # type: ignore[arg-type]


@pytest.mark.parametrize("told, fails", [("same", False), ("other", True), ("", False)])
def test_the_running_config_is_compared_with_the_one_that_was_built(tmp_path: Path, told: str, fails: bool) -> None:
    (tmp_path / "config").write_text("CONFIG_CGROUPS=y\n")
    digest = file_digest(tmp_path / "config") if told == "same" else "0" * 64

    class Told:
        def run(self, command: str) -> Result:
            return Result(command, 0, f"{digest}  -\n".encode() if told else b"", b"", 0.0)

    if fails:
        with pytest.raises(LabError, match="another config"):
            prepare.verify_config(Told(), tmp_path / "config")  # type: ignore[arg-type]
    else:
        assert prepare.verify_config(Told(), tmp_path / "config") == ({"config_sha256": digest} if told else {})  # type: ignore[arg-type]
