"""What hostile builds leave: they can do as they like in a sandbox, and nothing reaches the host or other builds."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from archive import FakeArchive
from fake_tree import FILES, git, patch, write_tree

from labs.build import kbuild, runtime
from labs.build.kbuild import Plan, built_kernel
from labs.build.kconfig import Config
from labs.build.made import TEXT_LIMIT, Made
from labs.errors import LabError, SeriesFailed
from labs.series import Series, read
from labs.source.trees import find_source, kernel_tree
from labs.store import Store

CONFIG = Config("small", "CONFIG_CGROUPS=y\nCONFIG_MEMCG=y\n")
LAST = "\tpython3 /src/scripts/bzimage.py $(O)/vmlinux $(O)/arch/x86/boot/bzImage\n"  # of what makes bzImage
SECRET = "a secret of the host"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "host/secret"
    path.parent.mkdir()
    path.write_text(SECRET)
    return path


def planned(store: Store, asked: str, series: tuple[Series, ...] = ()) -> Plan:
    archive = FakeArchive(store.root)
    source = find_source(asked, archive)
    return Plan(source, kernel_tree(store, archive, source.base or source), CONFIG, series)


def hostile(store: Store, folder: Path, *lines: str) -> Plan:
    """A plan with a patch that makes the Makefile run shell lines after all else."""
    made = patch(folder, "Makefile", LAST, LAST + "".join(f"\t{line}\n" for line in lines))
    return planned(store, f"tree:{write_tree(folder / 'linux')}", read(str(made)))


@pytest.mark.parametrize(
    "line, name",
    [
        ("ln -sf {secret} $(O)/.config", ".config"),
        ("ln -sf {secret} $(O)/System.map", "System.map"),
        ("ln -sf {secret} $(O)/arch/x86/boot/bzImage", "arch/x86/boot/bzImage"),
        ("mv $(O)/arch $(O)/kernel/arch; ln -s kernel/arch $(O)/arch", "arch/x86/boot/bzImage"),
        ("rm $(O)/System.map; mkfifo $(O)/System.map", "System.map"),
        ("rm $(O)/System.map; mkdir $(O)/System.map", "System.map"),
        ("truncate -s 2G $(O)/System.map", "System.map"),
        ("rm $(O)/System.map", "System.map"),
    ],
)
def test_a_kernel_with_something_else_than_files(
    store: Store, tmp_path: Path, secret: Path, line: str, name: str
) -> None:
    with pytest.raises(SeriesFailed) as caught:
        built_kernel(store, hostile(store, tmp_path, line.format(secret=secret)))
    assert str(caught.value).startswith(f"0001-change-it: its build left no file {name}") and SECRET not in str(caught)
    assert not (store.root / "patched").exists() and not list((store.root / "tmp").iterdir())


def test_a_kernel_whose_release_is_a_path(store: Store, tmp_path: Path) -> None:
    made = patch(
        tmp_path, "scripts/bzimage.py", 'setup[0x300:0x309] = b"6.1.192 x"', 'setup[0x300:0x309] = b"6.1/../x "'
    )
    plan = planned(store, f"tree:{write_tree(tmp_path / 'linux')}", read(str(made)))
    with pytest.raises(SeriesFailed, match=r"^0001-change-it: its build made no kernel: .*release that is no name"):
        built_kernel(store, plan)


def test_a_config_is_not_written_through_a_link(store: Store, tmp_path: Path, secret: Path) -> None:
    """A commit is built upon the objects of another one, which may have left links there."""
    tree = write_tree(tmp_path / "repo")
    (tree / "Makefile").write_text(FILES["Makefile"].replace(LAST, f"{LAST}\tln -sf {secret} $(O)/asked.config\n"))
    git(tree, "init", "-q", "-b", "main")
    for name in ("base", "change"):
        (tree / "README").write_text(name)
        git(tree, "add", "-A")
        git(tree, "commit", "-qm", name)
        git(tree, "tag", name)
    built_kernel(store, planned(store, f"git:{tree}#base..change"))
    assert secret.read_text() == SECRET


def test_modules_have_depmods_tables_and_no_links(store: Store, tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "linux")
    home = "/modules/lib/modules/6.1.192"
    lines = (f"mkdir -p {home}/kernel", f"gcc -c -o {home}/kernel/x.ko kernel/main.c", f"ln -s /objects {home}/build")
    install = "modules_install:\n" + "".join(f"\t{line}\n" for line in lines)
    (tree / "Makefile").write_text(FILES["Makefile"].replace(LAST, f"{LAST}\ttouch $(O)/modules.order\n{install}"))
    made = built_kernel(store, planned(store, f"tree:{tree}")).modules / "lib/modules/6.1.192"
    assert (made / "modules.dep").read_text() == "kernel/x.ko:\n" and (made / "modules.dep.bin").stat().st_size
    assert (made / "kernel/x.ko").is_file() and not (made / "build").is_symlink()


def test_modules_behind_a_link(store: Store, tmp_path: Path, secret: Path) -> None:
    """depmod writes its tables beside the modules."""
    (secret.parent / "modules/6.1.192").mkdir(parents=True)
    tree = write_tree(tmp_path / "linux")
    install = f"modules_install:\n\tln -s {secret.parent} /modules/lib\n"
    (tree / "Makefile").write_text(FILES["Makefile"].replace(LAST, f"{LAST}\ttouch $(O)/modules.order\n{install}"))
    with pytest.raises(LabError, match=r"linux: depmod fails"):
        built_kernel(store, planned(store, f"tree:{tree}"))
    assert not list((secret.parent / "modules/6.1.192").iterdir())


def test_links_among_modules_go(tmp_path: Path, secret: Path) -> None:
    modules = tmp_path / "root/lib/modules/6.1.192"
    (modules / "kernel").mkdir(parents=True)
    (modules / "kernel/x.ko").write_text("x")
    (modules / "build").symlink_to(secret.parent)
    (modules / "modules.dep").symlink_to(secret)
    Made(tmp_path / "root", "the kernel").plain()
    assert sorted(path.name for path in modules.rglob("*")) == ["kernel", "x.ko"] and secret.read_text() == SECRET
    os.mkfifo(modules / "kernel/y.ko")
    with pytest.raises(
        LabError, match=r"^the kernel: its build left lib/modules/6.1.192/kernel/y.ko, which is no file"
    ):
        Made(tmp_path / "root", "the kernel").plain()


def test_texts_are_bounded(tmp_path: Path) -> None:
    (tmp_path / "small").write_bytes(b"\xff" * 3)
    os.truncate(tmp_path / "small", TEXT_LIMIT)
    assert len(Made(tmp_path, "x").text("small")) == TEXT_LIMIT
    os.truncate(tmp_path / "small", TEXT_LIMIT + 1)
    with pytest.raises(LabError, match="its build left no file small of 16 MiB at most"):
        Made(tmp_path, "x").text("small")


@pytest.mark.parametrize("left", ["ln -s {secret} /out/runc", "mkfifo /out/runc", "true"])
def test_a_runtime_that_is_no_file(
    store: Store, tmp_path: Path, secret: Path, monkeypatch: pytest.MonkeyPatch, left: str
) -> None:
    monkeypatch.setattr(runtime, "GO_BUILD", ("sh", "-c", left.format(secret=secret)))
    monkeypatch.setattr(runtime, "_go_version", lambda: "go")
    source = runtime._Source(write_tree(tmp_path / "runc"), "runc 1.1.5", None, {}, {}, "1.1.5")
    with pytest.raises(LabError, match=r"^runc 1\.1\.5: its build left no file runc"):
        runtime._program(store, source, ())
    assert not (store.root / "runtime").exists()


# Caches of the compiler


def test_a_series_leaves_nothing_in_a_cache(store: Store, tmp_path: Path) -> None:
    """Whatever it is called, and whatever it is combined with: a planted object would reach builds of others."""
    built_kernel(store, hostile(store, tmp_path, "touch /ccache/planted || true", "test -d /ccache"))
    (cache,) = (store.root / "ccache").iterdir()
    assert cache.name.startswith("own-") and not (cache / "planted").exists()


def test_a_series_reads_the_cache_of_its_base(store: Store, tmp_path: Path) -> None:
    """Its build fails where nothing is found in there."""
    again = "CCACHE_LOGFILE=/objects/log gcc -g0 -O2 -Iinclude -c -o $(O)/again.o kernel/main.c"
    built_kernel(store, hostile(store, tmp_path, again, "grep -q cache_hit /objects/log"))


def test_what_the_archive_does_not_sign_has_a_cache_of_its_own(store: Store, tmp_path: Path) -> None:
    trees = [f"tree:{write_tree(tmp_path / name)}" for name in ("one", "other")]
    releases = [f"6.1.9@sha256:{digit * 64}" for digit in "ab"]
    found = [find_source(asked, FakeArchive(store.root)) for asked in (*trees, *releases)]
    assert len({"base", *(kbuild._cache(Plan(source, tmp_path, CONFIG)) for source in found)}) == 5
