"""The applicability map: which patches of a series fit which trees, without touching one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from labs.build.runtime import runtime_tree
from labs.errors import BadInput
from labs.series import Applicability, Series, by_component, examine, lint
from labs.source.debian import Archive
from labs.source.runtimes import archive_runtimes, find_runtime, upstream_text
from labs.source.trees import find_source, kernel_tree, source_packages
from labs.store import Store
from labs.version import upstream_of


@dataclass(frozen=True)
class Target:
    """A tree that patches of `component` may be meant for."""

    component: str
    name: str
    version: str
    tree: Path


def kernel_targets(asked: Sequence[str], store: Store, archive: Archive) -> Iterator[Target]:
    """The trees that the names give; without names, the newest source package of every line."""
    if not asked:
        newest = {upstream_of(package.version)[:2]: package.version for package in source_packages(archive)}
        asked = list(newest.values())
    for source in [find_source(name, archive) for name in asked]:  # all names are looked up before one is unpacked
        yield Target("kernel", source.asked, source.version, kernel_tree(store, archive, source))


def runtime_targets(asked: Sequence[str], store: Store, archive: Archive) -> Iterator[Target]:
    """The sources of the runtimes that the names give; without names, of every packaged runc."""
    if not asked:
        versions = dict.fromkeys(one.version for one in archive_runtimes(archive) if one.name == "runc")
        asked = [f"runc@{version}" for version in versions]
    for runtime in [find_runtime(name, archive) for name in asked]:
        version = upstream_text(runtime.version.removeprefix("v"))
        yield Target(runtime.name, runtime.asked, version, runtime_tree(store, archive, runtime))


def targets(
    series: Sequence[Series], kernels: Sequence[str], runtimes: Sequence[str], store: Store, archive: Archive
) -> Iterator[Target]:
    """The targets that a series may be meant for, of those that were asked for."""
    for name in runtimes:
        find_runtime(name, archive)  # a name that points nowhere is refused, also where no series is for it
    for name in kernels:
        find_source(name, archive)
    components = {one.component for one in series}
    if "kernel" in components:
        yield from kernel_targets(kernels, store, archive)
    if components - {"kernel"}:
        yield from runtime_targets(runtimes, store, archive)


def unsound(series: Sequence[Series]) -> list[Applicability]:
    """A row for each problem that makes a series malformed whatever the tree."""
    return [Applicability(one.name, "any", "malformed", str(problem)) for one in series for problem in lint(one)]


def rows(series: Sequence[Series], target: Target) -> tuple[Applicability, ...]:
    """The series of the target's component, examined on its tree in the order given."""
    try:
        fitting = tuple(one.for_version(target.version) for one in series if one.component == target.component)
    except BadInput as error:
        return (Applicability("+".join(one.name for one in series), target.name, "target absent", str(error)),)
    return tuple(row for joined in by_component(fitting).values() for row in examine(joined, target.tree, target.name))
