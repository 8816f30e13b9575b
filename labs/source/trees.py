"""Kernel source trees by the names that users type: Debian's linux-source, kernel.org, a local tree, a commit."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from labs import catalog
from labs.command import run
from labs.deadline import Deadline
from labs.errors import BadInput, CommandFailed, LabError
from labs.git import borrowed, git
from labs.source.debian import Archive, Package, unpack
from labs.source.kernels import matches
from labs.store import Store, file_digest, remove_tree
from labs.version import debian_version_key, upstream_of

log = logging.getLogger("labs")

RECIPE = 1  # raise it when the steps below change
SOURCE = re.compile(r"linux-source-\d+\.\d+")
CHUNK = 1 << 20
PATHS = 500  # of one call of git; a longer line of arguments may be refused


@dataclass(frozen=True)
class KernelSource:
    """Where a tree comes from; nothing has been fetched or copied yet.

    `origin` is for records, `digest` names the content: equal digests are equal trees. `version` is upstream's.
    """

    asked: str
    origin: str
    digest: str
    version: str
    package: Package | None = None
    url: str = ""
    path: Path | None = None  # a local tree, or a git repository when `commit` is set
    commit: str = ""
    base: KernelSource | None = None  # another commit of the repository, upon whose objects this one may be built

    @property
    def signed(self) -> bool:
        """Whether the archive vouches for the content; a checksum only tells that it is what was asked for."""
        return self.package is not None


def source_packages(archive: Archive) -> list[Package]:
    """Every linux-source package of the archive, oldest first, each version once."""
    found = {p.version: p for p in reversed(archive.packages()) if SOURCE.fullmatch(p.name)}
    return sorted(found.values(), key=lambda package: debian_version_key(package.version))


def find_source(asked: str, archive: Archive) -> KernelSource:
    """The source that `asked` names; BadInput when there is none. Downloads nothing, runs nothing but git."""
    kind, _, rest = asked.partition(":")
    if kind == "tree":
        return _local_tree(asked, rest)
    if kind == "git":
        return _commit(asked, rest)
    version, _, checksum = asked.partition("@sha256:")
    packages = source_packages(archive)
    found = [package for package in packages if matches(version, package.version)]
    if found and not checksum:
        package = found[-1]
        upstream = ".".join(str(number) for number in upstream_of(package.version))
        return KernelSource(asked, f"{package.name} {package.version}", package.sha256, upstream, package)
    if re.fullmatch(r"\d+\.\d+\.\d+", version):
        return _release(asked, version, checksum)
    names = ", ".join(package.version for package in packages)
    raise BadInput(
        f"kernel {asked}: no source package of that name", mend=f"there are: {names}; tree:PATH; git:REPO#REV"
    )


def _release(asked: str, version: str, checksum: str) -> KernelSource:
    row = catalog.read("archive")["kernel_org"]
    checksum = checksum or row["sha256"].get(version, "")
    if not re.fullmatch(r"[0-9a-f]{64}", checksum):
        raise BadInput(
            f"kernel {asked}: not in the archive, and kernel.org's release has no checksum in the catalog",
            mend=f"give the sha256 of linux-{version}.tar.xz: {version}@sha256:HEX",
        )
    base = os.environ.get("LABS_KERNEL_ORG", row["url"]).rstrip("/")
    url = f"{base}/v{version.split('.')[0]}.x/linux-{version}.tar.xz"
    return KernelSource(asked, f"linux-{version}.tar.xz", checksum, version, url=url)


def _local_tree(asked: str, name: str) -> KernelSource:
    path = Path(os.path.expanduser(name)).absolute()
    if not (path / "Kconfig").is_file() or not (path / "Makefile").is_file():
        raise BadInput(f"kernel {asked}: {path} is no kernel tree (no Makefile and Kconfig)")
    return KernelSource(
        asked, str(path), _tree_digest(path), _version((path / "Makefile").read_text(), asked), path=path
    )


def _tree_digest(path: Path) -> str:
    """By place, names, sizes and times of all files; contents would take longer than a build's start.

    The time of the inode counts, too: tar and cp give files whatever other time they were told.
    """
    state = hashlib.sha256(os.fsencode(path))
    for folder, folders, files in os.walk(path):
        folders[:] = sorted(name for name in folders if name != ".git")
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
        for name in sorted([*files, *links]):
            facts = os.lstat(os.path.join(folder, name))
            told = f"{os.path.relpath(folder, path)}/{name} {facts.st_size} {facts.st_mtime_ns} {facts.st_ctime_ns}\n"
            state.update(os.fsencode(told))
    return state.hexdigest()


def _commit(asked: str, rest: str) -> KernelSource:
    """A commit as `REPO#REV`, or as `REPO#BASE..REV` with the one that it is built upon."""
    name, _, revision = rest.partition("#")
    if ".." in revision:  # never in the name of one commit (git-check-ref-format)
        old, _, new = revision.partition("..")
        return replace(_commit(asked, f"{name}#{new}"), base=_commit(asked, f"{name}#{old}"))
    path = Path(os.path.expanduser(name)).absolute()
    if not path.is_dir():
        raise BadInput(f"{path}: no such folder")
    try:
        commit = git(path, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision or 'HEAD'}^{{commit}}")
        tree = git(path, "rev-parse", f"{commit}^{{tree}}")
        version = _version(git(path, "cat-file", "blob", f"{commit}:Makefile"), asked)
    except CommandFailed:
        raise BadInput(f"kernel {asked}: {path} has no commit {revision or 'HEAD'}", mend="git:REPO#REV") from None
    return KernelSource(asked, f"{path} {commit}", f"git {tree}", version, path=path, commit=commit)


def kernel_tree(store: Store, archive: Archive, source: KernelSource) -> Path:
    """The tree, unpacked once in the store and never written to afterwards: others hard-link to its files."""

    def make(folder: Path) -> None:
        tree = folder / "tree"
        tree.mkdir()
        if source.package:
            unpack(archive.fetch(source.package), folder / "deb")
            (tarball,) = (folder / "deb/usr/src").glob("linux-source-*.tar.xz")
            _untar(tarball, tree)
            remove_tree(folder / "deb")
        elif source.url:
            _download(source.url, source.digest, folder / "linux.tar.xz")
            _untar(folder / "linux.tar.xz", tree)
            (folder / "linux.tar.xz").unlink()
        elif source.commit:
            _export(source, tree)
        else:
            assert source.path
            _copy(source.path, tree)
        if not (tree / "Makefile").is_file() or not (tree / "Kconfig").is_file():
            raise BadInput(f"{source.origin} holds no kernel tree (no Makefile and Kconfig)")

    return store.build("tree", {"recipe": RECIPE, "digest": source.digest}, make, f"tree of {source.origin}") / "tree"


def _copy(path: Path, tree: Path) -> None:
    """All but `.git`; links as they are, files only: reading from a pipe would never end."""
    try:
        shutil.copytree(path, tree, symlinks=True, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".git"))
    except shutil.Error as error:
        name, _, why = error.args[0][0]
        raise BadInput(f"{name}: cannot be copied: {why}") from None


def _version(makefile: str, asked: str) -> str:
    """The version that a tree's own Makefile tells."""
    head = makefile[:4096]
    numbers = [re.search(rf"^{name} *= *(\d+)", head, re.M) for name in ("VERSION", "PATCHLEVEL", "SUBLEVEL")]
    if not all(numbers):
        raise BadInput(f"kernel {asked}: its Makefile tells no version: this is no kernel tree")
    return ".".join(found[1] for found in numbers if found)


def _untar(tarball: Path, tree: Path, more: Sequence[str] = ()) -> None:
    """Unpack below `tree`, without the one folder that the archive has at its top. GNU tar keeps paths inside."""
    argv = ["tar", "--no-same-owner", *more, "--strip-components=1", "-xf", str(tarball), "-C", str(tree)]
    run(argv, Deadline(900, f"unpacking {tarball.name}"))


def _export(source: KernelSource, tree: Path) -> None:
    assert source.path
    tarball = tree.parent / "export.tar"
    with borrowed(source.path, source.commit) as own:
        git(own, "archive", "--format=tar", "--prefix=linux/", f"--output={tarball}", source.commit)
    _untar(tarball, tree)
    tarball.unlink()


def advance(source: KernelSource, tree: Path) -> list[str]:
    """Make a tree of `source.base` one of `source`, and return the paths that changed.

    Changed files become new ones, with the time of now: the old ones may be hard links, and make goes by times.
    """
    assert source.path and source.base
    with borrowed(source.path, source.commit) as own:
        words = ["diff-tree", "-r", "-z", "--no-renames", "--name-status", source.base.commit, source.commit]
        told = git(own, *words).split("\0")
        states = dict(zip(told[1::2], told[::2], strict=False))  # path -> A, M, T or D
        for name in states:
            path = tree / name
            if not path.parent.resolve().is_relative_to(tree.resolve()):
                raise BadInput(f"{source.origin}: {name!r} leads out of the tree")
            remove_tree(path)  # a folder, too: where a file comes, or a submodule was
        there = [name for name, state in states.items() if state != "D"]
        tarball = tree.parent / "changed.tar"
        for at in range(0, len(there), PATHS):
            archive = ["archive", "--format=tar", "--prefix=linux/", f"--output={tarball}", source.commit, "--"]
            git(own, "--literal-pathspecs", *archive, *there[at : at + PATHS])
            _untar(tarball, tree, ["--touch"])
            tarball.unlink()
    return list(states)


def _download(url: str, sha256: str, target: Path) -> None:
    deadline = Deadline(1800, f"downloading {url}")
    log.info("downloading %s", url)
    try:
        with urllib.request.urlopen(url, timeout=20) as answer, target.open("wb") as out:
            while chunk := answer.read(CHUNK):
                out.write(chunk)
                deadline.check()
    except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
        reason = getattr(error, "reason", error)
        raise LabError(
            f"{url} cannot be fetched: {reason}", mend="offline? give tree:PATH or a version of the archive"
        ) from None
    got = file_digest(target)
    if got != sha256:
        raise BadInput(f"{url}: its sha256 is {got}, asked was {sha256}")
