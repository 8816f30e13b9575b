"""Latency relative to another measure of the same boot: what the one costs more than the other, as a ratio."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from labs.invariant.latency import EMULATED, MIN_SAMPLES
from labs.invariant.verdict import Verdict, pure
from labs.stats import quantile


@pure
def no_slower(
    name: str, samples_ns: ArrayLike, against_ns: ArrayLike, accelerator: str, most: float, q: float = 0.5
) -> Verdict:
    """Judge "the quantile `q` of `samples_ns` is at most `most` times that of `against_ns`", both of one boot.

    Inconclusive in the real time of an emulated guest, where the two are not measured at the same speed.
    """
    sides = [np.asarray(side).ravel() for side in (samples_ns, against_ns)]
    looked_at: dict[str, float] = {"samples": sides[0].size, "against": sides[1].size}
    if accelerator in EMULATED:
        reason = f"latency is not measurable under emulation ({accelerator}); use --virtual-time"
        return Verdict(name, "inconclusive", reason, looked_at)
    if min(looked_at.values()) < MIN_SAMPLES:
        return Verdict(name, "inconclusive", f"{min(looked_at.values()):g} samples of {MIN_SAMPLES}", looked_at)
    took, base = (max(quantile(side, q), 1.0) for side in sides)
    label = f"p{100 * q:g} us"
    figures = {label: took / 1000, f"against {label}": base / 1000}
    reason = f"takes {took / base:.2f} times as long: {took / 1000:.1f} us against {base / 1000:.1f} us"
    return Verdict(name, "fail" if took > most * base else "pass", f"{reason}; at most {most:g}", looked_at, figures)
