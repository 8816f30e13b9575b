"""Convoy: creates that wait for each other at one lock wait the longer, the more there are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from labs.invariant.verdict import Verdict, pure
from labs.probe.convoy import Wave

MOST_MS = 5.0  # a create may wait for locks: a quarter of the shortest hold that is planted


@pure
def no_convoy(waves: Sequence[Wave]) -> Verdict:
    """Judge "a create does not wait for a lock longer when others run": the mean wait of each wave, in ms.

    Figures: "N at once ms", and "ms a worker", the slope of the line through them; its fit in "r2".
    """
    name = "creates do not wait for a lock"
    creates, failed = sum(wave.workers for wave in waves), sum(code != 0 for wave in waves for code in wave.codes)
    looked_at: dict[str, float] = {"creates": creates, "locks": sum(len(wave.waits_ns) for wave in waves)}
    if len(waves) < 2 or any(len(wave.codes) != wave.workers for wave in waves):
        return Verdict(name, "inconclusive", "fewer creates than planned", looked_at)
    if failed:
        return Verdict(name, "inconclusive", f"{failed} of {creates} creates failed", looked_at)
    counts = np.array([wave.workers for wave in waves], float)
    means = np.array([sum(wave.waits_ns) / wave.workers / 1e6 for wave in waves])
    slope, start = np.polyfit(counts, means, 1)
    spread = float(((means - means.mean()) ** 2).sum())
    r2 = 1 - float(((means - slope * counts - start) ** 2).sum()) / spread if spread else 0.0
    figures = {f"{count:g} at once ms": float(mean) for count, mean in zip(counts, means, strict=True)}
    figures |= {"ms a worker": float(slope), "r2": r2}
    told = ", ".join(f"{count:g}: {mean:.1f}" for count, mean in zip(counts, means, strict=True))
    reason = f"mean wait by creates at once, ms: {told}; {slope:.1f} ms more a worker (r2 {r2:.2f})"
    return Verdict(name, "fail" if means[-1] - means[0] > MOST_MS else "pass", reason, looked_at, figures)
