"""Source trees by name: the archive's, a release's, local ones, commits."""

from __future__ import annotations

import hashlib
import http.server
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from archive import FakeArchive, package
from fake_tree import FILES, git, write_tree

from labs.errors import BadInput, LabError
from labs.source.trees import find_source, kernel_tree
from labs.store import Store

VERSIONS = ("6.1.190-1", "6.1.192-3", "6.1.187-1", "6.12.117-1")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def archive(store: Store) -> FakeArchive:
    rows = [package(f"linux-source-{'.'.join(version.split('.')[:2])}", version) for version in VERSIONS]
    return FakeArchive(store.root, rows)


@pytest.mark.parametrize(
    "asked, origin", [("6.1", "linux-source-6.1 6.1.192-3"), ("6.1.187", "linux-source-6.1 6.1.187-1")]
)
def test_names_of_the_archive(archive: FakeArchive, asked: str, origin: str) -> None:
    source = find_source(asked, archive)
    assert source.origin == origin and source.signed and source.version == origin.split(" ")[1].split("-")[0]


@pytest.mark.parametrize("asked", ["5.10", "nonsense", "6.1.1921", "tree:/nowhere", "git:/nowhere#v1"])
def test_names_that_point_nowhere(archive: FakeArchive, asked: str) -> None:
    with pytest.raises(BadInput) as caught:
        find_source(asked, archive)
    assert "\n" not in str(caught.value)


def test_a_local_tree_is_copied_and_named_by_its_state(store: Store, archive: FakeArchive, tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "linux")
    first = find_source(f"tree:{tree}", archive)
    copy = kernel_tree(store, archive, first)
    (tree / "kernel/main.c").write_text("changed, and longer than it was before this\n")
    second = find_source(f"tree:{tree}", archive)
    assert first.version == "6.1.192" and not first.signed and first.digest != second.digest
    assert (copy / "kernel/main.c").read_text() == FILES["kernel/main.c"]


def test_two_trees_that_look_alike_are_told_apart(store: Store, archive: FakeArchive, tmp_path: Path) -> None:
    """As two archives whose files all have one time: equal names, sizes and times are not equal contents."""
    for name, text in (("one", "aaa"), ("other", "bbb")):
        (write_tree(tmp_path / name) / "kernel/main.c").write_text(text)
        for path in (tmp_path / name).rglob("*"):
            os.utime(path, (1, 1))
    for name, text in (("one", "aaa"), ("other", "bbb")):
        found = kernel_tree(store, archive, find_source(f"tree:{tmp_path / name}", archive))
        assert (found / "kernel/main.c").read_text() == text
    (tmp_path / "one/kernel/main.c").write_text("ccc")
    os.utime(tmp_path / "one/kernel/main.c", (1, 1))
    found = kernel_tree(store, archive, find_source(f"tree:{tmp_path / 'one'}", archive))
    assert (found / "kernel/main.c").read_text() == "ccc"
    states = []
    for target in ("kernel", "scripts"):
        (tmp_path / "one/link").unlink(missing_ok=True)
        (tmp_path / "one/link").symlink_to(target)
        states.append(find_source(f"tree:{tmp_path / 'one'}", archive).digest)
    assert states[0] != states[1]


def test_a_local_tree_with_more_than_files(store: Store, archive: FakeArchive, tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "linux")
    (tree / "link").symlink_to("/nowhere")
    assert (kernel_tree(store, archive, find_source(f"tree:{tree}", archive)) / "link").readlink() == Path("/nowhere")
    os.mkfifo(tree / "pipe")
    with pytest.raises(BadInput, match=r"linux/pipe: cannot be copied: .* is a named pipe$"):
        kernel_tree(store, archive, find_source(f"tree:{tree}", archive))


def test_a_commit_is_exported_and_the_checkout_stays(store: Store, archive: FakeArchive, tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "linux")
    git(tree, "init", "-q", "-b", "main")
    git(tree, "add", "-A")
    git(tree, "commit", "-qm", "one")
    git(tree, "tag", "v1")
    (tree / "kernel/main.c").write_text("dirty\n")
    hook = tree / ".git/hooks/post-checkout"
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    hook.chmod(0o755)
    git(tree, "config", "filter.spy.smudge", f"touch {tmp_path}/ran; cat")  # git archive runs these
    (tree / ".git/info/attributes").write_text("*.c filter=spy\n")
    before = subprocess.run(["git", "-C", str(tree), "status", "--porcelain"], capture_output=True).stdout
    source = find_source(f"git:{tree}#v1", archive)
    made = kernel_tree(store, archive, source)
    assert (made / "kernel/main.c").read_text() == FILES["kernel/main.c"] and source.version == "6.1.192"
    assert subprocess.run(["git", "-C", str(tree), "status", "--porcelain"], capture_output=True).stdout == before
    assert not (tmp_path / "ran").exists() and not (tree / ".git/worktrees").exists()


@pytest.mark.parametrize("revision", ["v2", "--output=x", "HEAD:Makefile"])
def test_a_revision_that_is_no_commit(archive: FakeArchive, tmp_path: Path, revision: str) -> None:
    tree = write_tree(tmp_path / "linux")
    git(tree, "init", "-q")
    git(tree, "add", "-A")
    git(tree, "commit", "-qm", "one")
    with pytest.raises(BadInput, match="has no commit"):
        find_source(f"git:{tree}#{revision}", archive)


# Releases


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An address with v6.x/linux-6.6.99.tar.xz, and nothing else; the value is the file's sha256."""
    folder = tmp_path / "www/v6.x"
    folder.mkdir(parents=True)
    write_tree(tmp_path / "linux-6.6.99")
    tar = folder / "linux-6.6.99.tar.xz"
    subprocess.run(["tar", "-cJf", str(tar), "-C", str(tmp_path), "linux-6.6.99"], check=True)

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args: object) -> None:
            super().__init__(*args, directory=str(tmp_path / "www"))  # type: ignore[arg-type]

        def log_message(self, *args: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("LABS_KERNEL_ORG", f"http://127.0.0.1:{server.server_port}/")
        yield hashlib.sha256(tar.read_bytes()).hexdigest()
        server.shutdown()


def test_a_release_with_its_checksum(store: Store, archive: FakeArchive, mirror: str) -> None:
    source = find_source(f"6.6.99@sha256:{mirror}", archive)
    assert not source.signed and (kernel_tree(store, archive, source) / "Kconfig").read_text() == FILES["Kconfig"]


def test_a_release_whose_checksum_is_wrong(store: Store, archive: FakeArchive, mirror: str) -> None:
    source = find_source(f"6.6.99@sha256:{'0' * 64}", archive)
    with pytest.raises(BadInput, match=mirror):
        kernel_tree(store, archive, source)
    assert not (store.root / "tree").exists() and not list((store.root / "tmp").iterdir())


def test_a_release_without_a_checksum(archive: FakeArchive) -> None:
    with pytest.raises(BadInput, match=r"6\.6\.98@sha256:HEX"):
        find_source("6.6.98", archive)


@pytest.mark.parametrize("address", ["/nothing/there", ""], ids=["404", "offline"])
def test_a_release_that_cannot_be_fetched(
    store: Store, archive: FakeArchive, mirror: str, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = find_source(f"6.6.97@sha256:{mirror}", archive)
    if not address:
        monkeypatch.setenv("LABS_KERNEL_ORG", "http://127.0.0.1:9/")
        source = find_source(f"6.6.97@sha256:{mirror}", archive)
    with pytest.raises(LabError, match="cannot be fetched") as caught:
        kernel_tree(store, archive, source)
    assert caught.value.exit_code == 3
