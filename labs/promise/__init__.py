"""Promises: what the kernel says of an interface, as a script of operations with what must come of each.

A promise is data. Its script runs in a guest (labs.probe.script), its verdict is a pure function of the outcomes, so
recorded outcomes can be judged again, and faulty ones can be planted to see that the promise would be missed.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from labs.invariant.verdict import Step, Verdict, pure
from labs.probe.script import NEVER, Op, Outcome

ROOT = "/sys/fs/cgroup/lab-promise"  # every group of a promise is below this one; made and removed by the runner
Text = str | Callable[[str], bool] | None


@dataclass(frozen=True)
class Row:
    """An operation and what must come of it.

    `errno` names the error that it must give ('' success, several separated by spaces are all allowed); None: any.
    `text` is what it must tell (stripped), or a predicate. `setup` marks what only prepares: when it fails, nothing
    can be said. `key` names the outcome for relations.
    """

    op: Op
    errno: str | None = ""
    text: Text = None
    setup: bool = False
    key: str = ""

    def wrong(self, outcome: Outcome) -> str:
        """How the outcome differs from what was promised; '' when it does not."""
        if outcome.errno == NEVER:
            return "never returned"
        if self.errno is not None and outcome.error not in (self.errno.split(" ") if self.errno else [""]):
            return f"gave {outcome.error or 'success'}, not {self.errno or 'success'}"
        said = outcome.text.strip()
        if isinstance(self.text, str) and said != self.text:
            return f"told {said[:80]!r}, not {self.text[:80]!r}"
        if callable(self.text) and not self.text(said):
            return f"told {said[:120]!r}, against {getattr(self.text, '__doc__', None) or 'the promise'}"
        return ""


Relation = Callable[[Mapping[str, Outcome]], str]  # '' when it holds, else what is wrong


@dataclass(frozen=True)
class Promise:
    """One promise: its name, who gives it, the files it needs, its rows and the relations between outcomes.

    `needs` are files of a group, as 'cpu.idle', or block devices, as 'loop0'; without them the case is skipped.
    `relations` compare outcomes by key. `rounds` repeats the script, for promises about races.
    """

    name: str
    source: str
    rows: tuple[Row, ...]
    needs: tuple[str, ...] = ()
    relations: tuple[Relation, ...] = ()
    rounds: int = 1
    full: bool = False  # costs half a second or more under emulation: only in the large size
    phase_ms: int = 10_000

    @property
    def id(self) -> str:
        """Short and fit for a pytest id, as 'weights-out-of-range-are-refused-6'."""
        words = re.findall(r"[A-Za-z0-9.]+", self.name)
        numbers = list(itertools.takewhile(str.isdigit, reversed(words)))[::-1]
        head = [word for word in words[: len(words) - len(numbers)] if word not in ("a", "the", "what", "was", "is")]
        return "-".join(head[:6] + numbers).lower()

    @property
    def ops(self) -> list[Op]:
        return [row.op for row in self.rows]


@pure
def judge(promise: Promise, rounds: Sequence[Sequence[Outcome]]) -> Verdict:
    """Judge the outcomes of each round; the first violation is shown with the operations that led to it.

    A round whose preparation fails tells nothing: an error, unless something was violated before.
    """
    checks = 0
    wrong: list[tuple[str, Sequence[Outcome], int]] = []
    for outcomes in rounds:
        for at, (row, outcome) in enumerate(zip(promise.rows, outcomes, strict=True)):
            said = "" if row.op.name == "-" else row.wrong(outcome)
            if said and row.setup and not wrong:
                reason = f"preparation failed: {row.op} {said}"
                return Verdict(promise.name, "error", reason, {"checks": checks}, evidence=_listing(outcomes))
            if said and row.setup:
                break
            checks += not row.setup
            if said:
                wrong.append((f"{row.op} {said}", outcomes, at))
        else:
            checks += len(promise.relations)
            wrong += [(said, outcomes, len(outcomes) - 1) for said in _unrelated(promise, outcomes) if said]
    looked_at: dict[str, float] = {"checks": checks, "rounds": len(rounds)}
    if wrong:
        reason, outcomes, at = wrong[0]
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        figures = {"violations": float(len(wrong))}
        steps = _steps(outcomes, at)
        return Verdict(promise.name, "fail", reason + more, looked_at, figures, steps, _listing(outcomes))
    if not checks:
        return Verdict(promise.name, "inconclusive", "nothing was checked", looked_at)
    return Verdict(promise.name, "pass", f"{checks} checks in {len(rounds)} rounds held", looked_at)


def _unrelated(promise: Promise, outcomes: Sequence[Outcome]) -> list[str]:
    """What the relations say of one round; nothing when an operation that they need is wrong by itself."""
    keyed = [(row, outcome) for row, outcome in zip(promise.rows, outcomes, strict=True) if row.key]
    if any(row.wrong(outcome) for row, outcome in keyed):
        return []
    seen = {row.key: outcome for row, outcome in keyed}
    return [_related(relation, seen) for relation in promise.relations]


def _related(relation: Relation, seen: Mapping[str, Outcome]) -> str:
    try:
        return relation(seen)
    except (KeyError, ValueError) as error:  # a file without the counters that it is promised to have
        return f"a counter is missing: {error}"


def _steps(outcomes: Sequence[Outcome], at: int, before: int = 3, most: int = 9) -> tuple[Step, ...]:
    """The phase in which the promise was broken, all its lanes, and what came just before it."""
    bars = [i for i, outcome in enumerate(outcomes) if outcome.op.name == "-"]
    begin = max((i for i in bars if i < at), default=-1) + 1
    end = min((i for i in bars if i > at), default=len(outcomes))
    first_shown = max(begin - before, at - most + 2, 0)
    shown = [o for o in outcomes[first_shown : min(end, at + 3)] if o.start]
    origin = min((o.start for o in shown), default=0)
    return tuple(
        Step(
            f"lane {o.op.lane}",
            str(o.op),
            o.error or o.text.strip()[:60] or "ok",
            o.start - origin,
            max(o.end, o.start) - origin,
        )
        for o in shown
    )


def _listing(outcomes: Sequence[Outcome]) -> str:
    return "\n".join(str(outcome) for outcome in outcomes if outcome.op.name != "-")


def does(name: str, *args: str | int, errno: str | None = "", text: Text = None, key: str = "", lane: int = 0) -> Row:
    """A row that is checked, as does('write', f'{ROOT}/a/cpu.weight', 0, errno='ERANGE')."""
    return Row(Op(name, args, lane), errno, text, key=key)


def first(name: str, *args: str | int, lane: int = 0) -> Row:
    """A row that only prepares."""
    return Row(Op(name, args, lane), setup=True)


def within(group: str, *rows: Row) -> tuple[Row, ...]:
    """Rows with their group made before and removed after; `group` is the name below ROOT."""
    path = f"{ROOT}/{group}"
    return (first("mkdir", path), *rows, first("rmdir", path))
