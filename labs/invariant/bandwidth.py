"""Bandwidth: how CPUs are shared between those who want them, and what a quota leaves of them."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from labs.invariant.verdict import Verdict, pure
from labs.probe.bandwidth import SPINNER, YIELDER, Race, Window

YIELDS = "a thread that yields leaves the CPU to the other that wants it"
QUOTA = "a group uses no more of the CPUs than its quota"
RACED = "what cpu.max says after its writers have ended is what CPUs do"
# Between the half that a yield without effect leaves to the yielder (50.1 % before 6.12.63) and what is left when it
# counts (1.7 to 7.2 % from there on, under emulation, where a system call is dear).
YIELDERS_PART = 0.25
LEAST_YIELDS, LEAST_PERIODS, LEAST_WINDOWS, LEAST_ROUNDS = 100, 10, 3, 8
BUSY = 0.5  # of the CPU's time: with less used by the two, something else ran there
SLICE_US = 5_000  # kernel/sched/fair.c, sysctl_sched_cfs_bandwidth_slice: what a CPU takes of the quota at a time


@pure
def yields(windows: Sequence[Window]) -> Verdict:
    """Judge `YIELDS`: of one thread that yields in a loop and one that never does, of the same weight on one CPU, the
    first has at most a quarter of the time. By the median of the windows; too few yields are inconclusive.

    POSIX has sched_yield() put the thread behind those of its priority, and kernel/sched/syscalls.c says of it "yields
    the current CPU to other tasks".
    """
    parts = [one[f"cpu {YIELDER}"] / max(1.0, one[f"cpu {YIELDER}"] + one[f"cpu {SPINNER}"]) for one in windows]
    used = sum(one[f"cpu {YIELDER}"] + one[f"cpu {SPINNER}"] for one in windows)
    wall, count = sum(one.wall_us for one in windows), sum(one[f"count {YIELDER}"] for one in windows)
    looked_at = {"windows": float(len(windows)), "yields": count, "CPU ms": used / 1000}
    if len(windows) < LEAST_WINDOWS or count < LEAST_YIELDS or used < BUSY * wall:
        reason = f"{count:.0f} yields in {len(windows)} windows, {used / 1000:.0f} of {wall / 1000:.0f} ms used"
        return Verdict(YIELDS, "inconclusive", reason, looked_at)
    part = median(parts)
    figures = {"yielder %": 100 * part, "least %": 100 * min(parts), "most %": 100 * max(parts)}
    reason = f"the thread that yields has {100 * part:.1f} % of the CPU, the one that spins {100 - 100 * part:.1f} %"
    outcome = "fail" if part > YIELDERS_PART else "pass"
    return Verdict(YIELDS, outcome, reason, looked_at, figures, evidence=_listing(windows))


def _listing(windows: Sequence[Window]) -> str:
    return "\n".join(f"{one.wall_us:.0f} us: {dict(one.grew)}" for one in windows)


@pure
def within_quota(windows: Sequence[Window], *, quota_us: int, period_us: int, cpus: int, burst_us: int = 0) -> Verdict:
    """Judge `QUOTA`: in k periods, a part of one before them counted whole, at most k times the quota is used, the
    burst, and a slice a CPU (cgroup-v2.rst, cpu.max; Documentation/scheduler/sched-bwc.rst).

    By most of the windows: a late tick overdraws one, and the next ones pay for it. Too few periods, or a group that
    was never throttled and so never wanted more than it may have, are inconclusive.
    """
    periods = [one.wall_us / period_us for one in windows]
    allowed = [quota_us * (1 + count) + burst_us + cpus * SLICE_US for count in periods]
    over = [one["usage_usec"] - most for one, most in zip(windows, allowed, strict=True)]
    throttled = sum(one["nr_throttled"] for one in windows)
    looked_at = {"windows": float(len(windows)), "periods": sum(periods), "throttled": throttled}
    wall, used = sum(one.wall_us for one in windows), sum(one["usage_usec"] for one in windows)
    figures = {"used %": 100 * used / max(1.0, wall), "quota %": 100 * quota_us / period_us}
    words = f"{figures['used %']:.1f} % of a CPU was used in {sum(periods):.0f} periods, the quota is"
    words += f" {figures['quota %']:.1f} %" + (f" and a burst of {burst_us} us" if burst_us else "")
    if len(windows) < LEAST_WINDOWS or any(count < LEAST_PERIODS for count in periods):
        return Verdict(QUOTA, "inconclusive", f"too little was seen: {words}", looked_at, figures)
    if sum(more > 0 for more in over) * 2 > len(over):
        reason = f"{words}: too much in {sum(more > 0 for more in over)} of {len(over)} windows"
        return Verdict(QUOTA, "fail", reason, looked_at, figures, evidence=_listing(windows))
    if not throttled:
        return Verdict(QUOTA, "inconclusive", f"it was never throttled: {words}", looked_at, figures)
    return Verdict(QUOTA, "pass", words, looked_at, figures)


@pure
def in_force(races: Sequence[Race], *, cpus: int) -> Verdict:
    """Judge `RACED`: of a group that wants all CPUs, in a window after several writers of cpu.max: with `max` it is
    not throttled any more, with a quota it uses less than halfway between that and all CPUs (cgroup-v2.rst, cpu.max;
    tg_set_cfs_bandwidth() sets the quota and what CPUs do of it with one mutex held). Few rounds are inconclusive.
    """
    wrong = [words for one in races if (words := _not_in_force(one, cpus))]
    looked_at = {"rounds": float(len(races)), "with a quota": float(sum(not _free(one) for one in races))}
    if wrong:
        reason = f"in {len(wrong)} of {len(races)} rounds, as: {wrong[0]}"
        return Verdict(RACED, "fail", reason, looked_at, evidence="\n".join(wrong))
    if len(races) < LEAST_ROUNDS:
        return Verdict(RACED, "inconclusive", f"only {len(races)} rounds were seen", looked_at)
    return Verdict(RACED, "pass", f"in each of {len(races)} rounds", looked_at)


def _free(race: Race) -> bool:
    return race.said.startswith("max")


def _not_in_force(race: Race, cpus: int) -> str:
    """How a round breaks `RACED`, or ''."""
    window, used = race.window, race.window["usage_usec"] / race.window.wall_us
    if _free(race):  # a period that was under way may still end
        throttled = window["nr_throttled"]
        return f"cpu.max says {race.said}, and it was throttled {throttled:.0f} times" if throttled > 1 else ""
    quota, period = (int(word) for word in race.said.split())
    if used <= (quota / period + cpus) / 2:
        return ""
    return f"cpu.max says {race.said}, and {used:.2f} CPUs were used, throttled {window['nr_throttled']:.0f} times"
