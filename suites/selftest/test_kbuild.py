"""Builds of kernels and their sandbox, on a small tree with the real tools."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import time
from pathlib import Path

import pytest
from archive import FakeArchive
from fake_tree import CORE, FILES, git, patch, write_tree

from labs.build.kbuild import Plan, built_kernel
from labs.build.kconfig import MUST, Config, find_config, missing
from labs.build.kernel import KernelArtifacts
from labs.build.sandbox import Sandbox, tail
from labs.deadline import Deadline
from labs.errors import BadInput, DeadlineExpired, DoesNotApply, DoesNotCompile, LabError
from labs.series import read
from labs.source.trees import advance, find_source, kernel_tree
from labs.store import Store

CONFIG = Config("small", "CONFIG_CGROUPS=y\nCONFIG_MEMCG=y\n")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def plan(store: Store, tmp_path: Path) -> Plan:
    archive = FakeArchive(store.root)
    source = find_source(f"tree:{write_tree(tmp_path / 'linux')}", archive)
    return Plan(source, kernel_tree(store, archive, source), CONFIG)


def with_patch(plan: Plan, folder: Path, *change: str) -> Plan:
    return Plan(plan.source, plan.tree, plan.config, read(str(patch(folder, *change))))


def test_base_and_patched_differ_and_tell_what_they_are(store: Store, plan: Plan, tmp_path: Path) -> None:
    base = built_kernel(store, plan)
    patched = built_kernel(store, with_patch(plan, tmp_path, "kernel/sched/core.c", "period * 2", "period * 3"))
    assert base.release == patched.release == "6.1.192" and base.build_id != patched.build_id
    assert len(base.build_id) == 40 and base.system_map and "quota" in base.system_map.read_text()
    assert "CONFIG_MEMCG=y" in (base.folder / "config").read_text()
    log = (patched.folder / "build.log").read_text()
    assert "core.c" in log and "main.c" not in log, "only what the patch changed is compiled again"
    assert (plan.tree / "kernel/sched/core.c").read_text() == CORE, "the shared tree is as before"


def test_equal_plans_are_built_once_and_equal_sources_give_equal_kernels(plan: Plan, tmp_path: Path) -> None:
    first = built_kernel(Store(tmp_path / "store"), plan)
    again = built_kernel(Store(tmp_path / "store"), plan)
    apart = built_kernel(Store(tmp_path / "other"), plan)
    assert first == again and first.folder != apart.folder
    assert (first.build_id, first.sha256) == (apart.build_id, apart.sha256)


def test_a_patch_that_changes_no_binary_is_told(
    store: Store, plan: Plan, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    same = with_patch(plan, tmp_path, "kernel/sched/core.c", "int burst", "/* why */\nint burst")
    with caplog.at_level(logging.WARNING):
        assert built_kernel(store, same).build_id == built_kernel(store, plan).build_id
    assert "changes nothing that is built" in caplog.text


def test_a_patch_that_does_not_compile_fails_the_series(store: Store, plan: Plan, tmp_path: Path) -> None:
    with pytest.raises(DoesNotCompile) as caught:
        built_kernel(store, with_patch(plan, tmp_path, "kernel/sched/core.c", "period * 2", "periods * 2"))
    text = str(caught.value)
    assert caught.value.exit_code == 1 and "its base does" in text
    assert "kernel/sched/core.c:5" in text and "0001-change-it.patch:" in text
    assert not list((store.root / "tmp").iterdir()) and not (store.root / "patched").exists()


def test_a_base_that_does_not_compile_is_an_error(store: Store, tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "linux")
    (tree / "kernel/main.c").write_text("void start(void) { quota(\n")
    archive = FakeArchive(store.root)
    source = find_source(f"tree:{tree}", archive)
    with pytest.raises(LabError) as caught:
        built_kernel(store, Plan(source, kernel_tree(store, archive, source), CONFIG))
    assert not isinstance(caught.value, DoesNotCompile) and caught.value.exit_code == 3
    assert "kernel/main.c:1" in str(caught.value)


def test_a_patch_that_does_not_fit_leaves_nothing(store: Store, plan: Plan, tmp_path: Path) -> None:
    wrong = patch(tmp_path, "kernel/sched/core.c", "period * 2", "period * 3")
    wrong.write_text(wrong.read_text().replace("int quota", "int quotas"))
    with pytest.raises(DoesNotApply):
        built_kernel(store, Plan(plan.source, plan.tree, plan.config, read(str(wrong))))
    assert not list((store.root / "tmp").iterdir())
    assert {name: (plan.tree / name).read_text() for name in FILES} == FILES


@pytest.mark.parametrize(
    "text, words",
    [
        ("CONFIG_NOPE=y\n", "CONFIG_NOPE is n, asked was y: this tree has no such option"),
        ("CONFIG_MEMCG=y\n", "CONFIG_MEMCG is n, asked was y: Kconfig:4: depends on CGROUPS"),
    ],
    ids=["unknown", "unmet"],
)
def test_an_option_that_did_not_survive_is_refused(store: Store, plan: Plan, text: str, words: str) -> None:
    with pytest.raises(BadInput) as caught:
        built_kernel(store, Plan(plan.source, plan.tree, Config("asked", text)))
    assert words in str(caught.value)
    assert not list((store.root / "tmp").iterdir()) and not (store.root / "built").exists()


@pytest.mark.parametrize("name", ["arch/Kconfig", "virt/Kconfig", "sound/soc/x/Kconfig", "arch/x86/kvm/Kconfig"])
def test_why_an_option_was_dropped_is_found_wherever_it_is_defined(tmp_path: Path, name: str) -> None:
    """CONFIG_KPROBES is in arch/Kconfig, and needs MODULES before 6.10."""
    (tmp_path / name).parent.mkdir(parents=True)
    (tmp_path / name).write_text("config OTHER\n\tbool\n\nconfig KPROBES\n\tbool\n\tdepends on MODULES\n")
    (told,) = missing(Config("x", "CONFIG_KPROBES=y\n"), "", tmp_path)
    assert told == f"CONFIG_KPROBES is n, asked was y: {name}:4: depends on MODULES"


def test_optional_options_may_be_unknown(plan: Plan) -> None:
    asked = Config("x", "CONFIG_CGROUPS=y\n\n# where it exists\nCONFIG_NEW=y\n\nCONFIG_OLD=y\n")
    assert [problem.split(" ")[0] for problem in missing(asked, "CONFIG_CGROUPS=y\n", plan.tree)] == ["CONFIG_OLD"]


def test_a_users_config_must_have_what_a_guest_needs(plan: Plan) -> None:
    lacking = missing(Config("config:x", "CONFIG_CGROUPS=y\n", whole=True), "CONFIG_CGROUPS=y\n", plan.tree)
    assert any(problem.startswith("CONFIG_DEVTMPFS") for problem in lacking)
    assert not any(problem.startswith("CONFIG_CGROUPS") for problem in lacking)


@pytest.mark.parametrize("variant", ["default", "lockdep", "kasan", "kcsan", "lockstat", "irqsoff", "fault", "tracing"])
def test_every_variant_asks_for_something(variant: str) -> None:
    assert find_config(variant).wanted()["CONFIG_CGROUPS"] == "y"


def test_why_an_option_is_missing_is_read_inside_the_tree(tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "linux")
    (tmp_path / "out").mkdir()
    (tmp_path / "out/Kconfig").write_text("config NEW\n\tdepends on A_SECRET\n")
    (tree / "init").symlink_to(tmp_path / "out")
    (tree / "Kconfig.more").symlink_to(tmp_path / "out/Kconfig")
    os.mkfifo(tree / "kernel/Kconfig")
    (problem,) = missing(Config("x", "CONFIG_NEW=y\n"), "", tree)
    assert problem == "CONFIG_NEW is n, asked was y: this tree has no such option"


def test_an_unknown_variant_names_the_others(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="lockdep"):
        find_config("lockdebt")
    with pytest.raises(BadInput, match="no such file"):
        find_config(f"config:{tmp_path}/none")
    (tmp_path / "words").write_text("hello\n")
    with pytest.raises(BadInput, match="no line of it"):
        find_config(f"config:{tmp_path}/words")


@pytest.mark.parametrize("value", ['"$(shell touch /ccache/x)"', '"`touch /ccache/x`"', '"a\f$(x)"'])
def test_a_config_holds_no_commands(tmp_path: Path, value: str) -> None:
    """make reads include/config/auto.conf, and shells get values of it."""
    (tmp_path / "config").write_text(f"CONFIG_CGROUPS=y\nCONFIG_LOCALVERSION={value}\n")
    with pytest.raises(BadInput, match=r"the value of CONFIG_LOCALVERSION holds \$ or `: the build would run it"):
        find_config(f"config:{tmp_path}/config")


# The sandbox


def inside(tmp_path: Path, script: str, seconds: float = 20) -> tuple[int, str]:
    out = tmp_path / "out"
    out.mkdir(exist_ok=True)
    sandbox = Sandbox({"/src": write_tree(tmp_path / "src")}, {"/out": out})
    code = sandbox.run(["sh", "-c", script], Deadline(seconds, "the build"), tmp_path / "log")
    return code, tail(tmp_path / "log")


def test_a_build_sees_no_network_no_home_and_no_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "s3cret")
    code, said = inside(tmp_path, "ls /sys/class/net /proc/net/dev; cat /proc/net/dev; ls /root /home /etc/passwd; env")
    assert "eth" not in said and "s3cret" not in said and "lo:" in said
    assert all(f"cannot access '{path}'" in said for path in ("/root", "/home", "/etc/passwd"))
    assert code == 0


@pytest.mark.parametrize("place", ["/src/Makefile", "/usr/bin/x", "/etc/x", "/x"])
def test_a_build_writes_only_where_it_may(tmp_path: Path, place: str) -> None:
    inside(tmp_path, f"echo changed > {place}; echo made > /out/made")
    assert (tmp_path / "out/made").read_text() == "made\n"
    assert (tmp_path / "src/Makefile").read_text() == FILES["Makefile"]
    assert not any(Path(path).exists() for path in ("/usr/bin/x", "/etc/x", "/x"))


def test_a_build_that_does_not_end_is_ended_with_all_it_started(tmp_path: Path) -> None:
    with pytest.raises(DeadlineExpired):
        inside(tmp_path, "sleep 4242 & sleep 4242", seconds=0.5)

    def running() -> list[bytes]:
        found = [Path("/proc", pid, "cmdline") for pid in os.listdir("/proc") if pid.isdecimal()]
        return [line for line in map(read_or_nothing, found) if b"4242" in line]

    Deadline(30, "the end of all").wait_for(lambda: not running())


def read_or_nothing(path: Path) -> bytes:
    with contextlib.suppress(OSError):
        return path.read_bytes()
    return b""


# Commits, each upon the objects of another


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A base and four commits: one changes a file, one adds one and removes one, one does not compile, one mends it."""
    tree = write_tree(tmp_path / "repo")
    changes = {
        "base": {"Documentation/old": "gone soon\n"},
        "change": {"kernel/sched/core.c": CORE.replace("period * 2", "period * 3")},
        "move": {"Documentation/old": None, ":odd name": "new\n"},
        "break": {"include/lab.h": "#define LIMIT\n"},
        "mend": {"include/lab.h": "#define LIMIT 4\n"},
    }
    git(tree, "init", "-q", "-b", "main")
    for subject, files in changes.items():
        for name, text in files.items():
            path = tree / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text) if text else path.unlink()
        git(tree, "add", "-A")
        git(tree, "commit", "-qm", subject)
        git(tree, "tag", subject)
    return tree


def commit_of(store: Store, repository: Path, revision: str) -> KernelArtifacts:
    archive = FakeArchive(store.root)
    source = find_source(f"git:{repository}#{revision}", archive)
    return built_kernel(store, Plan(source, kernel_tree(store, archive, source.base or source), CONFIG))


def test_a_commit_upon_another_is_the_kernel_that_it_is_alone(store: Store, repository: Path) -> None:
    """What changed is made again, and nothing else; the tree that was borrowed is as before."""
    upon = commit_of(store, repository, "base..change")
    said = (upon.folder / "build.log").read_text()
    assert "core.c" in said and "main.c" not in said
    assert (
        upon.build_id
        == commit_of(store, repository, "change").build_id
        != commit_of(store, repository, "base").build_id
    )
    assert commit_of(store, repository, "base..mend").build_id == commit_of(store, repository, "mend").build_id
    archive = FakeArchive(store.root)
    tree = kernel_tree(store, archive, find_source(f"git:{repository}#base", archive))
    assert (tree / "kernel/sched/core.c").read_text() == CORE and (tree / "Documentation/old").exists()


def test_a_commit_that_does_not_compile_is_no_fault_of_its_base(store: Store, repository: Path) -> None:
    with pytest.raises(DoesNotCompile, match=r"does not compile, its base does: kernel/sched/core\.c:10"):
        commit_of(store, repository, "base..break")


def test_files_come_and_go(store: Store, repository: Path, tmp_path: Path) -> None:
    archive = FakeArchive(store.root)
    source = find_source(f"git:{repository}#base..move", archive)
    tree = tmp_path / "w/tree"
    shutil.copytree(kernel_tree(store, archive, find_source(f"git:{repository}#base", archive)), tree)
    assert sorted(advance(source, tree)) == [":odd name", "Documentation/old", "kernel/sched/core.c"]
    assert (tree / ":odd name").read_text() == "new\n" and not (tree / "Documentation/old").exists()
    assert time.time() - (tree / ":odd name").stat().st_mtime < 60


def test_a_folder_a_file_and_a_link_change_places(store: Store, repository: Path, tmp_path: Path) -> None:
    def commit(name: str) -> None:
        git(repository, "add", "-A")
        git(repository, "commit", "-qm", name)
        git(repository, "tag", name)

    (repository / "link").symlink_to("scripts")
    (repository / "folder").mkdir()
    (repository / "folder/x").write_text("x\n")
    commit("before")
    shutil.rmtree(repository / "folder")
    (repository / "folder").write_text("a file\n")
    (repository / "link").unlink()
    (repository / "link").mkdir()
    (repository / "link/bzimage.py").write_text("another\n")
    commit("after")
    tree = tmp_path / "w/tree"
    for old, new in (("before", "after"), ("after", "before")):
        source = find_source(f"git:{repository}#{old}..{new}", FakeArchive(store.root))
        assert source.base
        shutil.copytree(kernel_tree(store, FakeArchive(store.root), source.base), tree, symlinks=True)
        advance(source, tree)
        assert (tree / "folder").is_file() == (new == "after") == (not (tree / "link").is_symlink())
        assert (tree / "scripts/bzimage.py").read_text() == FILES["scripts/bzimage.py"]
        shutil.rmtree(tree)


def test_a_change_through_a_link_stays_in_the_tree(store: Store, repository: Path, tmp_path: Path) -> None:
    (repository / "out").symlink_to(tmp_path)
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "link")
    tree = tmp_path / "w/tree"
    tree.mkdir(parents=True)
    (tree / "Documentation").symlink_to(tmp_path)
    with pytest.raises(BadInput, match="leads out of the tree"):
        advance(find_source(f"git:{repository}#base..move", FakeArchive(store.root)), tree)


def test_an_option_that_must_survive_and_does_not(store: Store, plan: Plan) -> None:
    """As a candidate of a search over options whose dependency comes later: refused, with Kconfig's reason."""
    config = Config("candidate", f"CONFIG_DEBUG_EXTRA=y\n{MUST}\nCONFIG_MEMCG=y\n", whole=True)
    with pytest.raises(BadInput) as caught:
        built_kernel(store, Plan(plan.source, plan.tree, config))
    assert "CONFIG_MEMCG is n, asked was y: Kconfig:4: depends on CGROUPS" in caught.value.evidence
    assert "DEBUG_EXTRA" not in caught.value.evidence
