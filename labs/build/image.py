"""Root images: one ext4 file a suite, never written to by a guest."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from labs import catalog
from labs.command import run, which
from labs.deadline import Deadline
from labs.errors import LabError
from labs.source.debian import Archive
from labs.source.runtimes import archive_runtimes
from labs.store import Store

RECIPE = 1  # raise it when the steps below change
SIZE = "800M"  # sparse; about a quarter is used

# An ordinary user becomes root of a user namespace, with the subordinate ids of /etc/subuid for all other owners.
AS_ROOT_OF_NAMESPACE = ("unshare", "--map-root-user", "--map-auto")


def root_image(store: Store, archive: Archive, name: str) -> Path:
    """The image called `name` with sshd, runc, crun, busybox and systemd of its suite."""
    row = catalog.image(name)
    packages = catalog.read("guest")["packages"]
    runtimes = _runtimes(archive, name)
    recipe = {"recipe": RECIPE, "image": name, "suites": row.suites, "packages": packages, "runtimes": runtimes}

    def make(folder: Path) -> None:
        pinned = pinned_packages(archive, name)
        bootstrap(archive.sources(row.suites), row.suites[0], pinned, folder / "root.tar")
        _to_ext4(folder / "root.tar", folder / "root.img")
        (folder / "root.tar").unlink()

    return store.build("image", recipe, make, f"root image {name} (mmdebstrap)") / "root.img"


def _runtimes(archive: Archive, name: str) -> dict[str, str]:
    return {r.name: r.version for r in archive_runtimes(archive) if r.image == name}


def pinned_packages(archive: Archive, name: str) -> list[str]:
    """Packages of the image called `name`, the runtimes with their version."""
    runtimes = _runtimes(archive, name)
    packages = catalog.read("guest")["packages"]
    return [f"{package}={runtimes[package]}" if package in runtimes else package for package in packages]


def bootstrap(sources: str, suite: str, packages: list[str], tar: Path) -> None:
    """A minimal root file system of `suite` with `packages`, as a tar file."""
    mode = "root" if os.geteuid() == 0 else "unshare"
    if mode == "unshare":
        which("newuidmap")
    options = [f"--mode={mode}", "--variant=minbase", "--format=tar", f"--include={','.join(packages)}"]
    options += ['--aptopt=APT::Install-Recommends "false"', '--aptopt=Acquire::Languages "none"']
    options += [f"--dpkgopt=path-exclude=/usr/share/{part}/*" for part in ("man", "locale", "doc", "info")]
    try:
        argv = ["mmdebstrap", *options, suite, str(tar), "-"]
        run(argv, Deadline(900, "making the root image"), stdin=sources.encode(), env={"TMPDIR": str(tar.parent)})
    except LabError as error:
        causes = [line for line in error.evidence.splitlines() if line.startswith("E:")] or [str(error)]
        mend = (
            ""
            if mode == "root"
            else "as an ordinary user mmdebstrap needs a line for you in /etc/subuid and /etc/subgid"
        )
        raise type(error)(f"mmdebstrap {suite}: {causes[0]}", mend=mend, evidence=error.evidence) from None


@contextlib.contextmanager
def unpacked(tar: Path) -> Iterator[tuple[Path, tuple[str, ...]]]:
    """The tree of a tar file, and the prefix of commands that may work on it as its owner; removed at the end."""
    prefix = () if os.geteuid() == 0 else AS_ROOT_OF_NAMESPACE
    tree = tar.parent / "tree"
    tree.mkdir()
    try:
        argv = ["tar", "-xf", str(tar), "-C", str(tree), "--exclude=./dev/*"]
        run([*prefix, *argv], Deadline(300, "unpacking the root image"))
        yield tree, prefix
    finally:
        run([*prefix, "rm", "-rf", str(tree)], Deadline(120, "removing the unpacked root image"))


def _to_ext4(tar: Path, image: Path) -> None:
    with unpacked(tar) as (tree, prefix):
        # no journal: the image is only ever mounted read-only
        argv = ["mke2fs", "-q", "-t", "ext4", "-O", "^has_journal", "-m", "0", "-d", str(tree), str(image), SIZE]
        run([*prefix, *argv], Deadline(300, "writing the root image"))
