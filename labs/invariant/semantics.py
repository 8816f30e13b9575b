"""Semantics: what a runtime makes of a configuration is in force, keeps its order, and is told when it is not so."""

from __future__ import annotations

from collections.abc import Mapping

from labs.invariant.verdict import Verdict, pure
from labs.probe.semantics import Told

IN_FORCE = "what a configuration sets is in force"
DEFAULT = "the default of cpu.shares is the default of cpu.weight"
ORDER = "more of cpu.shares is no less of cpu.weight"
TELLS = "a delete that leaves the container's group behind says so"
SHARES, WEIGHT = 1024, 100  # defaults of v1 (kernel/sched/sched.h, NICE_0_LOAD unscaled) and of v2 (CGROUP_WEIGHT_DFL)
LEAST, MOST = (2, 1), (262144, 10000)  # ends of the two ranges (kernel/sched/core.c, cgroup-v2.rst)


def _not_created(invariant: str, told: Told) -> Verdict | None:
    if told.code == 0:
        return None
    said = told.said.strip().splitlines()[-1:] or ["(no message)"]
    return Verdict(invariant, "error", f"the container was not created ({told.code}): {said[0]}", evidence=told.said)


@pure
def in_force(told: Told, wanted: Mapping[str, str]) -> Verdict:
    """Judge `IN_FORCE`: each file of the group has the text that the configuration means (OCI runtime-spec,
    config-linux.md). A create that refuses what the specification allows is a violation, too."""
    looked_at = {"files": float(len(told.files))}
    if told.code:
        said = told.said.strip().splitlines()[-1:] or ["(no message)"]
        return Verdict(IN_FORCE, "fail", f"create ended with {told.code}: {said[0]}", looked_at, evidence=told.said)
    wrong = {file: text for file, text in wanted.items() if told.files.get(file) != text}
    if wrong:
        words = ", ".join(f"{file} is {told.files.get(file)}, not {text}" for file, text in wrong.items())
        return Verdict(IN_FORCE, "fail", words, looked_at)
    if not wanted:
        return Verdict(IN_FORCE, "inconclusive", "nothing was looked at", looked_at)
    return Verdict(IN_FORCE, "pass", ", ".join(f"{file} is {text}" for file, text in wanted.items()), looked_at)


@pure
def default_shares(told: Told) -> Verdict:
    """Judge `DEFAULT`: a container with the shares that v1 gives by default has the weight that v2 gives by default, so
    that it has as much as a group that nobody gave anything (runc#4772, crun#1721)."""
    if broken := _not_created(DEFAULT, told):
        return broken
    weight = int(told.files["cpu.weight"] or 0)
    reason = f"cpu.shares {SHARES} gives cpu.weight {weight}, the default is {WEIGHT}"
    figures = {"cpu.weight": float(weight)}
    return Verdict(DEFAULT, "pass" if weight == WEIGHT else "fail", reason, {"containers": 1.0}, figures)


@pure
def shares_in_order(told: Mapping[int, Told]) -> Verdict:
    """Judge `ORDER`: weights grow with shares, and the ends of the two ranges meet. Whatever the curve between."""
    if broken := next((verdict for one in told.values() if (verdict := _not_created(ORDER, one))), None):
        return broken
    weights = {shares: int(one.files["cpu.weight"] or 0) for shares, one in sorted(told.items())}
    reason = ", ".join(f"{shares}: {weight}" for shares, weight in weights.items())
    looked_at = {"containers": float(len(weights))}
    figures = {f"cpu.weight of {shares}": float(weight) for shares, weight in weights.items()}
    ends = all(weights.get(shares, weight) == weight for shares, weight in (LEAST, MOST))
    if list(weights.values()) != sorted(weights.values()) or not ends:
        return Verdict(ORDER, "fail", f"cpu.weight by cpu.shares is {reason}", looked_at, figures)
    outcome = "pass" if len(weights) > 2 else "inconclusive"
    return Verdict(ORDER, outcome, f"cpu.weight by cpu.shares is {reason}", looked_at, figures)


@pure
def delete_tells(told: Told) -> Verdict:
    """Judge `TELLS`: with a process in the group that is not the container's, delete either removes the group or fails
    (OCI runtime-spec, runtime.md, delete: "MUST generate an error" when it cannot)."""
    if broken := _not_created(TELLS, told):
        return broken
    figures = {"delete ms": float(told.ms)}
    reason = f"delete ended with {told.delete} after {told.ms} ms, and the group is {'there' if told.left else 'gone'}"
    outcome = "fail" if told.left and not told.delete else "pass"
    return Verdict(TELLS, outcome, reason, {"containers": 1.0}, figures, evidence=told.delete_said)


@pure
def recorded(name: str, told: Told) -> Verdict:
    """What a runtime makes of something on which versions differ and nothing is promised: on record, and never wrong.

    A number is a figure too, so that runs can be compared by it.
    """
    numbers = {file: float(text) for file, text in told.files.items() if text and text.isdigit()}
    files = ", ".join(f"{file} {text}" for file, text in told.files.items())
    said = "" if not told.code else f"create ended with {told.code}: {told.said.strip()[-200:]}"
    return Verdict(f"{name}, as it is", "pass", said or files, {"containers": 1.0}, numbers, evidence=told.said)
