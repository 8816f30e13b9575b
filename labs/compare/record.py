"""A comparison on disk: append-only, resumable after a kill, and enough to judge it again.

records/compare-<time>/compare.json   what was asked, both cells' artifacts, QEMU, host
boots.jsonl                           one line a boot: round, side, seed, file and its sha256, guards, trouble
boots/NNN/<side>.npz, console.log     raw samples of one boot
decision.json                         the Comparison, and how often rounds were repeated
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from labs.compare.judge import Comparison, Round, compared
from labs.errors import BadInput, LabError
from labs.invariant.latency import EMULATED
from labs.probe.samples import Measure, Samples
from labs.report.record import append_line, read_lines, replace_file
from labs.store import file_digest
from labs.untrusted import read

ASKED, BOOTS, DECISION = "compare.json", "boots.jsonl", "decision.json"


@dataclass(frozen=True)
class Asked:
    """What a comparison is: equal values, equal boots. `setting`: accelerator, QEMU, host, that must not change."""

    a: str  # ids of cells
    b: str
    suite: str
    measures: tuple[Measure, ...]
    boots: int  # rounds at most
    bound: float
    alpha: float
    seed: int
    setting: dict[str, Any]
    artifacts: dict[str, Any]
    cells: dict[str, dict[str, str]]  # what each cell was asked to be
    parameters: dict[str, str] = field(default_factory=dict)  # of modules in B, beside those of its series
    started: str = ""

    @classmethod
    def from_json(cls, row: dict[str, Any]) -> Asked:
        return cls(**{**row, "measures": tuple(Measure(**one) for one in row["measures"])})


@dataclass(frozen=True)
class BootLine:
    """One boot on record. `file` is relative to the record's folder."""

    round: int
    side: str  # A or B
    attempt: int
    seed: int
    file: str
    sha256: str
    seconds: float
    trouble: str
    host: dict[str, Any]
    failed: bool = False  # the kernel under test did, or complained: `trouble` has its words


@dataclass(frozen=True)
class CompareRecord:
    """The folder of one comparison."""

    path: Path

    @classmethod
    def create(cls, records: Path, asked: Asked) -> CompareRecord:
        path = records / f"compare-{datetime.now(UTC):%Y%m%dT%H%M%S.%f}Z"
        try:
            path.mkdir(parents=True)
        except OSError as error:
            raise BadInput(f"{path} cannot be made: {error.strerror}", mend="name another --record") from None
        replace_file(path / ASKED, _json(asdict(asked)))
        return cls(path)

    def asked(self) -> Asked:
        """BadInput when the folder is no record of a comparison."""
        try:
            return Asked.from_json(json.loads(read(self.path / ASKED)))
        except OSError as error:
            raise BadInput(f"{self.path} is no record of a comparison: {ASKED}: {error.strerror}") from None
        except Exception as error:  # as untrusted.reading says
            raise BadInput(f"{self.path / ASKED} is malformed: {error!r}") from None

    def logs(self) -> Path:
        """A fresh folder for what one boot leaves behind."""
        boots = self.path / "boots"
        boots.mkdir(exist_ok=True)
        path = boots / f"{len(list(boots.iterdir())) + 1:03}"
        path.mkdir()
        return path

    def add(self, line: BootLine) -> None:
        append_line(self.path / BOOTS, json.dumps(asdict(line)).encode() + b"\n")

    def boots(self) -> list[BootLine]:
        """All boots, in order; a line torn by a kill is none."""
        return list(_lines(self.path / BOOTS))

    def samples(self, line: BootLine) -> Samples:
        """Raw samples of a boot; LabError when a byte of the file is not as it was recorded."""
        path = self.path / line.file
        if not path.resolve().is_relative_to(self.path.resolve()) or not path.is_file():
            raise LabError(f"{path}: the samples of round {line.round}, {line.side} are missing")
        if file_digest(path) != line.sha256:
            raise LabError(f"{path} has changed since it was recorded")
        return Samples.load(path)

    def rounds(self) -> list[Round]:
        """Whole rounds without trouble, in order, each as its last attempt has it."""
        sides: dict[int, dict[str, BootLine]] = defaultdict(dict)
        for line in self.boots():
            if line.attempt > sides[line.round].get(line.side, line).attempt:
                sides[line.round].clear()
            sides[line.round][line.side] = line
        return [
            Round(self.samples(pair["A"]).taken, self.samples(pair["B"]).taken)
            for _, pair in sorted(sides.items())
            if whole(pair)
        ]

    def comparison(self) -> Comparison:
        """The judgement, made from the raw files now. Real time of an emulated guest is never judged."""
        asked = self.asked()
        if asked.setting["accelerator"] in EMULATED:
            reason = f"latency is not measurable under emulation ({asked.setting['accelerator']}); use --virtual-time"
            return Comparison(4, reason, asked.bound, asked.alpha, 0, asked.boots, (), {}, done=True)
        return compared(self.rounds(), asked.bound, planned=asked.boots, alpha=asked.alpha)

    def decide(self, result: Comparison) -> dict[str, Any]:
        """Write decision.json, and give what stands there."""
        row = self.told(result)
        replace_file(self.path / DECISION, _json(row))
        return row

    def told(self, result: Comparison) -> dict[str, Any]:
        asked, boots = self.asked(), self.boots()
        repeated = [f"round {line.round}: {line.trouble}" for line in boots if line.trouble and not line.failed]
        failed = [f"round {line.round}: {line.trouble}" for line in boots if line.failed]
        names = {"a": asked.a, "b": asked.b, "suite": asked.suite, "accelerator": asked.setting["accelerator"]}
        seen = {row.measure for row in result.rows} | result.missing.keys()
        absent = [one.name for one in asked.measures if one.name not in seen] if result.rows else []
        counts = {"boots": len(boots), "disturbed": repeated, "failed": failed, "absent": absent}
        return {**names, **result.to_json(), **counts, "record": self.path.name}

    def verified(self) -> list[str]:
        """What is not as decision.json says, when all is judged again from the raw files; empty: nothing."""
        try:
            written = json.loads((self.path / DECISION).read_bytes())
            again = json.loads(_json(self.told(self.comparison())))
        except OSError as error:
            return [f"{self.path / DECISION}: {error.strerror}"]
        except (ValueError, LabError) as error:
            return [str(error)]
        keys = dict.fromkeys([*written, *again])
        return [f"{self.path / DECISION}: {key}" for key in keys if written.get(key) != again.get(key)]


def whole(pair: dict[str, BootLine]) -> bool:
    return pair.keys() == {"A", "B"} and not any(line.trouble for line in pair.values())


def _lines(path: Path) -> Iterator[BootLine]:
    for row in read_lines(path):
        try:
            yield BootLine(**row)
        except (ValueError, TypeError):
            continue


def _json(row: Any) -> bytes:
    return json.dumps(row, indent=1).encode() + b"\n"


def boots_of(folders: Sequence[Path]) -> list[tuple[CompareRecord, BootLine]]:
    """All undisturbed boots of several records."""
    records = [CompareRecord(folder) for folder in folders]
    for record in records:
        record.asked()
    return [(record, line) for record in records for line in record.boots() if not line.trouble]
