"""What changed between the last candidate before a boundary and the first one after it, as its makers tell it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from debian.changelog import Changelog
from debian.debfile import DebFile

from labs.bisect.axis import Axis, Wish
from labs.bisect.search import Boundary
from labs.errors import LabError
from labs.git import git
from labs.source.debian import Archive, Package
from labs.source.kernels import archive_kernels
from labs.source.runtimes import archive_runtimes
from labs.version import debian_version_key

# Of a kernel's thousands of lines, those of the parts that this lab's suites look at come first.
NEAR = re.compile(r"^\S+ (sched|kernfs|freezer|fork)\b|(?<!_)\b(cgroup|memcg|cpuset|blk-(cgroup|iocost|throttle))\b")
LINES = 5000  # of one boundary; a whole line of stable updates has fewer


def changes(axis: Axis, wish: Wish, edge: Boundary, archive: Archive) -> list[str]:
    """One line a change, the newest first, those of NEAR before the others; empty where nobody wrote them down."""
    names = axis.names
    low, high = names[edge.low], names[edge.high]
    if wish.axis == "git":
        path = Path(wish.kernel.removeprefix("git:").partition("#")[0]).expanduser().absolute()
        return git(path, "log", "--oneline", "--no-decorate", f"{low}..{high}").splitlines()
    if axis.titles:
        return [axis.titles[name] for name in names[edge.low + 1 : edge.high + 1]]
    package = _packages(wish.axis, archive).get(high)
    if package is None:
        return []
    lines = list(changelog_lines(archive.fetch(package), low, high))[:LINES]
    return sorted(lines, key=lambda line: not NEAR.search(line))


def _packages(axis: str, archive: Archive) -> dict[str, Package]:
    """Version -> the package whose changelog tells of it."""
    if axis == "kernel":
        return {kernel.version: kernel.packages[0] for kernel in archive_kernels(archive) if kernel.packages}
    return {one.version: one.package for one in archive_runtimes(archive) if one.package}


def changelog_lines(deb: Path, low: str, high: str) -> Iterator[str]:
    """Items of the changelog in a package, of the versions after `low` up to `high`, newest first.

    A backport's entry stands for the release that it was made from: between 1~bpo12+1 and 2~bpo12+1 lies 2.
    LabError for a package whose changelog cannot be read.
    """
    try:
        log = DebFile(str(deb)).changelog() or Changelog()
        blocks = [(str(block.version), block.changes()) for block in log]
    except Exception as error:  # the library tells of a malformed archive in many ways
        raise LabError(f"{deb} has no changelog that can be read: {error}") from None
    after, until = (debian_version_key(_origin(version)) for version in (low, high))
    for version, lines in blocks:
        if _origin(version) == version and after < debian_version_key(_origin(version)) <= until:
            yield from items(lines, version)


def _origin(version: str) -> str:
    return re.sub(r"~(bpo|deb)\d.*$", "", version)


def items(lines: list[str], version: str) -> Iterator[str]:
    """The items of an entry, each on one line with its version: `- ` and `* ` begin one, what follows is part of it."""
    item = ""
    for line in [*(line.strip() for line in lines), "* "]:
        if re.match(r"[-*] |$", line):
            if item and not item.startswith("New upstream stable update"):  # its changes follow
                yield f"{version}: {item}"
            item = line[2:]
        elif item:
            item += f" {line}"
