"""Hygiene: every step of every container succeeds, and nothing is left when all have gone."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from labs.invariant.verdict import Step, Verdict, pure
from labs.probe.steps import OWN_CODES, STEPS, ContainerStep


@pure
def container_steps(steps: Sequence[ContainerStep], *, planned: int) -> Verdict:
    """Judge "every container step succeeds": each container was created, started, asked, killed and deleted, each
    time with exit code 0.

    A failed or missing step is a fail; fewer than `planned` containers without either are inconclusive. The
    counterexample is the first failed step, its standard error the evidence. `looked_at` counts containers, steps,
    workers and concurrent: the most steps ever in flight together.
    """
    seen: dict[str, set[str]] = {}
    for step in steps:
        seen.setdefault(step.container, set()).add(step.step)
    looked_at: dict[str, float] = {
        "containers": len(seen),
        "steps": len(steps),
        "workers": len({step.worker for step in steps}),
        "concurrent": _concurrent(steps),
    }
    name = "every container step succeeds"
    failed = sorted((step for step in steps if step.code != 0), key=lambda step: step.end)
    missing = [f"{box}: {step}" for box, done in seen.items() for step in STEPS if step not in done]
    figures: dict[str, float] = {"failed steps": len(failed), "missing steps": len(missing)}
    if failed:
        first = failed[0]
        reason = f"{len(failed)} of {len(steps)} steps failed, first {first.step} of {first.container}: {_end(first)}"
        return Verdict(name, "fail", reason, looked_at, figures, (_shown(first),), first.stderr)
    if missing:
        reason = f"{len(missing)} steps never ran, first {missing[0]}"
        return Verdict(name, "fail", reason, looked_at, figures, evidence="\n".join(missing))
    if not seen or len(seen) < planned:
        return Verdict(name, "inconclusive", f"{len(seen)} of {planned} containers ran", looked_at, figures)
    reason = f"all {len(steps)} steps of {len(seen)} containers ended with code 0"
    return Verdict(name, "pass", reason, looked_at, figures)


def _end(step: ContainerStep) -> str:
    if step.code in OWN_CODES:
        return OWN_CODES[step.code]
    if step.code >= 0:
        return f"exit code {step.code}"
    try:
        return f"ended by {signal.Signals(-step.code).name}"
    except ValueError:  # a guest may know signals that this host does not
        return f"ended by signal {-step.code}"


def _shown(step: ContainerStep) -> Step:
    return Step(f"worker {step.worker}", f"{step.step} {step.container}", _end(step), 0, step.end - step.start)


def _concurrent(steps: Sequence[ContainerStep]) -> int:
    """The most steps in flight at one time; steps that touch count as one after the other."""
    starts = np.sort([step.start for step in steps])
    ends = np.sort([step.end for step in steps])
    begun = np.arange(1, len(starts) + 1)
    return int(np.max(begun - np.searchsorted(ends, starts, side="right"), initial=0))


@pure
def nothing_left(before: Mapping[str, Sequence[str]], after: Mapping[str, Sequence[str]]) -> Verdict:
    """Judge "nothing is left behind" from two listings by kind, as {"cgroups": [...], "mounts": [...]}.

    What is listed after and not before is left over: a fail that names it; a second mount on the same place counts.
    A kind listed before and not after was not looked at: inconclusive.
    """
    name = "nothing is left behind"
    looked_at: dict[str, float] = {kind: len(names) for kind, names in after.items()}
    left = {kind: sorted((Counter(names) - Counter(before.get(kind, ()))).elements()) for kind, names in after.items()}
    figures: dict[str, float] = {f"left {kind}": len(names) for kind, names in left.items()}
    listing = [f"{kind}: {item}" for kind, names in left.items() for item in names]
    if listing:
        more = f" and {len(listing) - 1} more" if len(listing) > 1 else ""
        reason = f"left behind {listing[0]}{more}"
        return Verdict(name, "fail", reason, looked_at, figures, evidence="\n".join(listing))
    unseen = [kind for kind in before if kind not in after]
    if unseen or not after:
        return Verdict(name, "inconclusive", f"not listed afterwards: {', '.join(unseen) or 'all'}", looked_at, figures)
    return Verdict(name, "pass", f"{', '.join(after)}: as before", looked_at, figures)
