"""What may be asked for, as rows of tables. Facts live in the .toml files beside this loader, never in branches."""

from __future__ import annotations

import functools
import tomllib
from dataclasses import dataclass
from datetime import date
from importlib.resources import files
from typing import Any

from labs.errors import BadInput


def read(name: str) -> dict[str, Any]:
    """One table file as it stands: archive, guest, images, known."""
    return tomllib.loads((files(__package__) / f"{name}.toml").read_text())


@dataclass(frozen=True)
class Image:
    """A root image: `name` is what users type, `suites` the archive suites that it is made from."""

    name: str
    suites: tuple[str, ...]


@dataclass(frozen=True)
class Known:
    """A known defect: on kernels of `ranges` the invariants may be violated for files called `files`.

    `ranges` are half-open pairs of upstream versions (`until` may be empty: not fixed yet). `signature` is a regular
    expression that the verdict's reason must match, so that another violation of the same invariant stays a failure.
    `runtimes`: a defect of a container runtime, which only these (name, from, until) have.
    After the day `expires` the row explains nothing any more: somebody has to look again.
    """

    id: str
    invariants: tuple[str, ...]
    files: tuple[str, ...]
    ranges: tuple[tuple[str, str], ...]
    signature: str
    source: str
    expires: date
    runtimes: tuple[tuple[str, str, str], ...] = ()


@functools.cache
def images() -> dict[str, Image]:
    return {name: Image(name, tuple(row["suites"])) for name, row in read("images")["image"].items()}


def image(name: str) -> Image:
    """The image called `name`; BadInput names those that exist."""
    rows = images()
    if name not in rows:
        raise BadInput(f"no image {name!r}", mend=f"one of: {', '.join(rows)}")
    return rows[name]


def known_defects() -> tuple[Known, ...]:
    return tuple(
        Known(
            id=row["id"],
            invariants=tuple(row["invariant"]),
            files=tuple(row["files"]),
            ranges=tuple((low, high) for low, high in row.get("ranges", [["0", ""]])),
            signature=row["signature"],
            source=row["source"].strip(),
            runtimes=tuple((name, low, high) for name, low, high in row.get("runtimes", ())),
            expires=row["expires"],
        )
        for row in read("known")["known"]
    )
