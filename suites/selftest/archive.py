"""A small archive without a network: rows as the signed lists give them, in both layouts of kernel packages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from labs.source.debian import Archive, Package
from labs.store import Store


def package(name: str, version: str, suite: str = "bookworm", depends: str = "") -> Package:
    return Package(name, version, suite, f"sha256 of {name} {version}", 1000, depends)


def _image(release: str, version: str, suite: str, depends: str = "kmod, linux-base") -> Package:
    return package(f"linux-image-{release}", version, suite, depends)


def _old(release: str, version: str, suite: str) -> list[Package]:
    """Up to 6.18: all is in linux-image; linux-base-RELEASE, where it is named, is an empty package."""
    return [_image(release, version, suite, f"kmod, linux-base-{release} (= {version}), initramfs-tools | dracut")]


def _new(release: str, version: str, suite: str, *parts: str, there: int = 3) -> list[Package]:
    """From 6.19: vmlinuz in linux-binary; from 7.2 modules and config in packages of their own."""
    depends = ", ".join(f"linux-{part}-{release} (= {version})" for part in parts)
    rows = [package(f"linux-{part}-{release}", version, suite) for part in parts[:there]]
    return [_image(release, version, suite, f"{depends}, kmod"), *rows]


ALL = ("binary", "modules", "base")
ROWS = [
    *_new("7.3-rc7-cloud-amd64", "7.3~rc7-1~exp1", "experimental", *ALL),
    *_old("6.1.0-55-cloud-amd64", "6.1.190-1", "bookworm"),
    *_old("6.1.0-57-cloud-amd64", "6.1.192-3", "bookworm-security"),
    *_old("6.1.0-57-cloud-amd64", "6.1.192-3", "bookworm"),  # in two suites: one kernel
    *_old("6.12.57+deb13-cloud-amd64", "6.12.57-1", "trixie"),
    *_old("6.12.57+deb12-cloud-amd64", "6.12.57-1~bpo12+1", "bookworm-backports"),
    *_old("6.12.107+deb13-cloud-amd64", "6.12.107-1", "trixie-security"),
    *_new("7.0.13+deb13-cloud-amd64", "7.0.13-1~bpo13+1", "trixie-backports", "binary"),
    *_new("7.2.12+deb14-cloud-amd64", "7.2.12-1", "sid", *ALL),
    *_new("7.2.13+deb14-cloud-amd64", "7.2.13-1", "sid", *ALL, there=1),  # without its modules
    *_new("7.3.4+deb14-cloud-amd64", "7.3.4-1", "experimental", *ALL),
    *_new("7.4-rc1-cloud-amd64", "7.4~rc1-1~exp1", "experimental", *ALL, there=0),  # all but a name
    package("linux-image-6.1.0-57-cloud-amd64-dbg", "6.1.192-3"),
    package("linux-image-6.1.0-57-cloud-amd64-unsigned", "6.1.192-3"),
    package("runc", "1.1.5+ds1-1", "bookworm"),
    package("runc", "1.1.5+ds1-1+deb12u1", "bookworm-security"),
    package("runc", "1.1.15+ds1-2", "trixie"),
    package("runc", "1.1.15+ds1-2+b4", "sid"),
    package("runc", "1.3.3+ds1-1", "experimental"),
    package("crun", "1.8.1-1+deb12u1", "bookworm"),
    package("crun", "1.21-1", "trixie"),
    package("crun", "1.21-1", "sid"),  # not rebuilt: the same package in two suites
    package("busybox-static", "1:1.35.0-4", "bookworm"),
]


class FakeArchive(Archive):
    """Answers from rows; asks nobody."""

    def __init__(self, root: Path, rows: list[Package] | None = None) -> None:
        super().__init__(Store(root))
        self._packages = ROWS if rows is None else rows

    def _apt(self, *arguments: str, cwd: Path | None = None) -> Any:
        raise AssertionError(f"apt-get {' '.join(arguments)} in a selftest")
