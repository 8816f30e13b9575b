"""What a rule says: reasons against signing, and notes for whoever signs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

SIGNED, UNPROVEN, REFUSED = "signed", "not proven", "refused"


@dataclass(frozen=True)
class Reason:
    """One thing against signing. `weight`: refused, when something is wrong; not proven, when too little is known."""

    weight: str
    rule: str
    cell: str
    case: str
    why: str


@dataclass(frozen=True)
class Note:
    """What does not stand against signing, and whoever signs must know."""

    rule: str
    cell: str
    why: str


Said = Iterator[Reason | Note]


def decision(reasons: Sequence[Reason]) -> str:
    weights = {reason.weight for reason in reasons}
    return REFUSED if REFUSED in weights else UNPROVEN if weights else SIGNED
