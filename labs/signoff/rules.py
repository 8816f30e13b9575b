"""What stands against signing: pure rules over the evidence. None left: signed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from labs.compare.judge import WORDS
from labs.executed import IDLE, RUN, UNCLEAR
from labs.invariant.verdict import NO_VERDICT
from labs.report.record import CaseResult
from labs.report.text import at
from labs.signoff.controls import Control, proof_code
from labs.signoff.evidence import CellEvidence, Evidence, of_build, violated
from labs.signoff.latency import compared, trouble
from labs.signoff.rates import LEVEL, chance, kinds
from labs.signoff.reason import REFUSED, UNPROVEN, Note, Reason, Said
from labs.signoff.same import same

QUIET = "quiet kernel"


def intended(evidence: Evidence, controls: Sequence[Control]) -> Said:
    """A planted defect is never signed."""
    if evidence.plan.intent == "defect":
        yield Reason(REFUSED, "intent", "", "", f"{evidence.plan.name} is a planted defect: its series.toml says so")


def complete(evidence: Evidence, controls: Sequence[Control]) -> Said:
    """Every planned session has run to its end, whole."""
    for cell in evidence.cells:
        if cell.record is None:
            yield Reason(UNPROVEN, "complete", cell.id, "", f"the cell has no record: {cell.trouble}")
        for result in cell.unsettled:
            yield Reason(UNPROVEN, "complete", cell.id, result.case, f"{result.outcome}: {result.reason}")
    if not evidence.pairs:
        yield Reason(UNPROVEN, "complete", "", "", "no base and patched cell of the same kernel and runtime")


def builds(evidence: Evidence, controls: Sequence[Control]) -> Said:
    """The series applies and compiles."""
    for _, patched in evidence.pairs:
        why = next((result.reason for result in patched.results if result.outcome == "fail" and of_build(result)), "")
        if why:
            yield Reason(REFUSED, "builds", patched.id, "", why)


def differs(evidence: Evidence, controls: Sequence[Control]) -> Said:
    """What runs in the patched cell is another binary than in its base, as the guests tell it."""
    read_back = {"kernel": ("build_id",), "runc": ("runtime", "sha256")}
    for base, patched in evidence.pairs:
        for component in evidence.plan.components:
            one, two = (at(cell.facts, *read_back.get(component, (component,))) for cell in (base, patched))
            if one and one == two:
                why = f"its {component} is the very binary of the base ({one[:16]}): the series changes nothing built"
                yield Reason(UNPROVEN, "differs", patched.id, "", why)
            elif patched.facts and not (one and two):
                yield Reason(UNPROVEN, "differs", patched.id, "", f"the guests do not tell which {component} runs")


def executed(evidence: Evidence, controls: Sequence[Control]) -> Said:
    """The functions that the series changes were run in the patched guest."""
    for base, patched in evidence.pairs:
        if "kernel" in evidence.plan.components and patched.facts:
            yield from _functions(patched)
        if set(evidence.plan.components) != {"kernel"} and not _mended(evidence, base, patched):
            why = "functions of a runtime are not watched, and no mend shows that they ran"
            yield Reason(UNPROVEN, "executed", patched.id, "", why)


def _functions(patched: CellEvidence) -> Said:
    if not patched.functions:
        yield Reason(UNPROVEN, "executed", patched.id, "", "the series changes no C function that could be watched")
    for patch in sorted({one.patch for one in patched.functions}):
        mine = [one for one in patched.functions if one.patch == patch]
        for one in mine:
            where = f"{one.function} ({one.path}, patch {patch})"
            if one.state == IDLE:
                yield Reason(UNPROVEN, "executed", patched.id, "", f"{where} was never run")
            elif one.state != RUN:
                why = "several functions are called so" if one.state == UNCLEAR else "inlined, or not configured"
                yield Note("executed", patched.id, f"{where} is unseen: {why}")
        if not any(one.state in (RUN, IDLE) for one in mine):
            names = ", ".join(one.function for one in mine)
            why = f"of patch {patch} nothing can be seen: {names} are not functions of the binary by themselves"
            yield Reason(UNPROVEN, "executed", patched.id, "", why)


def mends(evidence: Evidence, controls: Sequence[Control]) -> Said:
    """What the series claims to mend is violated in the base, and holds in the patched cell."""
    for base, patched in evidence.pairs:
        if base.record is None or patched.record is None:
            continue  # a missing cell is told as that
        shown = _mended(evidence, base, patched)
        for name in evidence.plan.mends:
            yield from _claim(name, base, patched, bool(shown))
        if not evidence.plan.mends:
            yield Note("mends", patched.id, "the series claims to mend nothing: it is only shown to break nothing")


def _claim(name: str, base: CellEvidence, patched: CellEvidence, others: bool) -> Said:
    cases = _of_claim(base, name)
    bad = violated(cases)
    looked = [result for result in cases if result.outcome != "skip"]
    skipped = _skipped(base, cases)
    if not bad and others and (skipped or not cases):
        why = f"{skipped[0].case}: {skipped[0].reason}" if skipped else "no case judges it"
        yield Note("mends", base.id, f"{name!r} was not examined whole: {why}")
    elif not bad:
        why = f"{name!r} is not violated without the series: {len(looked)} cases looked"
        yield Reason(UNPROVEN, "mends", base.id, "", why)
    for result in bad:
        after = patched.result(result.case)
        if after is None or after.outcome in ("inconclusive", "skip", *NO_VERDICT):
            why = f"{name!r} was not judged with the series: {after.reason if after else 'no such case'}"
            yield Reason(UNPROVEN, "mends", patched.id, result.case, why)
        elif after.outcome != "pass":
            why = f"{name!r} is violated with the series as without it: {after.reason}"
            yield Reason(REFUSED, "mends", patched.id, result.case, why)
    held = [(result, after) for result in bad if (after := patched.result(result.case)) and after.outcome == "pass"]
    by_chance = chance([before for before, _ in held], [after for _, after in held])
    if by_chance is not None and by_chance > LEVEL:
        why = f"{name!r} is so rare without the series that with it none is seen by chance, too: p = {by_chance:.2g}"
        yield Reason(UNPROVEN, "mends", patched.id, "", why)


def _skipped(cell: CellEvidence, cases: Sequence[CaseResult]) -> list[CaseResult]:
    """What was skipped of these cases, and of others of the same test: a skipped case tells no invariant."""
    tests = {result.case.partition("[")[0] for result in cases}
    return [r for r in cell.results if r.outcome == "skip" and r.case.partition("[")[0] in tests]


def _of_claim(cell: CellEvidence, name: str) -> list[CaseResult]:
    """The cases of an invariant, or those that a known defect explains."""
    return [r for r in cell.results if r.verdict and name in (r.verdict.invariant, r.verdict.known)]


def _mended(evidence: Evidence, base: CellEvidence, patched: CellEvidence) -> list[str]:
    """The cases in which a claimed mend is seen."""
    cases = [result.case for name in evidence.plan.mends for result in violated(_of_claim(base, name))]
    return [case for case in cases if (after := patched.result(case)) and after.outcome == "pass"]


def holds(evidence: Evidence, controls: Sequence[Control]) -> Said:
    """No invariant that held without the series fails with it."""
    for base, patched in evidence.pairs:
        claimed = {r.case for name in evidence.plan.mends for r in violated(_of_claim(base, name))}
        for after in patched.results:
            before = base.result(after.case)
            if after.case not in claimed and not of_build(after):
                yield from _change(patched.id, before, after)
        for before in base.results if patched.record and not any(map(of_build, patched.results)) else ():
            if before.outcome == "pass" and patched.result(before.case) is None:
                yield Reason(UNPROVEN, "holds", patched.id, before.case, "held without the series, and is not there")


def _change(cell: str, before: CaseResult | None, after: CaseResult) -> Said:
    was, case, why = before.outcome if before else "not there", after.case, after.reason
    new = kinds(after) - kinds(before) if before else frozenset()
    if "fail" in after.earlier and after.outcome != "fail":
        yield Reason(UNPROVEN, "holds", cell, case, f"{after.outcome} after it had failed before")
    if after.outcome == "fail" and was == "fail" and not new:
        yield Note("holds", cell, f"{case} fails without the series, too: {why}")
    elif after.outcome == "fail" and was == "fail":
        told = f"fails without the series, too, but not by {', '.join(sorted(new))}: {why}"
        yield Reason(UNPROVEN, "holds", cell, case, told)
    elif after.outcome == "fail":
        told = "a known defect" if was == "known" else was
        yield Reason(REFUSED, "holds", cell, case, f"{told} without the series, violated with it: {why}")
    elif after.outcome == "known" and was == "pass" and before:
        yield from _known(cell, before, after)
    elif after.outcome in ("inconclusive", "skip") and was == "pass":
        yield Reason(UNPROVEN, "holds", cell, case, f"held without the series; {after.outcome}: {why}")


def _known(cell: str, before: CaseResult, after: CaseResult) -> Said:
    """A known defect that only the patched cell shows: a race that was not met in the base, or one that is back."""
    by_chance = chance([after], [before])
    told = f"a known defect that is not seen without the series: {after.reason}"
    if by_chance is None:
        yield Reason(UNPROVEN, "holds", cell, after.case, told)
    elif by_chance <= LEVEL:
        yield Reason(REFUSED, "holds", cell, after.case, f"{told}, by more than chance (p = {by_chance:.2g})")
    else:
        yield Note("holds", cell, f"{after.case}: {told}, which is chance (p = {by_chance:.2g})")


def quiet(evidence: Evidence, controls: Sequence[Control]) -> Said:
    """The patched kernel complains of nothing, also where it is built to complain of more."""
    for cell in [*(patched for _, patched in evidence.pairs), *evidence.extras]:
        cases = cell.judging(QUIET)
        if cell.record and not any(result.outcome == "pass" for result in cases):
            weight = REFUSED if any(result.outcome == "fail" for result in cases) else UNPROVEN
            why = cases[0].reason if cases else "no case listened to the kernel"
            yield Reason(weight, "quiet", cell.id, cases[0].case if cases else "", why)
    for extra in evidence.extras:
        for result in extra.results:
            if result.outcome == "fail" and not (result.verdict and result.verdict.invariant == QUIET):
                yield Reason(REFUSED, "quiet", extra.id, result.case, result.reason)
    if not evidence.extras and "kernel" in evidence.plan.components:
        why = "it is not built, or something stood against signing already"
        yield Note("quiet", "", f"not looked at in variant lockdep: {why}")


def controlled(evidence: Evidence, controls: Sequence[Control]) -> Said:
    """Each invariant that held was seen to fail where it must."""
    code = proof_code(evidence.folder)
    if code and code != evidence.plan.test_code:
        yield Reason(
            UNPROVEN, "controls", "", "", f"the proof was made by other code: {code}, not {evidence.plan.test_code}"
        )
    for _, patched in evidence.pairs:
        for invariant in dict.fromkeys(
            r.verdict.invariant for r in patched.results if r.outcome == "pass" and r.verdict
        ):
            mine = [one for one in controls if one.invariant == invariant]
            missed = [one for one in mine if not one.proven]
            if not mine:
                yield Reason(UNPROVEN, "controls", patched.id, "", f"{invariant!r} was never seen to fail")
            for one in missed:
                why = f"{invariant!r} misses what it must see: {one.how}: {one.caught} of {one.planted} faults caught"
                yield Reason(UNPROVEN, "controls", patched.id, "", why)


def latency(evidence: Evidence, controls: Sequence[Control]) -> Said:
    """No operation is slower than without the series, beyond the bound."""
    for base, patched in evidence.pairs:
        mine = [one for one in compared(evidence.folder) if (one.base, one.patched) == (base.id, patched.id)]
        why = trouble(evidence.folder, patched.id)
        if why or not mine:
            told = f"the latencies of base and patched were not compared{f': {why}' if why else ''}"
            yield Reason(UNPROVEN, "latency", patched.id, "", told)
        for one in mine:
            for side, words in one.failed:
                told = f"its kernel failed while latencies were compared: {words}"
                yield (
                    Reason(REFUSED, "latency", patched.id, "", told) if side == "B" else Note("latency", base.id, told)
                )
            if one.result != WORDS[0]:
                yield Reason(REFUSED if one.result == WORDS[1] else UNPROVEN, "latency", patched.id, "", one.reason)


RULES: dict[str, Callable[[Evidence, Sequence[Control]], Said]] = {
    "intent": intended,
    "complete": complete,
    "builds": builds,
    "differs": differs,
    "same": same,
    "executed": executed,
    "mends": mends,
    "holds": holds,
    "quiet": quiet,
    "controls": controlled,
    "latency": latency,
}


def judge(evidence: Evidence, controls: Sequence[Control]) -> tuple[list[Reason], list[Note]]:
    """All reasons against signing, the heaviest first, and all notes."""
    said = [one for rule in RULES.values() for one in rule(evidence, controls)]
    reasons = list(dict.fromkeys(one for one in said if isinstance(one, Reason)))
    reasons.sort(key=lambda reason: reason.weight != REFUSED)
    return reasons, list(dict.fromkeys(one for one in said if isinstance(one, Note)))
