"""What many boots say: how often each defect was caught by each invariant that it breaks, and how often without one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from scipy.stats import binomtest

from labs.prove.boots import CLEAN, Boot, Sight
from labs.prove.defects import Defect

DECIDED = ("pass", "known", "fail")
WANTED = 0.95  # of the boots in which it is planted, a defect is caught; the invariant is proven by it


@dataclass(frozen=True)
class Row:
    """One invariant against one defect ("" in `invariant`: any of those that it breaks).

    `seconds` and `operations`: medians over the boots that caught it, of guest time and operations until it was seen.
    `low`, `high`: 95 % interval of the detection rate (Wilson). `alarms`: boots in which it failed with the defect off.
    """

    invariant: str
    defect: str
    boots: int
    caught: int
    low: float
    high: float
    seconds: float
    operations: float
    off: int
    alarms: int

    @property
    def proven(self) -> bool:
        return self.boots > 0 and self.caught >= WANTED * self.boots and not self.alarms

    @property
    def missed(self) -> str:
        """Why it proves nothing."""
        off = f", and broken in {self.alarms} of {self.off} with it off" if self.alarms else ""
        return f"{self.defect} caught in {self.caught} of {self.boots} boots{off}"


def _interval(hits: int, trials: int) -> tuple[float, float]:
    """Wilson's: holds its confidence for few trials and for rates near 1 too."""
    found = binomtest(hits, trials).proportion_ci(0.95, method="wilson")
    return float(found.low), float(found.high)


@dataclass(frozen=True)
class Clean:
    """One invariant over the boots in which nothing is planted: how many judged it, and in how many it failed."""

    invariant: str
    boots: int
    alarms: int
    reasons: tuple[str, ...]


def against(defect: Defect, boots: Sequence[Boot]) -> list[Row]:
    """The defect's rows: first that of all its invariants together, then one for each that was judged or named."""
    together = row("", defect.name, boots, defect.breaks, defect.caught)
    return [together, *(row(name, defect.name, boots, (name,), defect.caught) for name in defect.breaks)]


def row(name: str, defect: str, boots: Sequence[Boot], invariants: Sequence[str], outcomes: Sequence[str]) -> Row:
    """What the defect's boots say of some invariants together, each caught where it has one of the outcomes."""
    mine = [boot for boot in boots if boot.defect == defect and not boot.trouble]

    def shown(boot: Boot, outcomes: Sequence[str]) -> list[Sight]:
        return [sight for sight in boot.sights if sight.invariant in invariants and sight.outcome in outcomes]

    on, off = [boot for boot in mine if boot.on], [boot for boot in mine if not boot.on]
    caught = [found for boot in on if (found := shown(boot, outcomes))]
    alarms = sum(bool(shown(boot, ("fail",))) for boot in off)
    low, high = _interval(len(caught), len(on)) if on else (0.0, 1.0)
    seconds = median([min(sight.seconds for sight in found) for found in caught]) if caught else 0.0
    operations = median([min(found, key=lambda sight: sight.seconds).operations for found in caught]) if caught else 0.0
    return Row(name, defect, len(on), len(caught), low, high, seconds, operations, len(off), alarms)


def clean(boots: Iterable[Boot]) -> list[Clean]:
    """Every invariant that clean boots judged, in the order in which they came; an alarm is a boot with a failure."""
    judged: dict[str, int] = {}
    reasons: dict[str, list[str]] = {}
    for boot in boots:
        if boot.defect != CLEAN or boot.trouble:
            continue
        for name in dict.fromkeys(sight.invariant for sight in boot.sights):
            decided = any(sight.invariant == name and sight.outcome in DECIDED for sight in boot.sights)
            judged[name] = judged.get(name, 0) + decided
            wrong = [sight for sight in boot.sights if sight.invariant == name and sight.outcome == "fail"]
            if wrong:
                reasons.setdefault(name, []).append(f"boot {boot.number}, {wrong[0].case}: {wrong[0].reason}")
    return [
        Clean(name, count, len(reasons.get(name, ())), tuple(reasons.get(name, ()))) for name, count in judged.items()
    ]


@dataclass(frozen=True)
class Status:
    """Where one invariant stands: `proven` with what broke it, `unproven`, `not judged` here, as latency is under
    emulation, or `alarmed` without cause. One defect that it misses, `missed`, is enough for `unproven`."""

    invariant: str
    status: str
    by: tuple[str, ...]
    missed: tuple[str, ...]
    boots: int  # clean ones that judged it
    alarms: int


def statuses(cleans: Sequence[Clean], rows: Sequence[Row], recorded: Mapping[str, tuple[int, int]]) -> list[Status]:
    """Each invariant by all defects that must break it, and by all `recorded` faulty outcomes (planted, caught)."""
    told = []
    for one in cleans:
        mine = [row for row in rows if row.invariant == one.invariant and (row.boots or row.off)]
        planted, caught = recorded.get(one.invariant, (0, 0))
        by = [row.defect for row in mine if row.proven] + [f"{planted} recorded faults"] * (0 < planted == caught)
        missed = [row.missed for row in mine if not row.proven]
        missed += [f"{planted - caught} of {planted} recorded faults"] * (caught < planted)
        alarmed = one.alarms or any(row.alarms for row in mine)
        held = "proven" if by and not missed else "unproven"
        status = "alarmed" if alarmed else held if one.boots else "not judged"
        told.append(Status(one.invariant, status, tuple(by), tuple(missed), one.boots, one.alarms))
    return told
