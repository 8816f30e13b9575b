"""The applicability map: which patches of a series fit which trees, without touching one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from labs.errors import BadInput
from labs.series import Applicability, Series, by_component, examine, lint
from labs.source.debian import Archive
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
