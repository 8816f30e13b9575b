"""Record: the evidence of one run on disk, append-only, readable at any moment.

    records/<run>/run.json          plan, host, outcome of every planned case
    records/<run>/<cell>/cell.json  artifacts.json  console.log  boot-N/  histories/*.npz  judged/*  verdicts.jsonl

`verdicts.jsonl` is the truth, one line a case; the outcomes in `run.json` are derived from it. Every planned case is
born `not-run` and has to earn something better, so silence is never a pass. Several processes may write to one run.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from labs.errors import BadInput, LabError
from labs.invariant.verdict import SEVERITY, Verdict
from labs.store import NO_RECORDS, usable
from labs.untrusted import LINES, read, reading

# Fit for a file name on any system and for artifact stores of CI services, which refuse ':' and quotes.
SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+@=,~-]{0,199}")
RUN_FILE = "run.json"
Plan = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class CaseResult:
    """What came of one case. `attempts` is how often it was tried for this result.

    As read back, `attempts` sums over all that was reported for the case, and `earlier` has the outcomes before this
    one: a pass after a fail stays visible. `histories` are paths of raw evidence, relative to the cell's folder, and
    `judged` that of what the verdict was judged of (labs/judged.py), '' where nobody can judge it again;
    `console` is what the kernel said meanwhile, `replay` the command that runs the case again: both of a bad end only.
    """

    case: str
    outcome: str
    verdict: Verdict | None = None
    seconds: float = 0.0
    reason: str = ""
    attempts: int = 1
    started: str = ""
    histories: tuple[str, ...] = ()
    console: str = ""
    replay: str = ""
    judged: str = ""
    earlier: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.outcome not in SEVERITY:
            raise ValueError(f"no such outcome: {self.outcome}")

    def to_json(self) -> dict[str, Any]:
        row = {name: value for name, value in asdict(self).items() if name != "earlier"}
        return row | {"verdict": self.verdict.to_json() if self.verdict else None}

    @classmethod
    def from_json(cls, row: dict[str, Any]) -> CaseResult:
        verdict = Verdict.from_json(row["verdict"]) if row["verdict"] else None
        return cls(**{**row, "verdict": verdict, "histories": tuple(row["histories"])})


@dataclass(frozen=True)
class Run:
    """One run: what was planned, where and how. Make it with `create`, read it with `open`."""

    path: Path
    plan: dict[str, tuple[str, ...]]  # cell id -> names of its cases, in order
    host: dict[str, Any]
    command: tuple[str, ...]
    seed: int
    started: str  # UTC, ISO 8601
    deselected: int = 0  # tests of the suites that were kept out of the plan, as by -k

    @classmethod
    def create(
        cls, records: Path, plan: Plan, host: dict[str, Any], command: Sequence[str], seed: int, deselected: int = 0,
        files: Mapping[str, bytes] | None = None,
    ) -> Run:  # fmt: skip
        """Start a record in a fresh folder of `records`, named by time so that names sort; `files` come with it."""
        for cell, cases in plan.items():
            _check_name(cell)
            if len(set(cases)) != len(cases):
                raise BadInput(f"cell {cell}: the plan names a case twice")
        now = datetime.now(UTC)
        frozen, started = {cell: tuple(cases) for cell, cases in plan.items()}, now.isoformat(timespec="seconds")
        run = cls(_fresh_folder(records, now), frozen, host, tuple(command), seed, started, deselected)
        for name, data in (files or {}).items():
            replace_file(run.path / name, data)
        outcomes = {cell: dict.fromkeys(cases, "not-run") for cell, cases in frozen.items()}
        facts = {name: value for name, value in vars(run).items() if name != "path"}
        replace_file(run.path / RUN_FILE, _json({**facts, "outcomes": outcomes}))
        return run

    @classmethod
    def open(cls, path: Path) -> Run:
        """Read a run that exists, however it ended."""
        with reading(f"{path / RUN_FILE} is malformed"):
            try:
                row = json.loads(read(path / RUN_FILE))
            except OSError as error:
                raise BadInput(f"{path} is no record of a run: {RUN_FILE}: {error.strerror}") from error
            plan = {cell: tuple(cases) for cell, cases in row["plan"].items()}
            facts = row["host"], tuple(row["command"]), row["seed"], row["started"], row.get("deselected", 0)
            return cls(path, plan, *facts)

    def cell(self, cell_id: str) -> CellRecord:
        """The record of one cell, to write to; its folder is made if need be."""
        _check_name(cell_id)
        cell = CellRecord(self, cell_id)
        cell.path.mkdir(exist_ok=True)
        return cell

    def cells(self) -> list[CellRecord]:
        """All cells, to read: those planned, in order, then any that reported without a plan."""
        found = sorted(path.parent.name for path in self.path.glob("*/verdicts.jsonl"))
        return [CellRecord(self, cell_id) for cell_id in dict.fromkeys([*self.plan, *found])]

    def results(self) -> dict[str, list[CaseResult]]:
        """Cell id -> the result of each of its cases, `not-run` for those that never reported."""
        return {cell.id: cell.results() for cell in self.cells()}

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the run against other writers, threads and processes; the kernel lets go when the holder dies."""
        with (self.path / ".lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


@dataclass(frozen=True)
class CellRecord:
    """One cell's evidence within a run."""

    run: Run
    id: str

    @property
    def path(self) -> Path:
        return self.run.path / self.id

    @property
    def console_path(self) -> Path:
        return self.path / "console.log"

    def link_console(self, boot: Path) -> None:
        """Make console.log stand for that of the newest boot; several workers may boot the cell at once."""
        link = self.path / f".console.{secrets.token_hex(4)}"
        link.symlink_to(boot.relative_to(self.path) / "console.log")
        os.replace(link, self.console_path)

    def write_facts(self, facts: dict[str, Any]) -> None:
        """Add facts read back from the guest; a fact that changes keeps its former value under `earlier`."""
        self._merge("cell.json", facts)

    def write_artifacts(self, artifacts: dict[str, Any]) -> None:
        """Add digests and paths of what was built; as `write_facts`."""
        self._merge("artifacts.json", artifacts)

    def facts(self) -> dict[str, Any]:
        """Facts of the guest, with the run's seed and the host's accelerator where the guest gave none."""
        common = {"accelerator": self.run.host.get("accelerator", "unknown"), "seed": self.run.seed}
        return common | _read_json(self.path / "cell.json")

    def artifacts(self) -> dict[str, Any]:
        return _read_json(self.path / "artifacts.json")

    def new_boot(self) -> Path:
        """A fresh folder boot-N for what one boot leaves behind."""
        number = 1
        while True:
            path = self.path / f"boot-{number}"
            try:
                path.mkdir()
            except FileExistsError:
                number += 1
            else:
                return path

    def history_path(self, name: str) -> Path:
        """Where to save a history: a new path each time, whatever characters the name has."""
        folder = self.path / "histories"
        folder.mkdir(exist_ok=True)
        return folder / f"{re.sub(r'[^A-Za-z0-9._+=-]+', '-', name)[:120].strip('.-')}-{secrets.token_hex(4)}.npz"

    def add(self, result: CaseResult) -> None:
        """Append a result, then bring the outcomes in run.json up to date."""
        line = json.dumps(result.to_json(), default=_plain).encode() + b"\n"
        with self.run.locked():
            append_line(self.path / "verdicts.jsonl", line)
            row = _read_json(self.run.path / RUN_FILE)
            row["outcomes"][self.id] = {result.case: result.outcome for result in self.results()}
            replace_file(self.run.path / RUN_FILE, _json(row))

    def results(self) -> list[CaseResult]:
        """One result a case, planned ones first; a case reported more than once has the outcome of its last line."""
        lines: dict[str, list[CaseResult]] = {case: [] for case in self.run.plan.get(self.id, ())}
        path = self.path / "verdicts.jsonl"
        for row in read_lines(path):
            try:
                result = CaseResult.from_json(row)
            except (KeyError, TypeError, ValueError) as error:
                raise BadInput(f"{path}: a line of it is no result: {error!r}") from None
            lines.setdefault(result.case, []).append(result)
        return [_final(case, reported) for case, reported in lines.items()]

    def _merge(self, name: str, new: dict[str, Any]) -> None:
        with self.run.locked():
            old = _read_json(self.path / name)
            new = json.loads(_json(new))  # as it will be read back, so that equal facts compare equal
            changed = {key: old[key] for key in new if key in old and old[key] != new[key]}
            merged = old | new
            if changed:
                merged["earlier"] = [*old.get("earlier", []), changed]
            replace_file(self.path / name, _json(merged))


def replace_file(path: Path, data: bytes, check: Callable[[Path], None] | None = None) -> None:
    """Write a file so that readers see the old one or the whole new one; `check` may refuse the new one by raising."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with draft.open("xb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        if check:
            check(draft)
        os.replace(draft, path)
    except OSError as error:
        raise LabError(f"cannot write {path}: {error.strerror}") from error
    finally:
        draft.unlink(missing_ok=True)


def _check_name(cell_id: str) -> None:
    if not SAFE_NAME.fullmatch(cell_id) or cell_id == RUN_FILE:
        raise BadInput(f"cell id {cell_id!r} is not fit for a folder name")


def _fresh_folder(records: Path, now: datetime) -> Path:
    """Make a folder that nobody else has: mkdir decides, however many create at the same moment."""
    usable(records, NO_RECORDS)
    while True:
        path = records / f"{now:%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"
        try:
            path.mkdir()
        except FileExistsError:
            continue
        return path


def append_line(path: Path, line: bytes) -> None:
    """Add one line, durably. A line torn by a kill or a full disk is first closed, so that it cannot spoil this one."""
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        size = os.fstat(descriptor).st_size
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            line = b"\n" + line
        while line:
            line = line[os.write(descriptor, line) :]
        os.fsync(descriptor)
    except OSError as error:
        raise LabError(f"cannot write {path}: {error.strerror}") from error
    finally:
        os.close(descriptor)


def read_lines(path: Path) -> Iterator[Any]:
    """What `append_line` has left, each line as JSON gives it; nothing where there is no file."""
    with reading(f"{path} is malformed"):
        lines = read(path, LINES).split(b"\n") if path.exists() else []
    for line in lines:
        try:
            row = json.loads(line)
        except ValueError:  # empty, or torn by a kill: a prefix of an object is never JSON
            continue
        except RecursionError as error:
            raise BadInput(f"{path} is malformed: {error}") from None
        yield row


def _final(case: str, reported: list[CaseResult]) -> CaseResult:
    if not reported:
        return CaseResult(case, "not-run", reason="planned, never ran", attempts=0)
    *before, last = reported
    earlier = tuple(result.outcome for result in before)
    return replace(last, attempts=sum(result.attempts for result in reported), earlier=earlier)


def _read_json(path: Path) -> dict[str, Any]:
    with reading(f"{path} is malformed"):
        row = json.loads(read(path)) if path.exists() else {}
    if not isinstance(row, dict):
        raise BadInput(f"{path} is malformed: no object")
    return row


def _json(row: dict[str, Any]) -> bytes:
    return json.dumps(row, indent=1, default=_plain).encode() + b"\n"


def _plain(value: object) -> object:
    """Invariants count with numpy; JSON takes Python's own numbers."""
    return value.item() if isinstance(value, np.generic) else str(value)
