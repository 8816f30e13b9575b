"""What must be made before guests start: each thing once, however many cells need it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labs import prepare
from labs.errors import LabError
from labs.run.plan import ARCHIVE_FILE, load
from labs.run.schedule import Need, Task
from labs.source.debian import Archive
from labs.store import Store, digest

# Kind of the first entry that the store lacks -> seconds, and MB of disk, that a small host took for it and what
# follows it; a guess for whoever plans, no limit.
COSTS = {
    "built": (600, 900), "tree": (700, 2600), "source": (700, 2600), "patched": (60, 30), "kernel": (30, 150),
    "image": (60, 250), "box": (120, 900), "build-root": (90, 900), "runtime": (40, 50), "runtime-tree": (60, 100),
}  # fmt: skip
OTHERWISE = (5, 5)
COMPILES = ("built", "tree", "source", "patched", "runtime", "runtime-tree", "build-root")
MEMORY_MB = {True: 2048, False: 512}  # of what compiles, of what only fetches and unpacks


class NotMade(LabError):
    """The store has no such entry."""

    def __init__(self, kind: str, what: str) -> None:
        super().__init__(what)
        self.kind = kind


class Looking(Store):
    """The store for whoever only wants to know: what is there is found, and kept from removal; nothing is made."""

    def _make(self, final: Path, recipe: Mapping[str, Any], make: Callable[[Path], None], what: str) -> None:
        raise NotMade(final.parent.name, what)


@dataclass(frozen=True)
class Build:
    """One build task: makes all that `cell` needs; `cells` are those that wait for it."""

    cell: str
    what: str
    kind: str
    cells: tuple[str, ...]

    @property
    def id(self) -> str:
        return f"build {self.what}"

    def task(self, cores: int) -> Task:
        compiles = self.kind in COMPILES
        seconds, disk = COSTS.get(self.kind, OTHERWISE)
        return Task(self.id, Need(MEMORY_MB[compiles], cores if compiles else 1, disk), seconds, build=True)


def parts(found: prepare.Found) -> frozenset[str]:
    """Names of the pieces that the cell's guest is made of, apart from those that all guests share."""
    series = {part: [one.id for one in found.applied_to(part)] for part in ("kernel", "runc")}
    kernel = [
        found.source.digest if found.source else "",
        found.kernel.version,
        str(found.kernel.path),
        found.cell.variant,
    ]
    runtime = [found.runtime.module, str(found.runtime.path), found.runtime.version if series["runc"] else ""]
    kernel_id, runtime_id = digest([*kernel, series["kernel"]]), digest([*runtime, series["runc"]])
    return frozenset(
        {f"kernel {kernel_id}", f"runtime {runtime_id}", f"image {found.cell.provider} {found.runtime.image}"}
    )


def builds(cells: Iterable[tuple[str, prepare.Found]], lacks: Callable[[prepare.Found], NotMade | None]) -> list[Build]:
    """The fewest cells that, made whole, make every piece of all; those whose pieces are all there need no build."""
    needs = {cell: parts(found) for cell, found in cells}
    founds = dict(cells)
    covered: set[str] = set()
    made: dict[str, tuple[NotMade, frozenset[str]]] = {}
    for cell, pieces in needs.items():
        if not pieces <= covered:
            lack = lacks(founds[cell])
            if lack:
                made[cell] = lack, pieces - covered
            covered |= pieces
    return [
        Build(cell, f"{lack.what} ({cell})", lack.kind, tuple(one for one, pieces in needs.items() if pieces & new))
        for cell, (lack, new) in made.items()
    ]


def lacking(store: Store, archive: Archive) -> Callable[[prepare.Found], NotMade | None]:
    """A function that tells what is first to be made for a cell, or None."""
    looking = Looking(store.root)

    def lacks(found: prepare.Found) -> NotMade | None:
        try:
            prepare.prepare(found, looking, archive)
        except NotMade as lack:
            return lack
        except LabError as error:
            return NotMade("", str(error))
        return None

    return lacks


def main(folder: Path, cell: str) -> None:
    """A build task's process: make all that the cell needs, at the versions of the plan."""
    store = Store.of_user()
    archive = Archive.as_of(store, folder / ARCHIVE_FILE)
    made = prepare.prepare(load(folder).found(cell, archive), store, archive)
    print(json.dumps(made.to_json()))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
