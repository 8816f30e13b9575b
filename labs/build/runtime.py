"""Runtimes from source: Debian's package in a build root of its suite, or a Go module by version; series on top."""

from __future__ import annotations

import hashlib
import logging
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from debian.deb822 import Sources

from labs import catalog
from labs.build.image import AS_ROOT_OF_NAMESPACE, bootstrap
from labs.build.made import Made
from labs.build.sandbox import Sandbox, tail
from labs.command import run, which
from labs.deadline import Deadline
from labs.errors import BadInput, CommandFailed, DoesNotCompile, LabError, SeriesFailed
from labs.series import Series, apply
from labs.source.debian import Archive, unpack
from labs.source.runtimes import Runtime
from labs.store import Store, file_digest, remove_tree

log = logging.getLogger("labs")

RECIPE = 1  # raise it when the steps below change
BUILD_SECONDS = 1800
INSIDE = "gopath/src/github.com/opencontainers/runc"  # where a build finds the tree; Go's old layout asks for it
PACKAGE = "github.com/opencontainers/runc"
# Equal sources must give equal binaries: no path of the host, no time, no commit in them.
GO_BUILD = ("go", "build", "-trimpath", "-buildvcs=false", "-tags", "seccomp", "-o", "/out/runc")


@dataclass(frozen=True)
class _Source:
    """A tree, and how its build runs."""

    tree: Path
    origin: str  # of the store's entries
    root: Path | None  # the build root; None: the host's own tools
    env: Mapping[str, str]
    read: Mapping[str, Path]
    version: str


def packaged_runtime(store: Store, archive: Archive, runtime: Runtime) -> Path:
    """The program of the archive's package, for a machine whose disk is not the lab's."""
    assert runtime.package
    deb = archive.fetch(runtime.package)

    def make(folder: Path) -> None:
        unpack(deb, folder / "tree")
        found = [path for path in (folder / "tree").rglob(runtime.name) if path.parent.name in ("bin", "sbin")]
        next(path for path in found if not path.is_symlink()).rename(folder / runtime.name)  # bin has a link to sbin
        remove_tree(folder / "tree")

    return store.build("packaged", {"sha256": runtime.package.sha256}, make) / runtime.name


def built_runtime(store: Store, archive: Archive, runtime: Runtime, series: Sequence[Series]) -> Path:
    """The runtime's program, built now if it never was.

    LabError when the base does not build; DoesNotCompile when the base builds and the series breaks it.
    """
    source = _module(store, runtime) if runtime.module else _package(store, archive, runtime)
    base = _program(store, source, ())
    if not series:
        return base
    patched = _program(store, source, series)
    if file_digest(patched) == file_digest(base):
        names = " + ".join(one.name for one in series)
        log.warning("%s makes the same binary as its base: it changes nothing that is built", names)
    return patched


def runtime_tree(store: Store, archive: Archive, runtime: Runtime) -> Path:
    """The source of a runtime, with Debian's patches when it is a package; never written to."""
    return _module(store, runtime).tree if runtime.module else _unpacked(store, archive, runtime)[0]


def _program(store: Store, source: _Source, series: Sequence[Series]) -> Path:
    names = " + ".join(one.name for one in series)

    def make(folder: Path) -> None:
        tree, out = folder / "tree", folder / "out"
        out.mkdir()
        run(["cp", "-a", str(source.tree), str(tree)], Deadline(120, "copying the runtime's source"))
        run(["chmod", "-R", "u+w", str(tree)], Deadline(60, "copying the runtime's source"))
        for one in series:
            apply(one, tree)
        sandbox = Sandbox({**source.read, f"/{INSIDE}": tree}, {"/out": out}, source.root)
        argv = [*GO_BUILD, "-ldflags", f"-X main.version={source.version} -X main.gitCommit=", PACKAGE]
        env = {"GOCACHE": "/out/cache", "CGO_ENABLED": "1", "GOTOOLCHAIN": "local", **source.env}
        code = sandbox.run(
            argv, Deadline(BUILD_SECONDS, "building the runtime"), folder / "log", cwd=f"/{INSIDE}", env=env
        )
        if code != 0:
            words = tail(folder / "log")
            first = next((line for line in words.splitlines() if re.match(r"\S+\.go:\d+", line)), words[-200:].strip())
            if series:
                raise DoesNotCompile(f"{names} does not compile, its base does: {first}", evidence=words)
            raise LabError(f"{source.origin} does not compile: {first}", evidence=words)
        Made(out, names or source.origin, SeriesFailed if series else LabError).keep("runc", folder / "runc")
        (folder / "runc").chmod(0o755)
        remove_tree(out)
        remove_tree(tree)

    patches = [hashlib.sha256(patch.raw).hexdigest() for one in series for patch in one.patches]
    root = source.root.parent.name if source.root else _go_version()
    recipe = {"recipe": RECIPE, "source": source.origin, "series": patches, "tools": root, "build": GO_BUILD}
    return store.build("runtime", recipe, make, f"{source.origin}{f' with {names}' if names else ''}") / "runc"


def _go_version() -> str:
    return run(["go", "version"], Deadline(20, "asking go")).out.strip()


# Debian's package


def _unpacked(store: Store, archive: Archive, runtime: Runtime) -> tuple[Path, Path]:
    """The package's tree with Debian's patches, and its .dsc."""
    if not runtime.package:
        raise BadInput(f"runtime {runtime.asked}: a program has no source", mend="name a package or a Go module")
    package = runtime.package
    source = archive.fetch_source(package)
    (dsc,) = source.glob("*.dsc")

    def make(folder: Path) -> None:
        run(["dpkg-source", "--no-check", "-x", str(dsc), str(folder / "tree")], Deadline(120, "unpacking the runtime"))

    recipe = {"recipe": RECIPE, "dsc": file_digest(dsc)}
    return store.build("runtime-tree", recipe, make, f"source of {package.name} {package.version}") / "tree", dsc


def _package(store: Store, archive: Archive, runtime: Runtime) -> _Source:
    tree, dsc = _unpacked(store, archive, runtime)
    root = _build_root(store, archive, runtime, _needed(dsc))
    env = {"GOPATH": "/gopath:/usr/share/gocode", "GO111MODULE": "off"}
    upstream = re.split(r"-[^-]*$", runtime.version)[0]
    return _Source(tree, f"{runtime.name} {runtime.version}", root, env, {}, upstream)


def _needed(dsc: Path) -> tuple[str, ...]:
    """Packages that a build needs, without those for its tests and documentation."""
    with dsc.open() as text:
        relations = Sources(text).relations
    names = [
        group[0]["name"] for kind in ("build-depends", "build-depends-arch") for group in relations.get(kind) or []
    ]
    return tuple(sorted({name for name in names if name.startswith(("golang-", "lib")) or name == "pkg-config"}))


def _build_root(store: Store, archive: Archive, runtime: Runtime, needed: tuple[str, ...]) -> Path:
    """A root file system of the runtime's suite with its compiler and libraries."""
    suites = catalog.image(runtime.image).suites
    packages = [*needed, "gcc", "golang-go", "libc6-dev", "pkg-config", "util-linux"]

    def make(folder: Path) -> None:
        bootstrap(archive.sources(suites), suites[0], packages, folder / "root.tar")
        root = folder / "root"
        root.mkdir()
        prefix = () if os.geteuid() == 0 else AS_ROOT_OF_NAMESPACE
        argv = [
            *prefix,
            "tar",
            "--no-same-owner",
            "-xf",
            str(folder / "root.tar"),
            "-C",
            str(root),
            "--exclude=./dev/*",
        ]
        run(argv, Deadline(300, "unpacking the build root"))
        (folder / "root.tar").unlink()
        for inside in (INSIDE, "out"):
            (root / inside).mkdir(parents=True, exist_ok=True)

    recipe = {"recipe": RECIPE, "suites": suites, "packages": packages, "built-for": runtime.version}
    return store.build("build-root", recipe, make, f"build root {runtime.image} (mmdebstrap)") / "root"


# Go module


def _module(store: Store, runtime: Runtime) -> _Source:
    """Sources and dependencies through the ordinary go client; the build itself has no network."""
    go = _go_version()

    def make(folder: Path) -> None:
        env = {"GOMODCACHE": str(folder / "modules"), "GOFLAGS": "-modcacherw", "GOTOOLCHAIN": "local"}
        deadline = Deadline(600, f"fetching {runtime.module}")
        try:
            run(["go", "mod", "download", runtime.module], deadline, cwd=folder, env=env)
            home = folder / "modules" / runtime.module
            run(["cp", "-a", str(home), str(folder / "tree")], Deadline(60, "copying the module"))
            run(["go", "mod", "download", "all"], deadline, cwd=folder / "tree", env=env)
        except CommandFailed as error:
            raise LabError(
                f"{runtime.module} cannot be fetched: {(error.evidence.strip().splitlines() or [str(error)])[-1]}",
                mend="the go client must reach a module proxy (go env GOPROXY)",
                evidence=error.evidence,
            ) from None

    recipe = {"recipe": RECIPE, "module": runtime.module, "go": go}
    folder = store.build("runtime-tree", recipe, make, f"source of {runtime.module}")
    path = f"{Path(which('go')).resolve().parent}:/usr/bin:/bin"
    env = {"GOMODCACHE": "/modules", "GOPROXY": "off", "GOFLAGS": "-mod=mod", "GONOSUMDB": "*", "PATH": path}
    return _Source(folder / "tree", runtime.module, None, env, {"/modules": folder / "modules"}, runtime.version)
