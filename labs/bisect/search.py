"""The search: a plan and the steps so far give the next question, or the answer. Pure; the log is all its state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, log, log2

import numpy as np

from labs.bisect.plan import TRIES, Floats, Plan, Tally, before_runs, noisy, tally, wanted
from labs.bisect.posterior import differ, groups, information, posterior, reluctance, smallest
from labs.bisect.segments import changes, doubtful
from labs.bisect.step import Step

SURE = 0.99  # that the ends differ; measured further until then, for at most MORE times the planned runs
MORE = 3
NOTHING = 1e-6  # nats: a run that is expected to tell less is not worth a guest


@dataclass(frozen=True)
class Ask:
    """Run this candidate next. `left`: how many runs the search expects to need from here, this one included."""

    index: int
    why: str
    left: int


@dataclass(frozen=True)
class Boundary:
    """The outcome changes after candidate `low` and not later than at `high`; the culprit is one of low+1..high."""

    low: int
    high: int
    confidence: float = 1.0

    @property
    def single(self) -> bool:
        return self.high == self.low + 1


@dataclass(frozen=True)
class Answer:
    """How a search ended.

    kind: found (one culprit), range (skipped candidates, or noise, hide it), several (not monotone), refused (the ends
    do not differ as claimed), unjudged (an end could not be judged). `verified`: both ends were run again at the end.
    """

    kind: str
    boundaries: tuple[Boundary, ...] = ()
    note: str = ""
    verified: bool = False


def decide(plan: Plan, steps: Sequence[Step]) -> Ask | Answer:
    """The next question or the answer; the same for the same steps, whoever made them and whenever."""
    seen = tally(plan, steps)
    return _ends(plan, seen) or _wishes(plan, seen) or _between(plan, seen)


def likelihoods(plan: Plan, steps: Sequence[Step]) -> Floats:
    """Probability of each candidate to be where the outcome changes, of shape (candidates,)."""
    seen = tally(plan, steps)
    made = np.zeros(len(plan.names))
    if noisy(plan, seen):
        made[1:] = posterior(seen, before_runs(plan))
        return made
    for low, high in _pairs(seen):
        made[low + 1 : high + 1] = 1 / (high - low) / len(_pairs(seen))
    return made


def _ends(plan: Plan, seen: Tally) -> Ask | Answer | None:
    last = len(plan.names) - 1
    order = (plan.bad_end, last - plan.bad_end)
    least = wanted(plan, seen)
    for index in order:
        if seen.judged[index] < least:
            if seen.skip[index] >= TRIES + seen.judged[index]:
                return Answer("unjudged", note=f"{plan.names[index]} could not be judged")
            return Ask(index, "end", _left(plan, seen))
        if not plan.right and (wrong := _wrong(plan, seen, index)):
            return wrong
    if plan.right:
        return _claimed(plan, seen)
    sure = differ(*_counts(seen)) if noisy(plan, seen) else 1.0
    if sure >= SURE:
        return None
    index = min(order, key=lambda end: seen.judged[end])
    if seen.judged[index] < MORE * least:
        return Ask(index, "end, until both are told apart", _left(plan, seen))
    rates = ", ".join(_rate(plan, seen, end) for end in order)
    told = Answer("refused", note=f"the ends do not differ: {rates}; more runs may tell them apart")
    return told if sure < plan.confidence else None


def _counts(seen: Tally) -> list[tuple[int, int]]:
    return [(int(seen.new[end]), int(seen.old[end])) for end in (0, -1)]


def _rate(plan: Plan, seen: Tally, index: int) -> str:
    bad = (seen.old if plan.low == "bad" else seen.new)[index]
    return f"{plan.names[index]} is bad in {bad} of {seen.judged[index]} runs"


def _wrong(plan: Plan, seen: Tally, index: int) -> Answer | None:
    """Refuse an end that shows only what the other end should."""
    own = (seen.old if index == 0 else seen.new)[index]
    if own or not seen.judged[index]:
        return None
    claimed, found = ("bad", "good") if index == plan.bad_end else ("good", "bad")
    runs = f" in {seen.judged[index]} runs" if seen.judged[index] > 1 else "; if the test is flaky, give it more --runs"
    return Answer("refused", note=f"{plan.names[index]} was said to be {claimed} and is {found}{runs}")


def _claimed(plan: Plan, seen: Tally) -> Ask | Answer | None:
    """Where it is known how often the test is right: run an end until it is as claimed, or is not, with confidence.

    That an end is what the user says of it is held to be as likely as the confidence that is asked for.
    """
    for index in (plan.bad_end, len(plan.names) - 1 - plan.bad_end):
        own, other = (seen.old, seen.new) if index == 0 else (seen.new, seen.old)
        odds = (int(own[index]) - int(other[index])) * log(plan.right / (1 - plan.right))
        odds += log(plan.confidence / (1 - plan.confidence))
        if odds < -log(plan.confidence / (1 - plan.confidence)):
            claimed = "bad" if index == plan.bad_end else "good"
            told = f"{plan.names[index]} was said to be {claimed} and is not: {_rate(plan, seen, index)}"
            return Answer("refused", note=told)
        if own[index] <= other[index]:
            return Ask(index, "end, until it is sure", _left(plan, seen))
    return None


def _wishes(plan: Plan, seen: Tally) -> Ask | None:
    for name in plan.start:
        index = plan.names.index(name)
        if seen.usable[index] and not seen.judged[index]:
            return Ask(index, "asked for", _left(plan, seen))
    return None


def _between(plan: Plan, seen: Tally) -> Ask | Answer:
    if int(seen.judged.sum()) >= plan.most:
        return _given_up(plan, seen)
    if noisy(plan, seen):
        return _noisy(plan, seen)
    for low, high in _pairs(seen):
        inner = np.zeros(len(plan.names), dtype=bool)
        inner[low + 1 : high] = seen.usable[low + 1 : high]
        if inner.any():
            share = (np.arange(len(inner)) - low) / (high - low)
            worth = np.where(inner, 0.25 - (share - 0.5) ** 2, -1.0) * np.where(inner, reluctance(seen), 1.0)
            return Ask(int(worth.argmax()), "halves what is left", _left(plan, seen))
    found = tuple(Boundary(low, high) for low, high in _pairs(seen))
    return _again(plan, seen) or _answer(plan, seen, found)


def _pairs(seen: Tally) -> list[tuple[int, int]]:
    """Neighbours among the judged candidates whose outcomes differ."""
    places = np.flatnonzero(seen.judged)
    side = seen.new[places] > 0
    return [(int(places[i]), int(places[i + 1])) for i in np.flatnonzero(side[1:] != side[:-1])]


def _noisy(plan: Plan, seen: Tally) -> Ask | Answer:
    weight = posterior(seen, before_runs(plan))
    first, last, mass = groups(seen, weight)
    if mass < plan.aim:
        gain = information(seen, weight, before_runs(plan))
        if gain.max() > NOTHING:
            left = 2 - int(seen.verified.sum()) + _unknown(weight, gain)
            return Ask(int((gain * reluctance(seen)).argmax()), f"tells most; {plan.names[first]} at {mass:.2f}", left)
        return _given_up(plan, seen)
    several = changes(seen, before_runs(plan))
    if len(several) == 1 and (doubt := doubtful(seen, first, before_runs(plan))) is not None:
        return Ask(doubt, f"speaks against {plan.names[first]} at {mass:.2f}", 3 - int(seen.verified.sum()))
    one = (Boundary(first - 1, last, mass),)
    found = tuple(Boundary(*pair) for pair in several) if len(several) > 1 else one
    return _again(plan, seen) or _answer(plan, seen, found)


def _given_up(plan: Plan, seen: Tally) -> Answer:
    if not noisy(plan, seen):
        return _answer(plan, seen, tuple(Boundary(*pair) for pair in _pairs(seen)))
    several = changes(seen, before_runs(plan))
    if len(several) > 1:
        return _answer(plan, seen, tuple(Boundary(*pair) for pair in several))
    first, last, mass = smallest(posterior(seen, before_runs(plan)), plan.confidence)
    return _answer(plan, seen, (Boundary(first - 1, last, mass),))


def _again(plan: Plan, seen: Tally) -> Ask | None:
    """Both ends once more; one that is only skipped now leaves the answer unverified."""
    last = len(plan.names) - 1
    for index in (plan.bad_end, last - plan.bad_end):
        end = min(index, 1)
        if not seen.verified[end] and seen.lost[end] < TRIES:
            return Ask(index, "end, again", _left(plan, seen))
    return None


def _answer(plan: Plan, seen: Tally, found: tuple[Boundary, ...]) -> Answer:
    verified = bool(seen.verified.all())
    if len(found) > 1:
        return Answer("several", found, "the outcomes are not monotone", verified)
    if found[0].single:
        return Answer("found", found, "", verified)
    hidden = not seen.usable[found[0].low + 1 : found[0].high].any()
    why = "only skipped candidates remain" if hidden else "the runs do not tell them apart"
    return Answer("range", found, why, verified)


def _left(plan: Plan, seen: Tally) -> int:
    """Runs that are still expected: those of the ends, and the entropy of what is unknown at the gain of one run."""
    least = wanted(plan, seen)
    ends = sum(max(0, least - int(seen.judged[end])) for end in (0, -1)) + 2 - int(seen.verified.sum())
    if not noisy(plan, seen):
        pairs = _pairs(seen) or [(0, len(plan.names) - 1)]
        return ends + sum(ceil(log2(high - low)) for low, high in pairs)
    if seen.judged[0] < least or seen.judged[-1] < least:
        return ends + ceil(log2(len(plan.names) - 1))
    weight = posterior(seen, before_runs(plan))
    return ends + _unknown(weight, information(seen, weight, before_runs(plan)))


def _unknown(weight: Floats, gain: Floats) -> int:
    """Runs that would tell all of the entropy of `weight`, were each to tell as much as the best one does now."""
    entropy = -float((weight * np.log(np.maximum(weight, 1e-300))).sum())
    return ceil(entropy / float(gain.max())) if gain.max() > NOTHING else 0
