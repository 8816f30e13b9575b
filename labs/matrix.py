"""Cells: one kernel x runtime x variant x series x provider each; its id is stable, readable, fit for a file name."""

from __future__ import annotations

import fnmatch
import functools
import glob
import itertools
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labs import catalog
from labs.errors import BadInput
from labs.series import Malformed, Series, lint, read
from labs.store import digest

DEFAULT_KERNEL = "6.1"
DEFAULT_RUNTIME = "runc"
PROVIDERS = ("qemu", "vagrant", "ssh")
ROLES = ("base", "off", "patched")


@dataclass(frozen=True)
class Cell:
    """What one guest is asked to be, in the words that the user typed.

    `variant` is the config of a kernel built from source; empty without a series: the archive's own binary. `role`
    tells the cells of a series apart: `base` is without it, `patched` with it; a defect that a parameter switches on
    has `off` too, the same binary before the switch.
    """

    kernel: str = DEFAULT_KERNEL
    runtime: str = DEFAULT_RUNTIME
    provider: str = "qemu"
    variant: str = ""
    series: str = ""
    role: str = ""

    @property
    def id(self) -> str:
        """As `6.1_runc`; axes at their default that few people vary are left out."""
        parts = [_word(self.kernel), _word(self.runtime)]
        parts += [_word(self.variant)] if self.variant else []
        parts += [f"{'+'.join(_word(one.name) for one in series_of(self.series))}.{self.role}"] if self.series else []
        return "_".join(parts + ([] if self.provider == "qemu" else [self.provider]))

    @property
    def options(self) -> list[str]:
        """The command-line options that ask for just this cell, or for its series."""
        words = ["--kernel", self.kernel, "--runtime", self.runtime]
        words += ["--variant", self.variant] if self.variant else []
        words += ["--series", self.series] if self.series else []
        return words + ([] if self.provider == "qemu" else ["--provider", self.provider])


@functools.cache
def series_of(spec: str) -> tuple[Series, ...]:
    """The series that a name gives, read once (standard input cannot be read again). Malformed when one is unsound."""
    found = read(spec)
    if problems := tuple(problem for one in found for problem in lint(one)):
        raise Malformed(problems)
    return found


def roles(spec: str) -> tuple[str, ...]:
    """The cells that a series gives, by their role."""
    if not spec:
        return ("",)
    switched = any(one.intent == "defect" and one.parameters for one in series_of(spec))
    return ROLES if switched else ("base", "patched")


PATCHES = Path("patches")  # where a series is looked for by the name that it has in an id


def axes_of(cell_id: str) -> dict[str, Any]:
    """The options, by their axis, that give the cell of this id; BadInput when the id does not tell them."""
    kernel, _, rest = cell_id.partition("_")
    runtime, *words = rest.split("_")
    axes: dict[str, Any] = {"kernels": [kernel], "runtimes": [runtime], "globs": [cell_id]}
    for word in words:
        name, dot, role = word.rpartition(".")
        if word in catalog.read("variants")["variant"]:
            axes["variants"] = [word]
        elif dot and role in ROLES:
            axes["series"] = ["+".join(_found(one, cell_id) for one in name.split("+"))]
        elif word in PROVIDERS:
            axes["provider"] = word
        else:
            runtime = ""
    if not kernel or not runtime:
        raise BadInput(f"no cell is called {cell_id}", mend="labs cells lists them; or give its options")
    return axes


def _found(series: str, cell_id: str) -> str:
    paths = sorted(PATCHES.glob(f"*/{glob.escape(series)}"))
    if len(paths) != 1:
        raise BadInput(f"cell {cell_id}: {PATCHES} has no series {series}", mend="give --series")
    return str(paths[0])


def _word(text: str) -> str:
    """A name as part of a file name; what had to be replaced is kept apart by a short hash."""
    safe = re.sub(r"[^A-Za-z0-9.+@~-]", "-", text)
    if safe == text:
        return text
    return f"{safe.strip('-').rsplit('-', 1)[-1][:24]}-{digest(text)[:6]}"


def cells(
    kernels: Sequence[str],
    runtimes: Sequence[str],
    provider: str = "",
    globs: Sequence[str] = (),
    *,
    variants: Sequence[str] = (),
    series: Sequence[str] = (),
) -> list[Cell]:
    """Every combination once, in the order given; `globs` keep the ids that match one of them."""
    provider = provider or PROVIDERS[0]
    if provider not in PROVIDERS:
        raise BadInput(f"provider {provider}: not known", mend=f"one of: {', '.join(PROVIDERS)}")
    axes = (kernels or [DEFAULT_KERNEL], runtimes or [DEFAULT_RUNTIME], variants or [""], series or [""])
    expanded = list(
        dict.fromkeys(
            Cell(kernel, runtime, provider, variant, spec, role)
            for kernel, runtime, variant, spec in itertools.product(*axes)
            for role in roles(spec)
        )
    )
    twice = [cell_id for cell_id, count in Counter(cell.id for cell in expanded).items() if count > 1]
    if twice:
        raise BadInput(f"two cells would be called {twice[0]}", mend="give the series' folders different names")
    chosen = [cell for cell in expanded if not globs or any(fnmatch.fnmatchcase(cell.id, glob) for glob in globs)]
    if not chosen:
        raise BadInput(f"no cell matches {' '.join(globs)}", mend=f"there are: {', '.join(c.id for c in expanded)}")
    return chosen


def one_cell(cell_id: str = "", **axes: Any) -> Cell:
    """The one cell that an id, and options as `cells` takes them, name; options override the id. BadInput: several."""
    if cell_id:
        given = {axis: values for axis, values in axes.items() if values}
        named = axes_of(cell_id)
        if given.keys() & {"kernels", "runtimes", "variants", "series", "provider"}:
            role = re.search(rf"\.({'|'.join(ROLES)})(?=_|$)", cell_id)
            named["globs"] = [f"*{role[0]}", f"*{role[0]}_*"] if role else []
        axes = {**axes, **named, **given}
    chosen = cells(**{"kernels": [], "runtimes": [], **axes})
    if len(chosen) > 1:
        ids = ", ".join(cell.id for cell in chosen)
        raise BadInput(f"these options make {len(chosen)} cells: {ids}", mend="name one, or choose with --cell")
    return chosen[0]
