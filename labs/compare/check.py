"""The comparison's own false-alarm rate and power, measured on recorded boots of one kernel.

Boots are paired anew, so comparisons share boots and are not independent of each other; and the boots of a new pair
have different seeds, which those of a real round have not: what is found here is a little worse than what is used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labs.compare.judge import QUANTILES, WORDS, Round, compared
from labs.compare.record import boots_of
from labs.errors import BadInput
from labs.stats import quantile

PLANTED = (0.02, 0.05, 0.1, 0.2)  # parts that one measure is slowed by
COMPARISONS, PLANTED_COMPARISONS = 200, 50
Boot = Mapping[str, NDArray[Any]]


def boots_in(folders: Sequence[Path]) -> list[Boot]:
    """The samples of all undisturbed boots of side A, and of B where it is the same cell; all of one build-id."""
    chosen: list[Boot] = []
    builds = set()
    for record, line in boots_of(folders):
        asked = record.asked()
        if line.side == "A" or asked.a == asked.b:
            samples = record.samples(line)
            builds.add((samples.facts.get("build_id"), asked.setting["accelerator"], asked.measures))
            chosen.append(samples.taken)
    if len(builds) > 1:
        raise BadInput(f"these boots are of {len(builds)} kernels, accelerators or suites", mend="name records of one")
    return chosen


def checked(
    boots: Sequence[Boot], size: int, bound: float, alpha: float, measure: str = ""
) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """One row a planted slowdown of `measure` (default: the first), the first row without any: how often comparisons
    of `size` rounds end in regression, no regression, inconclusive. BadInput with fewer than 2 x `size` boots.

    And the largest effect that any comparison without a planted one had, by measure and quantile."""
    if len(boots) < 2 * size:
        raise BadInput(f"{len(boots)} boots on record; {2 * size} are needed", mend="record more with --all-rounds")
    measure = measure or next(iter(boots[0]))
    rng = np.random.default_rng(1)
    rows: list[dict[str, Any]] = []
    largest: dict[str, float] = {}
    for planted, allowed in [(0.0, bound), (0.0, 0.0), *((part, bound) for part in PLANTED)]:
        count = PLANTED_COMPARISONS if planted else COMPARISONS
        codes: Counter[int] = Counter()
        for _ in range(count):
            drawn = rng.permutation(len(boots))[: 2 * size]
            pairs = [(boots[a], _slowed(boots[b], measure, planted)) for a, b in drawn.reshape(size, 2)]
            result = compared([Round(*pair) for pair in pairs], allowed, alpha=alpha)
            codes[result.code] += 1
            for row in () if planted else result.rows:
                largest[row.name] = max(largest.get(row.name, 0.0), abs(row.effect))
        told = {word: codes[code] for code, word in WORDS.items()}
        rows.append({"planted": planted, "in": measure if planted else "-", "bound": allowed, **told, "of": count})
    return rows, largest


def _slowed(boot: Boot, measure: str, part: float) -> Boot:
    return {**boot, measure: boot[measure] * (1 + part)} if part else boot


def spread(boots: Sequence[Boot], largest: Mapping[str, float]) -> list[dict[str, Any]]:
    """By measure and quantile: how far apart any two boots are, as a part of the smaller, and any two sides of
    comparisons (`largest`)."""
    rows = []
    for name in boots[0] if boots else ():
        row: dict[str, Any] = {"measure": name, "boots": len(boots)}
        for label, q in QUANTILES.items():
            values = [quantile(boot[name], q) for boot in boots]
            row |= {f"{label} ns": float(np.median(values)), f"{label} apart": max(values) / min(values) - 1}
            row[f"{label} sides apart"] = largest[f"{name} {label}"]
        rows.append(row)
    return rows
