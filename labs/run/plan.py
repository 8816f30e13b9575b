"""What a run of many cells is: planned and pinned once, kept beside its record, read by all who have a part in it.

records/<run>/plan.json      the request, the cells, the versions that they had when the run was planned
records/<run>/archive.json   the archive's lists of that moment: what a name means does not change in mid-run
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from labs import matrixfile, prepare
from labs.casebook import ATTEMPTS
from labs.errors import BadInput, LabError
from labs.matrix import Cell
from labs.matrixfile import Planned
from labs.report.record import CellRecord
from labs.report.session import source_digest
from labs.source.debian import Archive
from labs.store import digest, file_digest

PLAN_FILE, ARCHIVE_FILE = "plan.json", "archive.json"
Pin = Mapping[str, str]


@dataclass(frozen=True)
class Request:
    """What was asked for, in the words of the command line; `keyword` and `marks` are pytest's -k and -m."""

    suites: tuple[str, ...] = ()
    matrix: str = ""
    set: str = ""
    globs: tuple[str, ...] = ()
    kernels: tuple[str, ...] = ()
    runtimes: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()
    series: tuple[str, ...] = ()
    provider: str = ""
    keyword: str = ""
    marks: str = ""
    full: bool = False
    known: str = "report"

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Request:
        values: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in row.items()}
        return cls(**values)

    def rows(self) -> list[Planned]:
        """The cells to run; BadInput when there are none, or a name of the matrix file points nowhere."""
        axes = {name: getattr(self, name) for name in ("kernels", "runtimes", "variants", "series", "provider")}
        path = Path(self.matrix) if self.matrix else None
        rows = [row for row in matrixfile.asked(path, self.set, self.globs, **axes) if not row.excluded]
        if lost := next((row.cell.id for row in rows if row.cell.provider == "ssh" and not row.hosts), ""):
            raise BadInput(f"cell {lost}: no machine is named", mend='hosts = ["USER@HOST:PORT"] in a matrix file')
        return rows

    def words(self, cells: Sequence[str] = ()) -> list[str]:
        """As options of pytest; `cells` are ids instead of the patterns that were given."""
        repeated: dict[str, Sequence[str]]
        repeated = {"--kernel": self.kernels, "--runtime": self.runtimes, "--variant": self.variants}
        repeated |= {"--series": self.series, "--cell": cells or self.globs}
        once = {"--matrix": self.matrix, "--set": self.set, "-k": self.keyword, "-m": self.marks}
        once |= {"--provider": self.provider}
        once |= {"--known": "" if self.known == "report" else self.known}
        words = [word for name, values in repeated.items() for value in values for word in (name, value)]
        words += [word for name, value in once.items() if value for word in (name, value)]
        return words + (["--full"] if self.full else [])


@dataclass(frozen=True)
class Plan:
    """`rows` and `pins` are by the cell's id; `exclusive` are the cases that ask for cores of their own; `folder` is
    where paths begin, `source` the digest of the lab and its suites."""

    request: Request
    rows: Mapping[str, Planned]
    pins: Mapping[str, Pin]
    exclusive: frozenset[str] = frozenset()
    folder: str = ""
    source: str = ""

    def to_json(self) -> dict[str, Any]:
        rows = {name: asdict(row) for name, row in self.rows.items()}
        told = {"request": asdict(self.request), "rows": rows, "pins": dict(self.pins)}
        return told | {"exclusive": sorted(self.exclusive), "folder": self.folder, "source": self.source}

    def check_source(self) -> None:
        """BadInput when the run would go on with another lab, or other suites, than it has begun with."""
        if self.folder != str(Path.cwd()):
            raise BadInput(f"the run was planned in {self.folder}, this is {Path.cwd()}", mend=f"cd {self.folder}")
        if self.source != source():
            raise BadInput("the lab or its suites have changed since the run was planned", mend="start a new run")

    def found(self, cell_id: str, archive: Archive) -> prepare.Found:
        """What the cell names, as it was when the run was planned; LabError when that is no more."""
        found = prepare.find(self.rows[cell_id].cell, archive)
        now = pin(found)
        changed = [name for name, value in self.pins[cell_id].items() if now.get(name) != value]
        if changed:
            what = ", ".join(f"{name} was {self.pins[cell_id][name]}, is {now.get(name)}" for name in changed)
            raise LabError(f"{cell_id} is no longer what the run was planned with: {what}", mend="start a new run")
        return found


def load(folder: Path) -> Plan:
    """The plan of the run there; BadInput when it has none."""
    path = folder / PLAN_FILE
    try:
        told = json.loads(path.read_bytes())
        rows = {
            name: Planned(**{**row, "cell": Cell(**row["cell"]), "hosts": tuple(row["hosts"])})
            for name, row in told["rows"].items()
        }
        where = told["folder"], told["source"]
        return Plan(Request.from_json(told["request"]), rows, told["pins"], frozenset(told["exclusive"]), *where)
    except OSError as error:
        raise BadInput(f"{folder} is no run of `labs run`: {PLAN_FILE}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadInput(f"{path} is malformed: {error!r}") from None


def source() -> str:
    """Digest of what decides about verdicts here, besides the cells; empty where there is no lab."""
    return source_digest(Path()) if Path("conftest.py").exists() else ""


def pin(found: prepare.Found) -> dict[str, str]:
    """What the cell's names stand for now; equal pins are equal guests."""
    kernel, runtime = found.kernel, found.runtime
    told = {
        "kernel": kernel.version or (_file(kernel.path) if kernel.path else ""),
        "packages": digest([package.sha256 for package in kernel.packages]) if kernel.packages else "",
        "source": found.source.digest if found.source else "",
        "config": digest([found.config.text, found.config.whole]) if found.config else "",
        "runtime": runtime.version or (_file(runtime.path) if runtime.path else ""),
        "image": runtime.image,
        "series": "+".join(one.id for one in found.series),
    }
    return {name: value for name, value in told.items() if value}


def _file(path: Path) -> str:
    facts = path.stat()
    return _digest(path, facts.st_mtime_ns, facts.st_size)


@functools.cache
def _digest(path: Path, changed: int, size: int) -> str:
    """sha256 of a file, read once for as long as its time and size stay."""
    return file_digest(path)


def todo(record: CellRecord) -> list[str]:
    """The planned cases that have not earned an outcome: never run, or in infrastructure trouble not often enough."""
    planned = record.run.plan.get(record.id, ())
    return [
        result.case
        for result in record.results()
        if result.case in planned
        and (result.outcome == "not-run" or (result.outcome == "error" and result.attempts < ATTEMPTS))
    ]
