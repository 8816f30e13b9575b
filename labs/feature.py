"""What a suite needs of a cell, as a matrix file tells it; what only a guest can tell is left to the suite's probes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from labs.matrix import Cell
from labs.tomlfile import Keys, TomlFile
from labs.version import in_range, upstream_of

NEWEST = 1 << 30  # stands where a line has the number of its newest release


@dataclass(frozen=True)
class Feature:
    """What some kernels have: those of the versions `since` <= version < `until`, with one of the variants."""

    name: str
    since: str
    until: str
    variants: tuple[str, ...]


def requires(file: TomlFile) -> dict[str, list[Feature]]:
    """Suite -> the features that it needs of a cell."""
    features = {name: _feature(file, name) for name in file.has_only(("feature",), ())}
    made = {}
    for suite in file.has_only(("suite",), ()):
        keys: Keys = ("suite", suite)
        file.has_only(keys, ("requires",))
        names = file.texts((*keys, "requires"))
        for name in names:
            if name not in features:
                there = ", ".join(features) or "none"
                raise file.refused((*keys, "requires"), f"no feature {name!r}", f"there are: {there}", name)
        made[suite] = [features[name] for name in names]
    return made


def _feature(file: TomlFile, name: str) -> Feature:
    keys: Keys = ("feature", name)
    table = file.has_only(keys, ("since", "until", "variant"))
    if not table:
        raise file.refused(keys, f"feature {name} tells nothing", "give since, until or variant")
    since, until = (file.text((*keys, key)) if table.get(key) else "" for key in ("since", "until"))
    for key, version in (("since", since), ("until", until)):
        if version and not re.fullmatch(r"\d+(\.\d+)+", version):
            raise file.refused((*keys, key), f"feature {name}: {version!r} is no version", "write it as 6.1.192")
    return Feature(name, since, until, file.texts((*keys, "variant")) if "variant" in table else ())


def lack(cell: Cell, features: Sequence[Feature]) -> str:
    """Why the cell has not all of the features; empty when it has, or when only a guest can tell."""
    for one in features:
        if one.variants and cell.variant not in one.variants:
            return f"{one.name} needs a kernel of variant {' or '.join(one.variants)}"
        version = _upstream(cell.kernel)
        if version and not in_range(version, one.since, one.until):
            bounds = [f"since {one.since}" if one.since else "", f"before {one.until}" if one.until else ""]
            return f"kernel {cell.kernel} has no {one.name}: {', '.join(filter(None, bounds))}"
    return ""


def _upstream(kernel: str) -> tuple[int, ...]:
    """The version that a kernel's name tells, a line standing for its newest; empty for a path, a tree, a commit."""
    if re.fullmatch(r"\d+\.\d+", kernel):
        return (*upstream_of(kernel)[:2], NEWEST)
    return upstream_of(kernel) if re.match(r"\d", kernel) else ()
