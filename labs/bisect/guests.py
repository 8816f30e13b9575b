"""The judge for real guests: one case of one cell in a pytest session of its own, with a record of its own."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from labs import prepare
from labs.bisect.axis import Axis
from labs.bisect.step import Step
from labs.child import CODE, Case, collect, results, session
from labs.errors import BadInput, LabError
from labs.matrix import Cell
from labs.report.record import CaseResult, Run
from labs.report.session import source_digest
from labs.signatures import ANY_SIGNATURE, SIGNATURES
from labs.source.debian import Archive
from labs.store import digest

STEP_SECONDS = 7200.0  # a kernel may have to be built first
DECIDED = (0, 1)  # exit codes of pytest: all passed, some failed


def find_case(asked: str, cell: Cell) -> Case:
    """The case that `SUITE::TEST` names; TEST is a pytest id without the cell, or a part of only one. BadInput else."""
    path, _, test = asked.partition("::")
    if not path or not test or not Path(path).exists():
        raise BadInput(f"{asked}: no such test", mend="name one as suites/cgroup_atomicity/test_promises.py::TEST")
    cases = collect([path], cell)
    plain = {
        case: case.node.partition("::")[2].replace(f"{cell.id}-", "", 1).replace(f"[{cell.id}]", "") for case in cases
    }
    found = [case for case, name in plain.items() if test in (name, case.name)]
    found = found or [case for case, name in plain.items() if test in name]
    if len(found) != 1:
        names = list(dict.fromkeys(plain[case] for case in found or cases))
        some = ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
        said = f"names {len(found)} tests" if found else "no such test"
        raise BadInput(f"{asked}: {said}", mend=f"one of: {some}")
    return found[0]


def outcome(result: CaseResult, pattern: str = "") -> tuple[str, str, str]:
    """A case's result as (good, bad or skip; reason; signature). `pattern`: a regular expression that a failure must
    match in its reason, evidence or console; without it, any violation is bad, and its signature tells its kind."""
    verdict = result.verdict
    invariant = verdict.invariant if verdict else ""
    if result.outcome in ("pass", "known"):
        return "good", result.reason or "held", ""
    if result.outcome != "fail":
        return "skip", f"{result.outcome}: {result.reason}", ""
    if invariant == "series":
        return "skip", f"not built: {result.reason}", ""
    text = "\n".join((result.reason, verdict.evidence if verdict else "", result.console))
    if pattern and not re.search(pattern, text, re.MULTILINE):
        return "skip", f"unrelated failure: {result.reason}", ""
    return "bad", result.reason, pattern or _signature(invariant, result.reason)


def _signature(invariant: str, reason: str) -> str:
    """The invariant that failed; for a kernel's own end also the kind of its last words."""
    if invariant != "quiet kernel":
        return invariant
    found = ANY_SIGNATURE.search(reason)
    return SIGNATURES[int((found.lastgroup or "row0")[3:])].kind if found else "hang"


@dataclass(frozen=True)
class Guests:
    """Judges candidates of `axis` by one case; each run leaves its record below `folder`."""

    axis: Axis
    case: Case
    folder: Path
    archive: Archive
    pattern: str = ""
    options: Sequence[str] = ()
    seconds: float = STEP_SECONDS
    source: str = field(default_factory=source_digest)

    def __call__(self, name: str) -> Step:
        """Run the case on the candidate once. What the lab cannot judge is a skip with the reason, never an error."""
        cell, began = self.axis.cell(name), time.monotonic()
        folder = self._fresh(name)
        options = ["--known", "ignore", *self.options]
        try:
            run = session([self.case.node_in(cell.id)], cell, folder, self.seconds, options)
            told = self._read(run, cell, int((folder / CODE).read_text()))
        except LabError as error:  # its time is over, or it left no record
            told = ("skip", str(error), "")
        evidence = str(folder.relative_to(self.folder.absolute().parent))
        return Step(name, *told, evidence, round(time.monotonic() - began, 1), self.key(name))

    def _fresh(self, name: str) -> Path:
        """A folder of its own for each run; one that was cut short by a kill stays as it is."""
        steps = self.folder.absolute() / "steps"
        steps.mkdir(parents=True, exist_ok=True)
        path = steps / f"{len(list(steps.iterdir())) + 1:03}-{_safe(name)}"
        path.mkdir()
        return path

    def _read(self, run: Run, cell: Cell, code: int) -> tuple[str, str, str]:
        """From the record; but a session that did not end by its tests passing or failing tells nothing."""
        found = [result for result in results(run, cell) if result.case == self.case.name]
        told = outcome(found[0], self.pattern) if found else ("skip", f"{self.case.name} is not in the record", "")
        if code not in DECIDED and told[0] != "skip":
            return "skip", f"pytest ended with {code}, and the record says: {told[1]}", ""
        return told

    def key(self, name: str) -> str:
        """Names all that decides about the outcome: the cell's artifacts, the case, and the lab's own source.

        Empty where the candidate cannot be found; the session of its step says why.
        """
        try:
            found = prepare.find(self.axis.cell(name), self.archive)
        except BadInput:
            return ""
        series = [one.id for one in found.applied]
        parts = [found.kernel.version, found.runtime.version, found.runtime.image, *series]
        parts += [digest([found.config.text, found.config.whole])] if found.config else []
        parts += [found.source.digest] if found.source else []
        return digest([*parts, self.case.name, self.pattern, *self.options, self.source])


def _safe(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9.+~-]", "-", name)
