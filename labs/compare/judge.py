"""Two sides, measured boot by boot, judged: a pure function of samples, so that it can be done again from raw files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import exp, inf, isfinite, log
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from labs.compare.looks import Look, looks
from labs.compare.paired import bootstrap_interval, detectable, holm, sign_flip
from labs.stats import quantile

QUANTILES = {"p50": 0.5, "p99": 0.99}
MIN_SAMPLES = 100  # a boot: the fewest whose 99th percentile is not simply their maximum
ALPHA = 0.05
CONFIDENCE = 0.95
WORDS = {0: "no regression", 1: "regression", 4: "inconclusive"}

Side = Mapping[str, ArrayLike]  # measure -> durations of one boot, ns


@dataclass(frozen=True)
class Round:
    """One boot of each side, of equal seed and next to each other in time."""

    a: Side
    b: Side


@dataclass(frozen=True)
class Row:
    """One invariant: a quantile of one measure is no slower in B than in A, but for the bound.

    Effects are B's part above A's (0.05: 5 % slower), over boots; `low` and `high` the bootstrap interval. `outcome`:
    regression, within (no regression), or open. `differs`: the two sides are told apart, whatever the bound;
    None: after so few rounds that is not asked.
    `smallest`: the smallest slowdown that all planned rounds, with this spread, call a regression four times in five;
    inf: none. `a_ns`, `b_ns`: median over boots.
    """

    measure: str
    quantile: str
    outcome: str
    effect: float
    low: float
    high: float
    smallest: float
    differs: bool | None
    p_slower: float
    p_within: float
    p_differs: float
    a_ns: float
    b_ns: float

    @property
    def name(self) -> str:
        return f"{self.measure} {self.quantile}"


@dataclass(frozen=True)
class Comparison:
    """What came of a comparison. `rounds`: how many decided; `planned`: how many there may be; `code`: see WORDS.

    `missing`: measures that were not judged, each with the reason. `done`: no further round can change it.
    """

    code: int
    reason: str
    bound: float
    alpha: float
    rounds: int
    planned: int
    rows: tuple[Row, ...]
    missing: Mapping[str, str]
    done: bool

    @property
    def word(self) -> str:
        return WORDS[self.code]

    def to_json(self) -> dict[str, Any]:
        """As JSON takes it: an infinite `smallest` is null."""
        row = asdict(self) | {"result": self.word}
        row["rows"] = [{k: None if v == inf else v for k, v in asdict(one).items()} for one in self.rows]
        return row


def compared(rounds: Sequence[Round], bound: float, *, planned: int | None = None, alpha: float = ALPHA) -> Comparison:
    """Judge whether B is slower than A by more than `bound` (0.05: 5 %), at the first look that decides.

    `planned`: how many rounds there may be at most; default: as many as there are. `alpha`: the chance to call a
    regression when nothing is slower than the bound allows, over all rows and looks; and the chance to say that there
    is none when at least one row is.
    """
    planned = len(rounds) if planned is None else planned
    names, missing = _measured(rounds)
    labels = [(name, label) for name in names for label in QUANTILES]
    table = {key: _quantiles(rounds, *key) for key in labels}
    reached = [look for look in looks(planned, len(labels), alpha) if look.rounds <= len(rounds)]
    for look in reached or [Look(len(rounds), 0.0, 0.0, 0.0)]:
        logs = {key: np.log(column[: look.rounds, 1] / column[: look.rounds, 0]) for key, column in table.items()}
        tests = _tests(logs, look, bound)
        if _slower(tests) or (not missing and all(test.outcome == "within" for test in tests)):
            break
    rows = tuple(
        _row(key, table[key][: look.rounds], test, bound, detectable(logs[key], planned, alpha / len(table)))
        for key, test in zip(logs, tests, strict=True)
    )
    code, reason = _decide(rows, missing, bound)
    return Comparison(
        code, reason, bound, alpha, look.rounds, planned, rows, missing, done=code != 4 or len(rounds) >= planned
    )


def _measured(rounds: Sequence[Round]) -> tuple[list[str], dict[str, str]]:
    """Measures with enough samples in every boot of both sides, and why the others are left out."""
    names = list(dict.fromkeys(name for one in rounds for side in (one.a, one.b) for name in side))
    missing = {}
    for name in names:
        short = {
            letter: min(np.size(side.get(name, ())) for side in sides)
            for letter, sides in (("A", [one.a for one in rounds]), ("B", [one.b for one in rounds]))
        }
        least = min(short.values())
        if least < MIN_SAMPLES:
            where = " and ".join(letter for letter, count in short.items() if count < MIN_SAMPLES)
            missing[name] = f"{least} samples in a boot of {where}; {MIN_SAMPLES} are needed"
    return [name for name in names if name not in missing], missing


Pairs = NDArray[np.float64]  # shape (rounds, 2): a quantile of A and of B, ns


def _quantiles(rounds: Sequence[Round], name: str, label: str) -> Pairs:
    q = QUANTILES[label]
    return np.array([[max(quantile(side[name], q), 1.0) for side in (one.a, one.b)] for one in rounds])


@dataclass(frozen=True)
class _Test:
    outcome: str
    differs: bool | None
    p_slower: float
    p_within: float
    p_differs: float


def _tests(logs: Mapping[tuple[str, str], Pairs], look: Look, bound: float) -> list[_Test]:
    """The three families of tests of one look, over the logarithms of ratios."""
    kinds = {"greater": log(1 + bound), "less": log(1 + bound), "two-sided": 0.0}
    ratios = np.array(list(logs.values()))
    greater, less, either = (sign_flip(ratios, shift, kind) for kind, shift in kinds.items()) if logs else ([], [], [])
    slower, differs = holm(greater, look.slower), holm(either, look.differs)
    outcomes = [
        "regression" if slow else "within" if p <= look.within else "open" for slow, p in zip(slower, less, strict=True)
    ]
    apart = [slow or (told if look.differs else None) for slow, told in zip(slower, differs, strict=True)]
    return [_Test(*one) for one in zip(outcomes, apart, greater, less, either, strict=True)]


def _slower(tests: Sequence[_Test]) -> bool:
    return any(test.outcome == "regression" for test in tests)


def _row(key: tuple[str, str], pairs: Pairs, test: _Test, bound: float, smallest: float) -> Row:
    ratios = np.log(pairs[:, 1] / pairs[:, 0])
    low, high = bootstrap_interval(ratios, CONFIDENCE)
    a_ns, b_ns = (float(value) for value in np.median(pairs, axis=0))
    effect, seen = _part(float(ratios.mean())), _part(log(1 + bound) + smallest)
    p = (test.p_slower, test.p_within, test.p_differs)
    return Row(*key, test.outcome, effect, _part(low), _part(high), seen, test.differs, *p, a_ns, b_ns)


def _part(logarithm: float) -> float:
    """1.05 as 0.05, from its logarithm; rounded, so that equal input gives equal JSON anywhere."""
    return round(exp(logarithm) - 1, 9) if isfinite(logarithm) else inf


def _decide(rows: Sequence[Row], missing: Mapping[str, str], bound: float) -> tuple[int, str]:
    slower = [row for row in rows if row.outcome == "regression"]
    if slower:
        worst = max(slower, key=lambda row: row.effect)
        more = f", and {len(slower) - 1} more" if len(slower) > 1 else ""
        return (
            1,
            f"{worst.name} takes {worst.effect:.1%} longer in B than in A, {100 * bound:.3g}% are not minded{more}",
        )
    if missing:
        name, why = next(iter(missing.items()))
        return 4, f"{name} was not measured: {why}"
    still = [row.name for row in rows if row.outcome == "open"]
    if not rows:
        return 4, "nothing was measured"
    if still:
        some = ", ".join(still[:3]) + (f" and {len(still) - 3} more" if len(still) > 3 else "")
        return (
            4,
            f"the rounds do not tell whether {some} {'is' if len(still) == 1 else 'are'} within the bound",
        )
    return 0, f"all {len(rows)} rows are within {bound:.3g} of A"
