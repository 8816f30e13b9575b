"""What a series would do to a tree, patch after patch, without touching it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from labs.series.step import Step, step
from labs.series.tree import View
from labs.series.values import Patch, Problem, Series, require_patches


@dataclass(frozen=True)
class Applicability:
    """One patch and one target. `state`: clean, offset N, fuzz N, already applied, partly applied, conflict,
    target absent, ambiguous or malformed; `detail` names file and line of what is in the way."""

    patch: str
    target: str
    state: str
    detail: str


def lint(series: Series) -> tuple[Problem, ...]:
    """All that makes the series malformed whatever the tree; empty for a sound one."""
    every = [*series.patches, *(patch for branch in series.branches for patch in branch.patches)]
    return (*series.problems, *(problem for patch in every for problem in patch.problems))


def steps(series: Series, view: View) -> tuple[list[Step], View]:
    """Each patch on what those before it made, and the view after all; patches that do not fit change nothing."""
    done: list[Step] = []
    made: dict[str, str] = {}  # patch-id -> subject of what was applied here
    while len(done) < len(series.patches):
        rest = series.patches[len(done) :]
        one = step(rest[0], view, series.line_endings)
        if not one.applicable and one.state != "malformed":
            if count := _there(rest, view, series.line_endings):
                done += [Step("already applied", "the tree has it: it can be undone", {}, ())] * count
                continue
            if rest[0].id in made:
                one = Step("already applied", f"same patch-id as {made[rest[0].id]!r} before it", {}, ())
        done.append(one)
        if one.applicable:
            made[rest[0].id] = _label(rest[0])
            view = view.with_changes(one.changes)
    return done, view


def _there(patches: Sequence[Patch], view: View, policy: str) -> int:
    """How many of the first patches the tree has: as many as can be undone in turn, the last one first.

    One alone does not tell: a later patch of the series may have changed the very lines of an earlier one.
    """
    for count in range(len(patches), 0, -1):
        undone = view
        for patch in reversed(patches[:count]):
            back = step(patch.reversed(), undone, policy)
            if back.fuzz or not back.applicable:
                break
            undone = undone.with_changes(back.changes)
        else:
            return count
    return 0


def examine(series: Series, tree: Path, target: str = "") -> tuple[Applicability, ...]:
    """One row a patch. `target` is what the rows call the tree, its path by default.

    Patches are examined on each other. Only the files that they name are read; nothing is written.
    """
    require_patches(series)
    target = target or str(tree)
    if series.problems:
        detail = "; ".join(str(problem) for problem in series.problems)
        names = [_label(patch) for patch in series.patches] or [series.name]
        return tuple(Applicability(name, target, "malformed", detail) for name in names)
    done, _ = steps(series, View(tree))
    return rows_of(series, done, target)


def rows_of(series: Series, done: Sequence[Step], target: str) -> tuple[Applicability, ...]:
    return tuple(
        Applicability(_label(patch), target, one.state, one.detail)
        for patch, one in zip(series.patches, done, strict=True)
    )


def _label(patch: Patch) -> str:
    return patch.subject or Path(patch.where.file).name
