"""A matrix file: which cells there are, which are left out and why, and the sets that people and CI run.

hosts = ["root@192.0.2.7:22"]       # machines that already run, for cells of provider ssh; --ssh has precedence

[axes]                              # every combination is a cell; an axis that is absent has its default
kernel = ["6.1", "6.12"]
runtime = ["runc", "crun"]
variant = ["", "lockdep"]           # "": the archive's own binary
series = ["", "patches/kernel/x"]   # "": none
provider = "qemu"

[[include]]                         # more cells, of a product of their own
kernel = "6.12"
runtime = "runc@v1.2.0"

[[exclude]]                         # `cells` are patterns of ids, as --cell takes them
cells = "6.1_crun_lockdep"
reason = "why, for whoever looks for the cell"

[[override]]                        # the guest's size
cells = "*_lockdep*"
cpus = 4
memory_mb = 2048

[set.nightly]
cells = "6.*"
suites = ["suites/cgroup_atomicity"]
full = true                         # the large sizes (default: no)
minutes = 90                        # how long a job of it may take (default: 60)

[feature.memory-peak]               # the kernels (low <= version < high) and variants that have it
since = "6.12"
until = ""
variant = ["lockdep"]

[suite."suites/x"]                  # a cell that lacks one of them is skipped there, with the reason
requires = ["memory-peak"]
"""

from __future__ import annotations

import difflib
import fnmatch
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from labs import catalog, matrix
from labs.errors import BadInput
from labs.feature import lack, requires
from labs.matrix import Cell
from labs.tomlfile import Keys, TomlFile

AXES = ("kernel", "runtime", "variant", "series", "provider")
SIZES = ("cpus", "memory_mb")
PARTS = ("hosts", "axes", "include", "exclude", "override", "set", "feature", "suite")


@dataclass(frozen=True)
class Planned:
    """One cell of a matrix: with a reason in `excluded` it never runs.

    `sizes` are those of its guest that differ from the lab's (`cpus`, `memory_mb`); `lacks` tells, by suite, why it
    is skipped there; `full` asks for the large sizes; `hosts` are machines, one of which is its guest.
    """

    cell: Cell
    excluded: str = ""
    sizes: Mapping[str, int] = field(default_factory=dict)
    lacks: Mapping[str, str] = field(default_factory=dict)
    full: bool = False
    hosts: tuple[str, ...] = ()

    def skipped(self, nodeid: str) -> str:
        """Why a test, by its pytest id, is skipped in this cell; empty when it is not."""
        path = nodeid.partition("::")[0]
        return next((why for suite, why in self.lacks.items() if f"{path}/".startswith(f"{suite.rstrip('/')}/")), "")

    def to_json(self) -> dict[str, object]:
        """The row as `labs cells` shows it."""
        note = [f"{name} {size}" for name, size in self.sizes.items()]
        note += [f"not for {suite}: {why}" for suite, why in self.lacks.items()]
        return {"id": self.cell.id, **asdict(self.cell), "excluded": self.excluded, "note": "; ".join(note)}


@dataclass(frozen=True)
class Set:
    """A named choice of cells, with what runs on them."""

    cells: tuple[str, ...]  # patterns of ids
    suites: tuple[str, ...]
    full: bool
    minutes: int


@dataclass(frozen=True)
class Matrix:
    path: str
    rows: tuple[Planned, ...]  # in the order of the file
    sets: dict[str, Set]

    def set(self, name: str) -> Set:
        if name not in self.sets:
            there = ", ".join(self.sets) or "none"
            raise BadInput(f"{self.path}: no set is called {name}", mend=f"there are: {there}")
        return self.sets[name]

    def select(self, name: str = "", globs: Sequence[str] = ()) -> list[Planned]:
        """The rows of a set (of all, without a name) whose id matches one of `globs`; excluded ones too."""
        patterns = self.set(name).cells if name else ("*",)
        found = [row for row in self.rows if matches(row.cell, patterns) and (not globs or matches(row.cell, globs))]
        return [self._within(row, self.set(name)) for row in found] if name else found

    def chosen(self, name: str = "", globs: Sequence[str] = ()) -> list[Planned]:
        """Those of `select` that run; BadInput when there is none."""
        found = self.select(name, globs)
        if not any(not row.excluded for row in found):
            asked = " ".join(filter(None, [f"set {name}" if name else "", *globs])) or "the whole matrix"
            left = "; ".join(f"{row.cell.id} is excluded: {row.excluded}" for row in found)
            there = ", ".join(row.cell.id for row in self.select(name) if not row.excluded)
            raise BadInput(f"{self.path}: {asked}: no cell to run", mend=left or f"there are: {there or 'none'}")
        return [row for row in found if not row.excluded]

    def _within(self, row: Planned, chosen: Set) -> Planned:
        lacking = [row.lacks[suite] for suite in chosen.suites if suite in row.lacks]
        out = "; ".join(dict.fromkeys(lacking)) if len(lacking) == len(chosen.suites) else ""
        return replace(row, excluded=row.excluded or out, full=chosen.full)


def matches(cell: Cell, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(cell.id, pattern) for pattern in patterns)


def asked(path: Path | None, name: str, globs: Sequence[str], **axes: Any) -> list[Planned]:
    """The cells of a matrix file and a set of it (excluded ones too), or of the axes that options give.

    BadInput when both name cells, or when no cell is left to run.
    """
    if path is None:
        if name:
            raise BadInput("--set without a matrix", mend="give --matrix FILE")
        return [Planned(cell) for cell in matrix.cells(**axes, globs=globs)]
    if any(axes.values()):
        raise BadInput("both --matrix and options name cells", mend="give the one or the other; --cell chooses")
    found = read(path)
    found.chosen(name, globs)
    return found.select(name, globs)


def read(path: Path) -> Matrix:
    """Read and check a matrix file; BadInput tells the line of what is wrong."""
    file = TomlFile.read(path)
    file.has_only((), PARTS)
    if "axes" not in file.table and not file.rows("include"):
        raise file.refused((), "no cell is named", 'write [axes] and kernel = ["6.1"]')
    cells = _product(file, ("axes",), 0) if "axes" in file.table else []
    for number in file.rows("include"):
        more = _product(file, ("include", number), 1)
        there = {one.id for one in cells}
        twice = [cell.id for cell in more if cell.id in there]
        if twice:
            raise file.refused(("include", number), f"include of {twice[0]}, which is there already", "remove one")
        cells += more
    hosts = tuple(file.texts(("hosts",))) if "hosts" in file.table else ()
    if not hosts and (lost := next((cell for cell in cells if cell.provider == "ssh"), None)):
        raise file.refused((), f"cell {lost.id} has no machine", 'write hosts = ["root@192.0.2.7:22"] before [axes]')
    excludes, overrides, needs = _excludes(file, cells), _overrides(file, cells), requires(file)
    rows = [
        Planned(
            cell,
            next((reason for patterns, reason in excludes if matches(cell, patterns)), ""),
            dict(size for patterns, sizes in overrides if matches(cell, patterns) for size in sizes.items()),
            {suite: why for suite, features in needs.items() if (why := lack(cell, features))},
            hosts=hosts if cell.provider == "ssh" else (),
        )
        for cell in cells
    ]
    made = Matrix(str(path), tuple(rows), _sets(file, cells))
    for name in made.sets:
        if all(row.excluded for row in made.select(name)):
            why = "; ".join(dict.fromkeys(row.excluded for row in made.select(name)))
            raise file.refused(("set", name), f"set {name} is empty: all its cells are excluded: {why}", "add a cell")
    return made


def _product(file: TomlFile, keys: Keys, least: int) -> list[Cell]:
    """Every combination of the axes there; at `least` so many must be named."""
    table = file.has_only(keys, AXES)
    axes = {axis: file.texts((*keys, axis)) for axis in AXES if axis in table}
    if len(axes) < least:
        raise file.refused(keys, f"{keys[0]} names no axis", f"give one of: {', '.join(AXES)}")
    variants = {"", *catalog.read("variants")["variant"]}
    for axis, values in axes.items():
        for value in values:
            if not value.strip() and axis not in ("variant", "series"):
                raise file.refused((*keys, axis), f"{axis} has an empty text", "name one", value)
            if axis == "variant" and value not in variants and not value.startswith("config:"):
                known = ", ".join(sorted(variants - {""}))
                raise file.refused((*keys, axis), f"no variant {value!r}", f"config:PATH or one of: {known}", value)
            if axis == "provider" and value not in matrix.PROVIDERS:
                known = ", ".join(matrix.PROVIDERS)
                raise file.refused((*keys, axis), f"provider {value}: not known", f"one of: {known}", value)
    try:
        return [
            cell
            for provider in axes.get("provider", ("qemu",))
            for cell in matrix.cells(
                axes.get("kernel", ()),
                axes.get("runtime", ()),
                provider,
                variants=axes.get("variant", ()),
                series=axes.get("series", ()),
            )
        ]
    except BadInput as error:  # a series that is unsound, or not there
        at = (*keys, "series") if "series" in axes else keys
        raise file.refused(at, error.what, error.mend or "mend it") from None


def _patterns(file: TomlFile, keys: Keys, cells: Sequence[Cell]) -> tuple[str, ...]:
    """Patterns of ids, each of which some cell must match."""
    patterns = file.texts((*keys, "cells"))
    for pattern in patterns:
        if not any(matches(cell, [pattern]) for cell in cells):
            nearest = ", ".join(difflib.get_close_matches(pattern, [cell.id for cell in cells], 3, 0))
            raise file.refused(
                (*keys, "cells"), f"{keys[0]} of {pattern!r} matches no cell", f"nearest: {nearest}", pattern
            )
    return patterns


def _excludes(file: TomlFile, cells: Sequence[Cell]) -> list[tuple[tuple[str, ...], str]]:
    made = []
    for number in file.rows("exclude"):
        keys = ("exclude", number)
        file.has_only(keys, ("cells", "reason"))
        made.append((_patterns(file, keys, cells), " ".join(file.text((*keys, "reason")).split())))
    return made


def _overrides(file: TomlFile, cells: Sequence[Cell]) -> list[tuple[tuple[str, ...], dict[str, int]]]:
    """In the order of the file: where two override the same size of a cell, the later does."""
    made = []
    for number in file.rows("override"):
        keys = ("override", number)
        table = file.has_only(keys, ("cells", *SIZES))
        sizes = {name: file.count((*keys, name), 1) for name in SIZES if name in table}
        if not sizes:
            raise file.refused(keys, "override changes nothing", f"give one of: {', '.join(SIZES)}")
        made.append((_patterns(file, keys, cells), sizes))
    return made


def _sets(file: TomlFile, cells: Sequence[Cell]) -> dict[str, Set]:
    made = {}
    for name in file.has_only(("set",), ()):
        keys = ("set", name)
        file.has_only(keys, ("cells", "suites", "full", "minutes"))
        if not re.fullmatch(r"[a-z][a-z0-9-]*", name):
            raise file.refused(keys, f"set {name!r}: not fit for the name of a job", "use a-z, 0-9 and -")
        suites = file.texts((*keys, "suites"))
        full, minutes = file.flag((*keys, "full")), file.count((*keys, "minutes"), 60)
        made[name] = Set(_patterns(file, keys, cells), suites, full, minutes)
    return made
