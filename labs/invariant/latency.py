"""Latency: an upper bound on the 99th percentile."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from labs.invariant.verdict import Verdict, pure
from labs.stats import quantile

MIN_SAMPLES = 100  # the fewest whose 99th percentile is not simply their maximum
EMULATED = ("tcg",)  # accelerators whose guest time follows the host's load and not the kernel's work


@pure
def latency(name: str, samples_ns: ArrayLike, accelerator: str, bound_us: float) -> Verdict:
    """Judge "p99 of `name` is at most `bound_us` microseconds" over durations in ns.

    Figures are "p50 us", "max us" and, from 100 samples, "p99 us". Under emulation the outcome is always
    inconclusive: the same operation on the same host varies several-fold there. In virtual time (icount) the bound is
    one on the cost in guest instructions, 4 ns each, without parallelism.
    """
    samples = np.asarray(samples_ns).ravel()
    figures = {}
    if samples.size:
        figures["p50 us"] = quantile(samples, 0.5) / 1000
        figures["max us"] = quantile(samples, 1) / 1000
    if samples.size >= MIN_SAMPLES:
        figures["p99 us"] = quantile(samples, 0.99) / 1000
    outcome, reason = _judge(figures.get("p99 us"), samples.size, accelerator, bound_us)
    return Verdict(f"{name} latency", outcome, reason, {"samples": samples.size}, figures)


def _judge(p99: float | None, samples: int, accelerator: str, bound_us: float) -> tuple[str, str]:
    if accelerator in EMULATED:
        return "inconclusive", f"absolute latency is not measurable under emulation ({accelerator})"
    if p99 is None:
        return "inconclusive", f"{samples} samples; a 99th percentile needs {MIN_SAMPLES}"
    unit = "us of virtual time" if accelerator == "icount" else "us"
    if p99 > bound_us:
        return "fail", f"p99 {p99:.1f} {unit} exceeds {bound_us:g} us"
    return "pass", f"p99 {p99:.1f} {unit} is within {bound_us:g} us"
