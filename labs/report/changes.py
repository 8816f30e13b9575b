"""What changed between two runs: outcomes, latency figures, versions of what was tested."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from labs.invariant.verdict import SEVERITY, worst
from labs.report.plots import latencies
from labs.report.record import CaseResult, CellRecord, Run
from labs.report.text import clean, identity, number

ABSENT = "-"  # one of the runs does not have it


@dataclass(frozen=True)
class Change:
    """One difference: `kind` is outcome, latency or version; `note` says what a person needs to judge it."""

    kind: str
    cell: str
    what: str
    before: str
    after: str
    note: str = ""


def changes(old: Run, new: Run) -> list[Change]:
    """Every difference, in the order of the new run's plan, then what only the old one has."""
    before, after = ({record.id: record for record in run.cells()} for run in (old, new))
    found: list[Change] = []
    for cell in dict.fromkeys([*after, *before]):
        one, two = before.get(cell), after.get(cell)
        if one and two:
            found += [*_versions(one, two), *_outcomes(cell, one.results(), two.results()), *_latencies(one, two)]
        else:
            was, now = (worst([r.outcome for r in there.results()]) if there else ABSENT for there in (one, two))
            found.append(Change("outcome", clean(cell), "the whole cell", was, now))
    return found


def worse(change: Change) -> bool:
    """Whether an outcome got worse: what is gone counts as not run, what is new as if it had passed before."""
    if change.kind != "outcome":
        return False
    before = SEVERITY.index("pass" if change.before == ABSENT else change.before)
    after = SEVERITY.index("not-run" if change.after == ABSENT else change.after)
    return after < min(before, SEVERITY.index("pass"))  # a case that was skipped and now passes is no worse


def _outcomes(cell: str, old: list[CaseResult], new: list[CaseResult]) -> Iterator[Change]:
    before, after = ({result.case: result for result in results} for results in (old, new))
    for case in dict.fromkeys([*after, *before]):
        was, now = (there[case].outcome if case in there else ABSENT for there in (before, after))
        if was != now:
            told = after.get(case) or before[case]
            yield Change("outcome", clean(cell), clean(case), was, now, clean(told.reason))


def _versions(old: CellRecord, new: CellRecord) -> Iterator[Change]:
    before, after = (_named(record) for record in (old, new))
    for name in dict.fromkeys([*after, *before]):
        was, now = (there.get(name, ABSENT) for there in (before, after))
        if was != now:
            yield Change("version", clean(new.id), name, was, now)


def _named(record: CellRecord) -> dict[str, str]:
    """What was tested and with what, by name. A seed is drawn for each run, and a reason no version."""
    found = {**identity(record.facts()), **dict(_flat("", record.artifacts()))}
    return {name: value for name, value in found.items() if name not in ("seed", "accelerator.reason")}


def _flat(prefix: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _flat(f"{prefix}.{name}" if prefix else str(name), inner)
    elif value not in ("", None):
        yield prefix, clean(str(value))


def _latencies(old: CellRecord, new: CellRecord) -> Iterator[Change]:
    """Quantiles in us that both runs have; one line says why when they do not compare."""
    before, after = ({row.operation: row.quantiles for row in latencies(record.results())} for record in (old, new))
    why = _incomparable(old, new)
    if why and before and after:
        yield Change("latency", clean(new.id), "all operations", ABSENT, ABSENT, f"not compared: {why}")
    for operation in after if not why else ():
        for name, value in after[operation].items():
            was = before.get(operation, {}).get(name)
            if was is not None and was != value:
                note = f"{100 * (value - was) / was:+.1f} %, between single boots: may be noise"
                yield Change(
                    "latency", clean(new.id), f"{clean(operation)} {name} us", number(was), number(value), note
                )


def _incomparable(old: CellRecord, new: CellRecord) -> str:
    accelerators = [str(record.facts()["accelerator"]) for record in (old, new)]
    if set(accelerators) != {"kvm"}:
        return f"accelerator {' and '.join(dict.fromkeys(accelerators))}: latency is not measurable"
    hosts = [record.run.host.get("hostname", "") for record in (old, new)]
    return f"other hosts: {hosts[0]}, {hosts[1]}" if hosts[0] != hosts[1] else ""
