"""Kernels by the names that users type: a line, a version, an exact package version, a file."""

from __future__ import annotations

import functools
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path

from labs.errors import BadInput
from labs.source.debian import Archive, Package
from labs.version import debian_version_key, upstream_of

IMAGE = re.compile(r"linux-image-(.+-cloud-amd64)")


@dataclass(frozen=True)
class Kernel:
    """A kernel that was asked for and found.

    `release` is what uname -r must say, `version` the package version; both are empty for a file (`path:`). `missing`
    names the package with its vmlinuz when the archive no longer has it: such a kernel cannot be booted. `bare` marks
    one whose modules the archive no longer has: it boots with what it has built in.
    """

    asked: str
    release: str = ""
    version: str = ""
    packages: tuple[Package, ...] = ()
    path: Path | None = None
    missing: str = ""
    bare: bool = False

    @property
    def suite(self) -> str:
        return self.packages[0].suite if self.packages else ""


def archive_kernels(archive: Archive) -> list[Kernel]:
    """Every cloud kernel of the archive, oldest first; the same package in two suites is one kernel."""
    return archive.once(_kernels)


def _kernels(archive: Archive) -> list[Kernel]:
    by_key: dict[tuple[str, str], Package] = {}
    for package in archive.packages():
        by_key.setdefault((package.name, package.version), package)
    kernels = []
    for (name, version), image in by_key.items():
        match = IMAGE.fullmatch(name)
        if match:
            needed = _parts(image, match[1])
            there = tuple(by_key[part, version] for part in needed if (part, version) in by_key)
            absent = [part for part in needed if (part, version) not in by_key]
            missing = next((part for part in absent if part.startswith("linux-binary-")), "")
            bare = any(part.startswith("linux-modules-") for part in absent)
            kernels.append(Kernel(version, match[1], version, (image, *there), missing=missing, bare=bare))
    return sorted(kernels, key=lambda kernel: debian_version_key(kernel.version))


def _parts(image: Package, release: str) -> list[str]:
    """Other packages that hold pieces of this kernel, from the image's own Depends (a row of each layout is in
    catalog/archive.toml). linux-base-REL of the older layout is an empty package; only the newer one needs it."""
    named = re.findall(rf"\b(linux-(?:binary|modules|base)-{re.escape(release)})(?![\w.+-])", image.depends)
    return named if any(name.startswith("linux-binary-") for name in named) else []


def find_kernel(asked: str, archive: Archive) -> Kernel:
    """The kernel that `asked` names; BadInput with the nearest names when there is none."""
    if asked.startswith("path:"):
        path = Path(os.path.expanduser(asked.removeprefix("path:"))).absolute()
        if not path.is_file():
            raise BadInput(f"kernel {asked}: no such file")
        with path.open("rb") as image:
            if image.read(0x206)[0x202:] != b"HdrS":  # Documentation/arch/x86/boot.rst
                raise BadInput(f"kernel {asked}: no x86 kernel image", mend="give a bzImage (vmlinuz)")
        return Kernel(asked, path=path)
    kernels = archive_kernels(archive)
    found = [kernel for kernel in kernels if matches(asked, kernel.version)]
    usable = [kernel for kernel in found if not kernel.missing][::-1]
    if usable:  # the newest; one with its modules before one without
        return replace(max(usable, key=lambda kernel: not kernel.bare), asked=asked)
    if found:
        raise BadInput(
            f"kernel {asked}: the archive lists it without {found[-1].missing}", mend=_nearest(asked, kernels)
        )
    raise BadInput(f"kernel {asked}: not in the archive", mend=_nearest(asked, kernels))


def matches(asked: str, version: str) -> bool:
    if asked == version:
        return True
    numbers = _numbers(asked)
    return bool(numbers) and upstream_of(version)[: len(numbers)] == numbers


@functools.cache
def _numbers(asked: str) -> tuple[int, ...]:
    """Of a line or an upstream version; empty for any other name."""
    return tuple(int(part) for part in asked.split(".")) if re.fullmatch(r"\d+(\.\d+)+", asked) else ()


def _nearest(asked: str, kernels: list[Kernel]) -> str:
    """The usable names on either side of what was asked, and the lines that exist."""
    lines: dict[str, None] = {}
    usable = [kernel for kernel in kernels if not kernel.missing]
    for kernel in usable:
        lines[".".join(str(part) for part in upstream_of(kernel.version)[:2])] = None
    mend = f"lines that exist: {', '.join(lines)}"
    match = re.match(r"\d+(\.\d+)*", asked)
    if match and usable:
        numbers = tuple(int(part) for part in match[0].split("."))
        below = [kernel.version for kernel in usable if upstream_of(kernel.version) < numbers][-1:]
        above = [kernel.version for kernel in usable if upstream_of(kernel.version) > numbers][:1]
        mend = f"nearest: {', '.join(below + above)}; {mend}"
    return mend
