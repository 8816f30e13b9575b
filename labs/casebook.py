"""What a suite works with: one cell's guest, its histories (each probed once, shared by its cases) and its record."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from labs import catalog, prepare
from labs.console import MARK, Event, kernel_lines, scan, slice_of, symbolize
from labs.errors import BadInput, GuestLost, KernelFailed, LabError, NoSpace, SeriesFailed
from labs.guest import Guest
from labs.invariant.verdict import Verdict
from labs.probe.register import Absent
from labs.probe.stream import Report
from labs.provision.qemu import MachineSpec
from labs.report.record import CellRecord
from labs.version import UNKNOWN, KernelRelease, upstream_of

log = logging.getLogger("labs")

ATTEMPTS = 3  # guests, one after the other, before infrastructure trouble is told as an error
FINAL = (KernelFailed, SeriesFailed, BadInput, NoSpace)  # another guest would end in the same way


@contextlib.contextmanager
def boot(
    artifacts: prepare.Artifacts, record: CellRecord, spec: MachineSpec | None = None
) -> Iterator[tuple[prepare.Booted, int]]:
    """A guest, with the number of its attempt: infrastructure trouble in a boot is tried again, on a fresh guest."""
    with contextlib.ExitStack() as stack:
        for attempt in range(1, ATTEMPTS + 1):
            logs = record.new_boot()
            record.link_console(logs)
            try:
                booted = stack.enter_context(prepare.boot(artifacts, logs, spec))
                break
            except LabError as error:
                error.attempts = attempt
                if isinstance(error, FINAL) or attempt == ATTEMPTS:
                    raise
                log.warning("%s: boot %d of at most %d: %s", record.id, attempt, ATTEMPTS, error)
        yield booted, attempt


def named(nodeid: str, cells: Sequence[str]) -> tuple[str, str]:
    """Cell and case of a test, by its node id and the cells' ids: a case has the same name in every cell."""
    path, _, name = nodeid.partition("::")
    name, _, parameters = name.partition("[")
    parts = parameters.rpartition("]")[0].split("-")
    for cell in sorted(cells, key=len, reverse=True):
        words = cell.split("-")
        for at in range(len(parts) - len(words) + 1):
            if parts[at : at + len(words)] == words:
                others = "-".join(parts[:at] + parts[at + len(words) :])
                case = f"{Path(path).stem.removeprefix('test_')}.{name.removeprefix('test_')}"
                return cell, case + (f"[{others}]" if others else "")
    raise ValueError(f"{nodeid} belongs to no cell")


def verdict_of(error: LabError, symbolized: Callable[[str], str]) -> Verdict:
    """What an error of the lab says about the case in which it came: the kernel's own end and a series that does not
    build are failures, an absent feature a skip, all else infrastructure."""
    if isinstance(error, KernelFailed):
        return Verdict("quiet kernel", "fail", str(error), evidence=symbolized(error.evidence))
    if isinstance(error, SeriesFailed):
        return Verdict("series", "fail", str(error), evidence=error.evidence)
    if isinstance(error, Absent):
        return Verdict("feature", "skip", str(error))
    return Verdict("infrastructure", "error", str(error), evidence=error.evidence)


class Saves(Protocol):
    def save(self, path: Path) -> None: ...


Evidence = TypeVar("Evidence", bound=Saves)


@dataclass
class Bench:
    """One booted cell. Probes are run on demand and kept, so that several invariants judge one history."""

    booted: prepare.Booted
    record: CellRecord
    seed: int
    full: bool
    attempts: int = 1  # guests that it took until one was there
    began: float = field(default_factory=time.monotonic)
    ended: str = ""  # in which case, and how, the guest met its end
    case: str = ""  # the case that runs now
    replay: str = ""  # the command that runs it again, with the same seed
    _kept: dict[str, Any] = field(default_factory=dict)  # by name: evidence, or why there is none
    _saved: dict[str, str] = field(default_factory=dict)

    @property
    def guest(self) -> Guest:
        """The guest, as long as it lives; LabError once it has failed or was lost in an earlier case."""
        if self.ended:
            raise LabError(f"not run: {self.ended}")
        return self.booted.guest

    @property
    def kernel(self) -> tuple[int, ...] | None:
        """Upstream version of the kernel that runs; None when a file does not tell it."""
        version = self.booted.artifacts.found.kernel.version
        return upstream_of(version) if version else KernelRelease.parse(self.booted.facts["release"]).upstream

    @property
    def runtime(self) -> tuple[str, tuple[int, ...]] | None:
        """Name and version of the container runtime, as the guest tells them; None when it does not."""
        told = self.booted.facts.get("runtime", {})
        version = told.get("version", UNKNOWN)
        return (told["name"], upstream_of(version)) if version != UNKNOWN else None

    @property
    def mended(self) -> tuple[str, ...]:
        """What the cell's series says it mends: a known defect of that id is no excuse there."""
        return tuple(sorted(self.booted.artifacts.found.mends))

    def known_defects(self) -> list[catalog.Known]:
        """The table of known defects, without those that the cell's series says it mends."""
        return [row for row in catalog.known_defects() if row.id not in self.mended]

    @property
    def accelerator(self) -> str:
        return self.booted.guest.accelerator

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Mark the case in the kernel log, and remember it when the guest meets its end inside."""
        try:
            with self.guest.marked(self.case):
                yield
        except (KernelFailed, GuestLost) as error:
            self.ended = self.ended or f"the guest ended in {self.case}: {error}"
            raise

    @contextlib.contextmanager
    def beside(self, *parameters: str) -> Iterator[Guest]:
        """A second guest of the cell, with further boot parameters; its console is kept as a boot of its own."""
        artifacts = self.booted.artifacts
        spec = prepare.machine(artifacts, parameters=parameters)
        with prepare.boot(artifacts, self.record.new_boot(), spec) as booted:
            yield booted.guest

    def report(self, name: str, probe: Callable[[Guest], Report]) -> Report:
        """The report of the probe called `name`: run now if it was not yet, else as it was; errors are kept too."""
        return self.kept(name, lambda: probe(self.guest))

    def kept(self, name: str, make: Callable[[], Evidence]) -> Evidence:
        """Evidence of any kind, as `report`: made once, saved beside the histories."""
        if name not in self._kept:
            try:
                with self.watching():
                    made = make()
                path = self.record.history_path(name)
                made.save(path)
                self._saved[name] = str(path.relative_to(self.record.path))
                self._kept[name] = made
            except (KernelFailed, GuestLost):
                raise
            except LabError as error:
                self._kept[name] = error
        kept = self._kept[name]
        if isinstance(kept, LabError):
            raise kept
        return kept  # type: ignore[no-any-return]

    def console_of(self, case: str) -> str:
        """What the kernel said while `case` ran, between its markers; '' when it said nothing."""
        console = self.booted.guest.console
        console.poll()
        text = slice_of(console.text, case)
        return self.symbolized(text) if kernel_lines(text) > text.count(MARK) else ""

    def complaints(self) -> list[Event]:
        """What the cell's kernel complained of in this boot, and in those that came before it in the same run."""
        console = self.booted.guest.console
        console.poll()
        others = [path for path in sorted(self.record.path.glob("boot-*/console.log")) if path != console.path]
        return [*console.events(), *(event for path in others for event in scan(path.read_text(errors="replace")))]

    def symbolized(self, text: str) -> str:
        """Text of the console with code addresses as symbols, where the kernel's System.map is at hand."""
        system_map = self.booted.artifacts.kernel.system_map
        return symbolize(text, system_map) if system_map else text

    def saved(self, name: str) -> tuple[str, ...]:
        """Path of the history that `name` left, relative to the cell's folder; empty when there is none."""
        return (self._saved[name],) if name in self._saved else ()
