"""Limits: in force before a container's first instruction, refused once and quickly, and set for one container while
those of another are being set."""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence

from labs.invariant.verdict import Step, Verdict, pure
from labs.probe.limits import Meeting, Setting, Start, Write

SLOWER = 4  # times the slowest update that was taken: by so much must even the fastest refused one exceed it to be slow


@pure
def limits_in_force(starts: Sequence[Start], wanted: Mapping[str, str], *, planned: int) -> Verdict:
    """Judge "limits are in force when a container starts": the first thing that each container does is to read its own
    limits, and they are those of its configuration (OCI runtime-spec 1.0, lifecycle: the environment is created before
    the program runs).

    Another value is a fail. A container that told nothing was not looked at: fewer than `planned` are inconclusive.
    `looked_at` counts containers, and those whose runtime was held at the write of a limit.
    """
    name = "limits are in force when a container starts"
    told = [start for start in starts if start.seen]
    looked_at: dict[str, float] = {"containers": len(told), "held": sum(bool(start.held) for start in told)}
    wrong = [(start, file) for start in told for file in wanted if start.seen.get(file, "") != wanted[file]]
    bad = {start.container for start, _ in wrong}
    figures: dict[str, float] = {"started without their limits": len(bad)}
    if wrong:
        start, file = wrong[0]
        when = f" while the runtime was about to write {start.held}" if start.held else ""
        saw = f"{start.container} started with {file} {start.seen.get(file, '')!r}, not {wanted[file]!r}{when}"
        reason = f"{len(bad)} of {len(told)} containers ran without a limit of theirs: {saw}"
        evidence = "\n".join(f"{one.container}: {file} {one.seen.get(file, '')!r}" for one, file in wrong)
        return Verdict(name, "fail", reason, looked_at, figures, evidence=evidence)
    if not told or len(told) < planned:
        said = next((start.said for start in starts if not start.seen), "")
        reason = f"{len(told)} of {planned} containers told their limits"
        return Verdict(name, "inconclusive", reason, looked_at, figures, evidence=said)
    return Verdict(name, "pass", f"all {len(told)} containers started with their limits", looked_at, figures)


@pure
def refused_once(settings: Sequence[Setting], *, planned: int) -> Verdict:
    """Judge "a refused limit is refused once": a create with a value that the kernel refuses (EINVAL, ERANGE) writes
    it once and fails, and an update with one takes no longer than those that are taken.

    Updates are compared from the first write to the runtime's end, within one guest and in turns: it is slow when the
    fastest refused one takes `SLOWER` times as long as the slowest other. They may write the value a second time:
    runc 1.1.5 does so to set back what was there before, for its state shares the new values. `looked_at` counts
    creates and updates; fewer than `planned` refused creates are inconclusive.
    """
    name = "a refused limit is refused once"
    creates = [one for one in settings if one.step == "run" and one.refused]
    judged = [one for one in creates if _refused(one)]
    refused = [_spent(one) for one in settings if one.step == "update" and one.refused and _refused(one)]
    taken = [_spent(one) for one in settings if one.step == "update" and not one.refused and one.writes]
    looked_at: dict[str, float] = {"creates": len(judged), "updates": len(refused) + len(taken)}
    figures: dict[str, float] = {"most writes": max((len(_refused(one)) for one in judged), default=0)}
    if refused and taken:
        figures |= {"refused update ms": min(refused), "taken update ms": max(taken)}
    again = next((one for one in judged if len(_refused(one)) > 1), None)
    untold = next((one for one in creates if not one.code and _refused(one)), None)
    if again or untold:
        one = again or untold
        assert one
        writes = _refused(one)
        told = "the runtime failed" if one.code else "the runtime told nobody"
        reason = f"{writes[0].file} {writes[0].text!r} was refused {len(writes)} time(s), and {told}"
        return Verdict(name, "fail", reason, looked_at, figures, _shown(writes), one.said)
    if refused and taken and min(refused) > SLOWER * max(taken):
        reason = f"a refused update takes {min(refused):.0f} ms at least, one that is taken {max(taken):.0f} at most"
        return Verdict(name, "fail", reason, looked_at, figures)
    if not judged or len(judged) < planned:
        said = "\n".join(one.said for one in creates if not _refused(one))
        reason = f"{len(judged)} of {planned} creates had a write refused"
        return Verdict(name, "inconclusive", reason, looked_at, figures, evidence=said)
    reason = f"each of {len(judged)} refused limits was written once"
    return Verdict(name, "pass", reason, looked_at, figures)


def _refused(setting: Setting) -> tuple[Write, ...]:
    """The writes of the first value that was refused."""
    bad = [write for write in setting.writes if write.errno in (errno.EINVAL, errno.ERANGE)]
    return tuple(write for write in bad if (write.file, write.text) == (bad[0].file, bad[0].text))


def _spent(setting: Setting) -> float:
    """ms from the first write to the end."""
    return (setting.end - setting.writes[0].start) / 1e6


def _shown(writes: Sequence[Write]) -> tuple[Step, ...]:
    first = writes[0].start
    return tuple(
        Step("runtime", f"write {one.file}", one.text, one.start - first, one.end - first, errno.errorcode[one.errno])
        for one in writes
    )


@pure
def no_waiting(meetings: Sequence[Meeting], *, planned: int) -> Verdict:
    """Judge "containers do not wait for each other": a create comes to its end while that of another container, whose
    group shares nothing with it, is held just before a write; no lock of the kernel is held there.

    It is a fail when the create had not ended after a time in which it could many times over, and ended once the
    other went on. One that did not end then either says nothing. Fewer than `planned` are inconclusive.
    """
    name = "containers do not wait for each other"
    looked_at: dict[str, float] = {"meetings": len(meetings)}
    figures: dict[str, float] = {"longest wait ms": max((one.before for one in meetings if one.waited), default=0)}
    waited = [one for one in meetings if one.waited and one.after < one.before]
    if waited:
        one = waited[0]
        reason = (
            f"{len(waited)} of {len(meetings)} creates waited for another: {one.before} ms while that was held at "
            f"{one.held}, and {one.after} ms more after it went on"
        )
        return Verdict(name, "fail", reason, looked_at, figures, evidence="\n".join(map(str, waited)))
    unclear = [one for one in meetings if one.waited]
    if unclear or not meetings or len(meetings) < planned:
        reason = f"{len(meetings) - len(unclear)} of {planned} creates ended beside one that was held"
        return Verdict(name, "inconclusive", reason, looked_at, figures)
    return Verdict(name, "pass", f"all {len(meetings)} creates ended beside one that was held", looked_at, figures)
