"""Delegation: what Delegate=yes and the choice of a cgroup driver promise, and what they cost, as relations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from labs.invariant.verdict import Verdict, pure
from labs.probe.delegation import Start, Storm, Traffic

LEAST_ROUNDS = 6  # fewer cannot carry an interval of 95 %: 0.5 ** 6 is 1.6 %
EQUAL = 1.25  # two starts that differ by less than this factor are called equal
STORM = 20.0  # times that a start may take longer while others ask systemd without a pause
RESAMPLES = 4000

SLOWER = "the systemd driver starts a container more slowly than the cgroupfs driver"
SAME = "Delegate=yes changes no start by a quarter"
NO_FASTER = "with cgroup v1 the systemd driver starts a container no faster, by a quarter, than with v2"
UNITS = "the systemd driver asks for one transient unit a container, the cgroupfs driver for none"
RELOADS = "no container makes systemd read its units again"
BOUNDED = "a container starts while others ask systemd without a pause"
KEPT = "systemd leaves alone what a service with Delegate=yes has made below its group"


def ratio(first: ArrayLike, second: ArrayLike, seed: int = 0) -> tuple[float, float, float]:
    """Median of first/second over rounds that belong together, and its 95 % interval by resampling the rounds."""
    ratios = np.log(np.asarray(first, float) / np.asarray(second, float))
    draw = np.random.default_rng(seed)
    medians = np.median(draw.choice(ratios, (RESAMPLES, len(ratios))), axis=1)
    low, high = np.quantile(medians, (0.025, 0.975))
    return float(np.exp(np.median(ratios))), float(np.exp(low)), float(np.exp(high))


def _related(
    invariant: str, first: Sequence[int], second: Sequence[int], lowest: float, highest: float = np.inf
) -> Verdict:
    """Pass when the interval of first/second lies whole between `lowest` and `highest`, fail when whole outside."""
    looked_at = {"rounds": float(min(len(first), len(second)))}
    if min(len(first), len(second)) < LEAST_ROUNDS or len(first) != len(second):
        return Verdict(invariant, "inconclusive", f"{looked_at['rounds']:.0f} rounds of {LEAST_ROUNDS}", looked_at)
    middle, low, high = ratio(first, second)
    figures = {"ratio": middle, "ratio low": low, "ratio high": high}
    figures |= {"first p50 us": float(np.median(first)), "second p50 us": float(np.median(second))}
    reason = f"ratio of the medians {middle:.2f}, 95 % between {low:.2f} and {high:.2f}, {len(first)} rounds"
    passed, failed = lowest <= low and high <= highest, high < lowest or low > highest
    return Verdict(invariant, "pass" if passed else "fail" if failed else "inconclusive", reason, looked_at, figures)


@pure
def slower(systemd: Sequence[int], cgroupfs: Sequence[int]) -> Verdict:
    """Judge `SLOWER`: the driver that asks another process has the longer way. Microseconds, by rounds."""
    return _related(SLOWER, systemd, cgroupfs, 1.0)


@pure
def same(delegated: Sequence[int], undelegated: Sequence[int]) -> Verdict:
    """Judge `SAME`: Delegate= says who may write below a group (systemd.resource-control(5)), and no more."""
    return _related(SAME, delegated, undelegated, 1 / EQUAL, EQUAL)


@pure
def no_faster(v1: Sequence[int], v2: Sequence[int]) -> Verdict:
    """Judge `NO_FASTER`: with v1 each controller has a hierarchy in which a group is made, entered and removed."""
    return _related(NO_FASTER, v1, v2, 1 / EQUAL)


@pure
def every_start(starts: Sequence[Start], planned: int) -> Verdict:
    """Judge "every container starts": each in each mode ends with exit code 0."""
    name, looked_at = "every container starts", {"containers": float(len(starts))}
    bad = [one for one in starts if one.code]
    if bad:
        first = bad[0]
        reason = f"{len(bad)} of {len(starts)} failed, first {first.driver}, Delegate={first.delegate}: {first.said}"
        return Verdict(name, "fail", reason, looked_at)
    if len(starts) < planned:
        return Verdict(name, "inconclusive", f"{len(starts)} of {planned} containers ran", looked_at)
    return Verdict(name, "pass", f"all {len(starts)} containers ended with code 0", looked_at)


@pure
def transient_units(driver: str, traffic: Traffic) -> Verdict:
    """Judge `UNITS`: the calls of StartTransientUnit while containers ran."""
    wanted = traffic.containers if driver == "systemd" else 0
    asked = traffic.calls.get("StartTransientUnit", 0)
    figures = {f"{member} calls": float(count) for member, count in sorted(traffic.calls.items())}
    figures["calls a container"] = sum(traffic.calls.values()) / max(1, traffic.containers)
    reason = f"{asked} transient units for {traffic.containers} containers of the {driver} driver"
    looked_at = {"containers": float(traffic.containers), "calls": float(sum(traffic.calls.values()))}
    if not traffic.containers:
        return Verdict(UNITS, "inconclusive", "no container ran", looked_at)
    return Verdict(UNITS, "pass" if asked == wanted else "fail", reason, looked_at, figures)


@pure
def no_reload(traffic: Traffic) -> Verdict:
    """Judge `RELOADS`: nobody calls Reload or Reexecute."""
    looked_at = {"containers": float(traffic.containers), "calls": float(sum(traffic.calls.values()))}
    reloads = traffic.calls.get("Reload", 0) + traffic.calls.get("Reexecute", 0)
    reason = f"{reloads} reloads in {looked_at['calls']:.0f} calls for {traffic.containers} containers"
    if not traffic.containers:
        return Verdict(RELOADS, "inconclusive", "no container ran", looked_at)
    return Verdict(RELOADS, "fail" if reloads else "pass", reason, looked_at, {"reloads": float(reloads)})


@pure
def bounded(storm: Storm) -> Verdict:
    """Judge `BOUNDED`: all starts in the storm succeed, the longest within STORM times the median on a quiet bus."""
    quiet, stormed, answered = storm.quiet, storm.stormed, storm.answered
    looked_at = {"quiet": float(len(quiet)), "stormed": float(len(stormed)), "calls answered": float(answered)}
    bad = [one for one in (*quiet, *stormed) if one.code]
    if bad:
        return Verdict(BOUNDED, "fail", f"{len(bad)} starts failed, first: {bad[0].said}", looked_at)
    if not quiet or not stormed or answered < len(stormed):
        return Verdict(BOUNDED, "inconclusive", f"no storm: {answered} calls were answered", looked_at)
    longest = max(one.us for one in stormed) / float(np.median([one.us for one in quiet]))
    reason = f"the longest start in the storm took {longest:.1f} times the median of a quiet bus"
    return Verdict(BOUNDED, "pass" if longest <= STORM else "fail", reason, looked_at, {"longest ratio": longest})


@pure
def kept(told: Mapping[str, str]) -> Verdict:
    """Judge `KEPT` (systemd.resource-control(5), Delegate=; the document "Control Group APIs and Delegation")."""
    controllers, groups = set(told.get("controllers", "").split()), set(told.get("groups", "").split())
    missing = sorted(({"memory", "pids"} - controllers) | ({"payload", "child"} - groups))
    looked_at = {"controllers": float(len(controllers)), "groups": float(len(groups))}
    if not told.get("moved"):
        return Verdict(KEPT, "fail", "the service's process is no longer where the service has put it", looked_at)
    if missing:
        return Verdict(KEPT, "fail", f"gone after daemon-reload and set-property: {', '.join(missing)}", looked_at)
    if told.get("left"):
        return Verdict(KEPT, "fail", f"left after the service has ended: {told['left']}", looked_at)
    return Verdict(KEPT, "pass", "groups, controllers and process as the service has made them", looked_at)
