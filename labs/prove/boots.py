"""Boots: each is one session of chosen cases on a fresh guest; what was seen is on disk before the next begins."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from labs.child import Case, results, session
from labs.errors import BadInput, LabError
from labs.invariant.verdict import NO_VERDICT
from labs.matrix import Cell
from labs.prove.defects import Defect
from labs.report.record import CaseResult, append_line, read_lines

LOG = "boots.jsonl"
CLEAN = ""  # the name of boots in which nothing is planted
ATTEMPTS = 3  # of one boot, when infrastructure ends it
SECONDS = 3 * 3600.0  # of one boot: its kernel may have to be built first
OFF_SHARE = 10  # one boot with the defect switched off for so many with it on


@dataclass(frozen=True)
class Sight:
    """What one case said in one boot. `seconds` is guest time until the verdict was certain, `operations` likewise."""

    case: str
    invariant: str
    outcome: str
    reason: str
    seconds: float
    operations: float


@dataclass(frozen=True)
class Boot:
    """One boot: what was planted (`CLEAN`: nothing), whether switched on, and what its cases said."""

    defect: str
    on: bool
    number: int
    seed: int
    attempts: int = 1
    seconds: float = 0.0
    record: str = ""
    trouble: str = ""  # why it says nothing: infrastructure, on each attempt
    sights: tuple[Sight, ...] = ()

    @property
    def key(self) -> tuple[str, bool, int]:
        return (self.defect, self.on, self.number)


@dataclass
class Log:
    """All boots of one proof, in the order in which they ended."""

    path: Path
    boots: list[Boot] = field(default_factory=list)

    @classmethod
    def open(cls, folder: Path) -> Log:
        """The log as far as it goes; a line torn by a kill is no boot. BadInput for a line that is JSON and no boot."""
        path, boots = folder / LOG, []
        for row in read_lines(path):
            try:
                sights = tuple(Sight(**sight) for sight in row["sights"])
                boots.append(Boot(**{**row, "sights": sights}))
            except (TypeError, KeyError) as error:
                raise BadInput(f"{path} is no log of boots: {error}") from None
        return cls(path, boots)

    def add(self, boot: Boot) -> None:
        append_line(self.path, json.dumps(asdict(boot)).encode() + b"\n")
        self.boots.append(boot)


def planned(defects: Sequence[Defect], boots: int, clean: int, seed: int) -> Iterator[Boot]:
    """Boots to be made, in rounds of one a defect, so that a proof that is cut short says something of each.

    >>> [(boot.defect, boot.on) for boot in planned([], 0, 2, 1)]
    [('', False), ('', False)]
    """
    rounds = max(boots, 1 if clean else 0)
    for number in range(rounds):
        first, last = -(-clean * number // rounds), -(-clean * (number + 1) // rounds)  # rounded up: one comes first
        yield from (Boot(CLEAN, False, one, seed + one) for one in range(first, last))
        for defect in defects if number < boots else ():
            yield Boot(defect.name, True, number, seed + number)
            if defect.off and number % OFF_SHARE == 0:
                yield Boot(defect.name, False, number, seed + number)


@dataclass(frozen=True)
class Prover:
    """Makes boots of `suites`; their records are below `folder`."""

    folder: Path
    suites: tuple[str, ...]
    clean: Cell
    cases: Sequence[Case] = ()
    options: tuple[str, ...] = ()
    run: Callable[..., Any] = session  # tests give another

    def boot(self, boot: Boot, cell: Cell, nodes: Sequence[str]) -> Boot:
        """One boot, tried again where infrastructure ends it. The result tells how often, and why it says nothing."""
        began, trouble, attempts = time.monotonic(), "", 0
        while attempts < ATTEMPTS:
            attempts += 1
            folder = self._fresh(boot)
            try:
                done = self.run(nodes, cell, folder, SECONDS, ["--seed", str(boot.seed), *self.options])
                found = results(done, cell)
                trouble = next((one.reason for one in found if one.outcome in NO_VERDICT), "")
                trouble = "" if any(one.outcome == "fail" for one in found) else trouble  # it says something
                sights = tuple(_sights(found))
            except LabError as error:
                trouble, sights = str(error), ()
            if not trouble:
                break
        place, seconds = str(folder.relative_to(self.folder)), round(time.monotonic() - began, 1)
        return replace(
            boot, attempts=attempts, seconds=seconds, record=place, trouble=trouble, sights=() if trouble else sights
        )

    def _fresh(self, boot: Boot) -> Path:
        name = re.sub(r"[^A-Za-z0-9.+-]", "-", boot.defect) or "clean"
        stem = f"{name}.{'on' if boot.on else 'off'}.{boot.number:03}" if boot.defect else f"clean.{boot.number:03}"
        for attempt in range(1, 1000):
            path = self.folder / "boots" / (stem if attempt == 1 else f"{stem}.{attempt}")
            try:
                path.mkdir(parents=True)
                return path
            except FileExistsError:  # one that was cut short by a kill stays as it is
                continue
        raise LabError(f"{self.folder}: too many folders called {stem}")


def _sights(found: Sequence[CaseResult]) -> Iterator[Sight]:
    """Cases of one module may share a probe, whose time is the first one's: none can be sooner than all up to it."""
    spent: dict[str, float] = {}
    for result in found:
        module = result.case.partition(".")[0]
        spent[module] = spent.get(module, 0.0) + result.seconds
        if not result.verdict:
            continue
        looked_at = result.verdict.looked_at
        seconds = looked_at.get("seconds until seen", result.seconds if module == "promises" else spent[module])
        operations = looked_at.get("operations until seen", looked_at.get("operations", 0.0))
        yield Sight(result.case, result.verdict.invariant, result.outcome, result.reason, round(seconds, 6), operations)
