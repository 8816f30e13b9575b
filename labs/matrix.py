"""Cells: one kernel x runtime x provider each, with an id that is stable, readable and fit for a file name."""

from __future__ import annotations

import fnmatch
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass

from labs.errors import BadInput
from labs.store import digest

DEFAULT_KERNEL = "6.1"
DEFAULT_RUNTIME = "runc"
PROVIDERS = ("qemu",)


@dataclass(frozen=True)
class Cell:
    """What one guest is asked to be, in the words that the user typed."""

    kernel: str = DEFAULT_KERNEL
    runtime: str = DEFAULT_RUNTIME
    provider: str = "qemu"

    @property
    def id(self) -> str:
        """As `6.1_runc`; axes at their default that few people vary are left out."""
        parts = [_word(self.kernel), _word(self.runtime)]
        return "_".join(parts + ([] if self.provider == "qemu" else [self.provider]))

    @property
    def options(self) -> list[str]:
        """The command-line options that ask for just this cell."""
        words = ["--kernel", self.kernel, "--runtime", self.runtime]
        return words + ([] if self.provider == "qemu" else ["--provider", self.provider])


def _word(text: str) -> str:
    """A name as part of a file name; what had to be replaced is kept apart by a short hash."""
    safe = re.sub(r"[^A-Za-z0-9.+@~-]", "-", text)
    if safe == text:
        return text
    return f"{safe.strip('-').rsplit('-', 1)[-1][:24]}-{digest(text)[:6]}"


def cells(
    kernels: Sequence[str], runtimes: Sequence[str], provider: str = "qemu", globs: Sequence[str] = ()
) -> list[Cell]:
    """Every combination once, in the order given; `globs` keep the ids that match one of them."""
    if provider not in PROVIDERS:
        raise BadInput(f"provider {provider}: not known", mend=f"one of: {', '.join(PROVIDERS)}")
    product = itertools.product(kernels or [DEFAULT_KERNEL], runtimes or [DEFAULT_RUNTIME])
    expanded = list(dict.fromkeys(Cell(kernel, runtime, provider) for kernel, runtime in product))
    chosen = [cell for cell in expanded if not globs or any(fnmatch.fnmatchcase(cell.id, glob) for glob in globs)]
    if not chosen:
        raise BadInput(f"no cell matches {' '.join(globs)}", mend=f"there are: {', '.join(c.id for c in expanded)}")
    return chosen
