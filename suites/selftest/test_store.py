"""The store: entries whole or absent, made once, whoever asks, is killed or runs out of space."""

from __future__ import annotations

import errno
import multiprocessing
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from labs.command import run
from labs.deadline import Deadline
from labs.errors import BadInput, NoSpace
from labs.store import Store, digest, remove_tree, tree_size

FORK = multiprocessing.get_context("fork")
RECIPE = {"kernel": "6.1", "flags": ["-O2"]}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def make(folder: Path) -> None:
    (folder / "file").write_text("made")


def never(folder: Path) -> NoReturn:
    raise AssertionError("made a second time")


def entry(store: Store, name: str, size: int = 8192, used: float = 0) -> Path:
    """An entry of that size that no process uses, last used at the time `used`."""
    with FORK.Pool(1) as other:
        path = other.apply(Store(store.root).build, ("thing", {"name": name}, _Sized(size)))
    os.utime(path, (used, used))
    return path


class _Sized:
    def __init__(self, size: int) -> None:
        self.size = size

    def __call__(self, folder: Path) -> None:
        (folder / "data").write_bytes(os.urandom(self.size))


def leftovers(store: Store) -> list[str]:
    return [path.name for path in (store.root / "tmp").iterdir()]


# Names and recipes


def test_an_entry_is_made_once_and_found_again(store: Store) -> None:
    path = store.build("kernel", RECIPE, make)
    assert path == store.build("kernel", dict(reversed(RECIPE.items())), never)
    assert path == Store(store.root).build("kernel", RECIPE, never)
    assert (path / "file").read_text() == "made"


@pytest.mark.parametrize(
    "kind, recipe",
    [("image", RECIPE), ("kernel", {**RECIPE, "kernel": "6.2"}), ("kernel", {**RECIPE, "more": None}), ("kernel", {})],
)
def test_another_recipe_is_another_entry(store: Store, kind: str, recipe: dict[str, object]) -> None:
    assert store.build("kernel", RECIPE, make) != store.build(kind, recipe, make)


def test_names_are_clean_and_stable(store: Store) -> None:
    path = store.build("kernel", {"path": "/x y/../ü\n'\"", "n": 2**70}, make)
    assert path.parent == store.root / "kernel" and len(path.name) == 16 and set(path.name) <= set("0123456789abcdef")
    assert digest({"kind": "kernel", **RECIPE}) == "71a9b7266dd72d73"


# Whole or absent


def _builder(root: Path, made: Path) -> None:
    def slow(folder: Path) -> None:
        (folder / "half").touch()
        time.sleep(0.1)
        (made / str(os.getpid())).touch()
        (folder / "half").rename(folder / "whole")

    path = Store(root).build("kernel", RECIPE, slow)
    assert (path / "whole").exists()


def test_eight_processes_make_it_once(store: Store, tmp_path: Path) -> None:
    made = tmp_path / "made"
    made.mkdir()
    builders = [FORK.Process(target=_builder, args=(store.root, made)) for _ in range(8)]
    for builder in builders:
        builder.start()
    for builder in builders:
        builder.join(10)
    assert [builder.exitcode for builder in builders] == [0] * 8 and len(list(made.iterdir())) == 1


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt(), OSError(errno.EIO, "broken")])
def test_a_make_that_raises_leaves_nothing(store: Store, error: BaseException) -> None:
    def fails(folder: Path) -> None:
        make(folder)
        raise error

    with pytest.raises(type(error)):
        store.build("kernel", RECIPE, fails)
    assert leftovers(store) == [] and store.entries() == []
    assert (store.build("kernel", RECIPE, make) / "file").exists()


def _killed(root: Path) -> None:
    def dies(folder: Path) -> None:
        make(folder)
        (folder / "closed").mkdir(mode=0)
        os.kill(os.getpid(), signal.SIGKILL)

    Store(root).build("kernel", RECIPE, dies)


def test_a_killed_make_leaves_no_entry_and_the_next_one_tidies_up(store: Store) -> None:
    victim = FORK.Process(target=_killed, args=(store.root,))
    victim.start()
    victim.join(10)
    assert victim.exitcode == -signal.SIGKILL and store.entries() == [] and len(leftovers(store)) == 1
    store.build("kernel", {"another": 1}, make)
    assert len(leftovers(store)) == 1, "only a build of the same name may remove it: another may still run"
    assert (store.build("kernel", RECIPE, make) / "file").exists()
    assert leftovers(store) == []


def test_an_entry_whose_removal_was_cut_short_is_made_anew(store: Store) -> None:
    path = store.build("kernel", RECIPE, make)
    (path / "recipe.json").unlink()
    (path / "file").write_text("stale")
    assert Store(store.root).build("kernel", RECIPE, make) == path
    assert (path / "file").read_text() == "made"


# Space and access


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_no_space(store: Store, code: int) -> None:
    def full(folder: Path) -> None:
        make(folder)
        raise OSError(code, os.strerror(code))

    with pytest.raises(NoSpace, match=r"no space left in .* while making the thing; run: labs clean"):
        store.build("kernel", RECIPE, full, "the thing")
    assert leftovers(store) == []
    assert (store.build("kernel", RECIPE, make) / "file").exists()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40m", "none", str(disk)], capture_output=True).returncode:
        pytest.skip("a tmpfs cannot be mounted here: not root, or no right to mount")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def _by_program(folder: Path) -> None:
    run(["sh", "-c", "exec head -c 64M /dev/zero"], Deadline(9, "filling"), stdout=folder / "data")


@pytest.mark.parametrize("fill", [_Sized(2**26), _by_program], ids=["the lab", "a program"])
def test_a_disk_that_is_really_full(small_disk: Path, fill: Callable[[Path], None]) -> None:
    store = Store(small_disk / "store")
    with pytest.raises(NoSpace, match=r"no space left in .*; run: labs clean"):
        store.build("thing", RECIPE, fill)
    assert leftovers(store) == [] and store.entries() == []
    assert (store.build("kernel", RECIPE, make) / "file").exists()


def test_a_disk_with_next_to_nothing_left_is_told_before_anything_begins(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(100, 99, 1))  # type: ignore[attr-defined]
    with pytest.raises(NoSpace, match=r"has 0 MiB left, the thing needs 32; run: labs clean, or set LABS_STORE"):
        store.build("thing", RECIPE, make, "the thing")


@pytest.mark.parametrize("where", ["file", "file/below", "/proc/no/such"])
def test_a_store_that_cannot_be_is_bad_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("LABS_STORE", str(tmp_path / where))
    with pytest.raises(BadInput, match=r"cannot be used: .*; set LABS_STORE") as caught:
        Store.of_user()
    assert caught.value.exit_code == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone can become another user")
def test_another_users_store_is_bad_input(store: Store) -> None:
    store.root.chmod(0o755)
    pid = os.fork()
    if not pid:
        os.chdir(store.root)  # before the rights to walk there are gone
        os.setresuid(65534, 65534, 65534)
        os._exit(_exit_code_of_a_store(Path(".")))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 2


def _exit_code_of_a_store(root: Path) -> int:
    try:
        Store(root)
    except BadInput as error:
        return error.exit_code if "Permission denied; set LABS_STORE" in str(error) else 100
    return 0


def test_where_the_store_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("LABS_STORE", raising=False)
    assert Store.of_user().root == tmp_path / "cgroup-lab"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LABS_STORE", "here")
    assert Store.of_user().root == tmp_path / "here"


# Shrinking


def test_what_was_used_longest_ago_goes_first(store: Store) -> None:
    paths = {name: entry(store, name, used=when) for name, when in {"new": 300, "old": 100, "middle": 200}.items()}
    assert [path for path, _ in store.entries()] == [paths["old"], paths["middle"], paths["new"]]
    size = sum(size for _, size in store.entries())
    assert store.shrink(size) == []
    assert store.shrink(size - 1, dry_run=True) == [paths["old"]] and paths["old"].exists()
    assert store.shrink(size - 1) == [paths["old"]]
    assert [path.exists() for path in paths.values()] == [True, False, True]
    assert store.shrink(0) == [paths["middle"], paths["new"]]
    assert store.entries() == []


def test_finding_an_entry_is_a_use(store: Store) -> None:
    entry(store, "a", used=100)
    entry(store, "b", used=200)
    store.build("thing", {"name": "a"}, never)
    assert store.entries()[-1][0] == store.build("thing", {"name": "a"}, never)


def _user(root: Path, ready: Path, done: Path) -> None:
    Store(root).build("thing", {"name": "old"}, never)
    ready.touch()
    Deadline(20, "test").wait_for(done.exists)


def test_what_another_process_uses_stays(store: Store, tmp_path: Path) -> None:
    old, new = entry(store, "old", used=100), entry(store, "new", used=200)
    ready, done = tmp_path / "ready", tmp_path / "done"
    user = FORK.Process(target=_user, args=(store.root, ready, done))
    user.start()
    Deadline(10, "user").wait_for(ready.exists)
    os.utime(old, (100, 100))
    assert store.shrink(0) == [new] and old.exists()
    done.touch()
    user.join(10)
    assert user.exitcode == 0
    assert store.shrink(0) == [old]


def test_what_this_process_made_stays(store: Store) -> None:
    path = store.build("kernel", RECIPE, make)
    assert store.shrink(0) == [] and path.exists()


def _finder(root: Path, stop: Path) -> None:
    while not stop.exists():
        path = Store(root).build("thing", {"name": "old"}, make)
        assert (path / "file").read_text() == "made"


def test_an_entry_never_vanishes_under_its_finder(store: Store, tmp_path: Path) -> None:
    stop = tmp_path / "stop"
    finders = [FORK.Process(target=_finder, args=(store.root, stop)) for _ in range(2)]
    for finder in finders:
        finder.start()
    deadline = time.monotonic() + 0.5
    while time.monotonic() < deadline:
        store.shrink(0)
    stop.touch()
    for finder in finders:
        finder.join(10)
    assert [finder.exitcode for finder in finders] == [0, 0]


def test_removing_trees(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "a/b").mkdir(parents=True)
    (tree / "a/b/file").write_bytes(bytes(100_000))
    (tree / "a/link").symlink_to(tmp_path)
    (tree / "a").chmod(0)
    assert tree_size(tree) >= 100_000 or os.geteuid()
    remove_tree(tree)
    remove_tree(tree)
    assert not tree.exists() and tmp_path.exists()
