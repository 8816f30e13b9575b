"""Container runtimes by the names that users type: `runc`, `crun`, `runc@1.1.15`, `runc@v1.2.0`, `path:/x/runc`."""

from __future__ import annotations

import os
import platform
import re
from dataclasses import dataclass
from pathlib import Path

from labs import catalog
from labs.command import run
from labs.deadline import Deadline
from labs.errors import BadInput, CommandFailed, LabError
from labs.source.debian import Archive, Package
from labs.version import debian_version_key

NAMES = ("runc", "crun")
MODULE = "github.com/opencontainers/runc"
DEFAULT_IMAGE = "bookworm"  # on hosts that are no Debian, or one that has no image of its own


@dataclass(frozen=True)
class Runtime:
    """A runtime that was asked for and found: in which image it runs, and which package or file it is."""

    asked: str
    name: str  # runc or crun
    image: str
    version: str = ""  # package version; empty for a file
    package: Package | None = None
    module: str = ""  # Go module with its version, to be built
    path: Path | None = None


def host_image() -> str:
    """The image of the host's own suite, so that `runc` means what this machine would install."""
    try:
        codename = platform.freedesktop_os_release().get("VERSION_CODENAME", "")
    except OSError:
        codename = ""
    return codename if codename in catalog.images() else DEFAULT_IMAGE


def archive_runtimes(archive: Archive) -> list[Runtime]:
    """Every packaged runtime with each image that it runs in, by name and then oldest first."""
    return archive.once(_runtimes)


def _runtimes(archive: Archive) -> list[Runtime]:
    found: dict[tuple[str, str, str], Runtime] = {}
    for image in catalog.images().values():
        own = image.suites[-1] if image.name == "experimental" else image.suites
        for package in archive.packages():
            if package.name in NAMES and package.suite in own:
                runtime = Runtime(package.version, package.name, image.name, package.version, package)
                found.setdefault((package.name, package.version, image.name), runtime)
    return sorted(found.values(), key=lambda runtime: (runtime.name, debian_version_key(runtime.version)))


def module_versions() -> list[str]:
    """Releases of runc as Go modules, oldest first, as the go client's proxy tells them; candidates for one are left
    out. LabError when it cannot be asked."""
    try:
        told = run(["go", "list", "-m", "-versions", MODULE], Deadline(60, "asking for runc's versions"), cwd=Path("/"))
    except CommandFailed as error:
        raise LabError(
            f"runc's versions cannot be asked for: {error}", mend="the go client must reach a module proxy"
        ) from None
    return [word for word in told.out.split()[1:] if re.fullmatch(r"v\d+\.\d+\.\d+", word)]


def find_runtime(asked: str, archive: Archive) -> Runtime:
    """The runtime that `asked` names; BadInput with those that exist when there is none."""
    if asked.startswith("path:"):
        path = Path(os.path.expanduser(asked.removeprefix("path:"))).absolute()
        if not path.is_file():
            raise BadInput(f"runtime {asked}: no such file")
        with path.open("rb") as program:
            if program.read(4) != b"\x7fELF" or not os.access(path, os.X_OK):
                raise BadInput(
                    f"runtime {asked}: no program", mend="give the executable that was built, as path:/x/runc"
                )
        name = "crun" if path.name.startswith("crun") else "runc"
        return Runtime(asked, name, host_image(), path=path)
    name, at, version = asked.partition("@")
    if name == "runc" and re.fullmatch(r"v\d+\.\d+\.\d+(-[\w.]+)?", version):
        return Runtime(asked, name, host_image(), version, module=f"{MODULE}@{version}")
    offered = archive_runtimes(archive)
    if name in NAMES:
        image = host_image()
        matches = [
            runtime
            for runtime in offered
            if runtime.name == name and (_is_version(version, runtime.version) if at else runtime.image == image)
        ]
        if matches:
            newest = next(match for match in matches if match.version == matches[-1].version)  # of the oldest suite
            return Runtime(asked, name, newest.image, newest.version, newest.package)
    names = ", ".join(dict.fromkeys(f"{runtime.name}@{upstream_text(runtime.version)}" for runtime in offered))
    raise BadInput(f"runtime {asked}: not in the archive", mend=f"those that exist: {names}, path:/x/runc")


def upstream_text(version: str) -> str:
    """Upstream part of a Debian version, without Debian's repack suffix: '1.1.5+ds1-1+deb12u1' gives '1.1.5'."""
    return re.split(r"[+~-]", version, maxsplit=1)[0]


def _is_version(asked: str, version: str) -> bool:
    return asked in (version, upstream_text(version))
