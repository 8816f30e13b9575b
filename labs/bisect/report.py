"""bisect.json: what was asked, every step with its evidence, and the answer; the same as lines for a person."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from labs.bisect.axis import Wish
from labs.bisect.changes import NEAR
from labs.bisect.page import PAGE
from labs.bisect.plan import Plan, effective
from labs.bisect.search import Answer, Ask, decide, likelihoods
from labs.bisect.step import Log, Step
from labs.cleaning import BISECT_FILE as FILE
from labs.errors import BadInput
from labs.report.record import replace_file

STEPS = "steps.jsonl"
EXIT_CODE = {"found": 0, "range": 4, "several": 4, "refused": 2, "unjudged": 3}
WORTH_TELLING = 0.005  # probability
SHOWN = 20  # changes at a boundary, on the terminal


@dataclass(frozen=True)
class Search:
    """All that was asked, as it is kept on disk: with it and the log a search resumes, or is replayed, anywhere."""

    wish: Wish
    test: str
    plan: Plan
    pattern: str = ""
    options: tuple[str, ...] = ()
    smallest: bool = False  # look for the fewest patches that show it, too

    @property
    def wanted(self) -> str:
        return f"first {self.plan.high}"


@dataclass(frozen=True)
class Found:
    """What came of a search. `fewest` are the changes that suffice, `changes` what changed at each boundary."""

    answer: Answer
    fewest: Sequence[int] = ()
    changes: Sequence[Sequence[str]] = ()


def save(
    folder: Path, search: Search, log: Log, titles: Mapping[str, str], found: Found | None = None
) -> dict[str, Any]:
    """Write bisect.json, whole or not at all, and return what it says; `titles` are those of the candidates."""
    plan = {**asdict(search.plan), "skips": sorted(search.plan.skips)}
    told = {
        "test": search.test,
        "looking_for": search.wanted,
        "wish": asdict(search.wish),
        "plan": plan,
        "pattern": search.pattern,
        "options": list(search.options),
        "smallest": search.smallest,
        "titles": dict(titles),
        "fewest": list(found.fewest) if found else [],
        "answer": _answer(search.plan, found) if found else None,
        "probabilities": probabilities(search.plan, log.steps),
        "steps": [step.to_json() for step in effective(search.plan, log.steps)],
    }
    replace_file(folder / FILE, json.dumps(told, indent=1).encode() + b"\n")
    return told


def load(folder: Path) -> tuple[Search, Log]:
    """A search as it was left; BadInput when the folder has none."""
    try:
        row = json.loads((folder / FILE).read_bytes())
        plan = {**row["plan"], "skips": frozenset(row["plan"]["skips"])}
        plan |= {key: tuple(row["plan"][key]) for key in ("names", "start")}
        search = Search(
            Wish(**row["wish"]), row["test"], Plan(**plan), row["pattern"], tuple(row["options"]), row["smallest"]
        )
    except OSError as error:
        raise BadInput(f"{folder} is no search: {FILE}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise BadInput(f"{folder / FILE} is malformed: {error!r}") from None
    return search, Log.open(folder / STEPS)


def load_found(folder: Path, search: Search, steps: Log) -> tuple[dict[str, str], Found | None]:
    """Titles of the candidates, and what came of the search as the log decides it now; None when it has not ended.

    `load` has read the folder before.
    """
    move = decide(search.plan, steps.steps)
    try:
        row = json.loads((folder / FILE).read_bytes())
        told = row["answer"] or {"boundaries": []}
        changes = [[str(line) for line in edge["changes"]] for edge in told["boundaries"]]
        titles = {str(name): str(title) for name, title in row["titles"].items()}
        return titles, None if isinstance(move, Ask) else Found(move, tuple(row["fewest"]), changes)
    except (KeyError, TypeError, AttributeError) as error:
        raise BadInput(f"{folder / FILE} is malformed: {error!r}") from None


def replay(plan: Plan, steps: Sequence[Step]) -> list[tuple[Ask, Step]]:
    """Each step with the question that it answered; BadInput when the log is not that of this plan."""
    told = []
    steps = [step for step in steps if step.candidate in plan.names]
    for number, step in enumerate(steps):
        ask = decide(plan, steps[:number])
        if not isinstance(ask, Ask) or plan.names[ask.index] != step.candidate:
            raise BadInput(f"step {number + 1}, of {step.candidate}, is none that this search asks for")
        told.append((ask, step))
    return told


def probabilities(plan: Plan, steps: Sequence[Step]) -> dict[str, float]:
    """Candidate -> probability that the outcome changes there; those too small to matter are left out."""
    both = bool(steps) and {plan.names[0], plan.names[-1]} <= {step.candidate for step in steps}
    weights = likelihoods(plan, steps) if both else ()
    return {name: round(float(p), 4) for name, p in zip(plan.names, weights, strict=False) if p >= WORTH_TELLING}


def exit_code(answer: Answer) -> int:
    """0 for one culprit between ends that were seen to hold at the end too."""
    return EXIT_CODE[answer.kind] or (0 if answer.verified else 4)


def _answer(plan: Plan, found: Found) -> dict[str, Any]:
    answer = found.answer
    changes = itertools.chain(found.changes, itertools.repeat([]))
    return {
        "kind": answer.kind,
        "exit_code": exit_code(answer),
        "note": answer.note,
        "verified": answer.verified,
        "boundaries": [
            {
                "after": plan.names[edge.low],
                "culprits": list(plan.names[edge.low + 1 : edge.high + 1]),
                "confidence": round(edge.confidence, 4),
                "changes": list(lines),
            }
            for edge, lines in zip(answer.boundaries, changes, strict=False)
        ],
    }


def lines(search: Search, found: Found, titles: Mapping[str, str]) -> list[str]:
    """The answer for a person: what was found and how sure it is."""
    names, answer, fewest = search.plan.names, found.answer, found.fewest
    told = []
    for number, edge in enumerate(answer.boundaries):
        first = search.plan.high if number % 2 == 0 else search.plan.low
        what = names[edge.high] if edge.single else f"one of {', '.join(names[edge.low + 1 : edge.high + 1])}"
        title = f" ({titles[names[edge.high]]})" if edge.single and names[edge.high] in titles else ""
        sure = f", probability {edge.confidence:.3f}" if edge.confidence < 1 else ""
        told.append(f"first {first}: {what}{title}, after {names[edge.low]}{sure}")
    told += [answer.note] if answer.note else []
    for some in found.changes:
        near = [line for line in some if NEAR.search(line)]
        told += [f"  {line}" for line in (near or some)[:SHOWN]]
        told += [f"  ({len(some)} changes in all, in {PAGE})"] if len(some) > min(SHOWN, len(near or some)) else []
    if fewest:
        some = ", ".join(f"{number} ({titles[str(number)]})" for number in fewest)
        told.append(f"of changes 1 to {max(fewest)} these suffice: {some}")
    if answer.boundaries:
        told.append("both ends were run again at the end" if answer.verified else "the ends were NOT verified again")
    return told
