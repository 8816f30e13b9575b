"""What a series would do to a tree, patch after patch, without touching it."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from labs.series.step import Step, step
from labs.series.tree import Outside, Unfit, View
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
    undoable = _Undoable(series, view)
    while len(done) < len(series.patches):
        patch = series.patches[len(done)]
        one = step(patch, view, series.line_endings)
        if not one.applicable and one.state != "malformed":
            if count := undoable.count(len(done)):
                done += [Step("already applied", "the tree has it: it can be undone", {}, ())] * count
                continue
            if patch.id in made:
                one = Step("already applied", f"same patch-id as {made[patch.id]!r} before it", {}, ())
        done.append(one)
        if one.applicable:
            made[patch.id] = _label(patch)
            view = view.with_changes(one.changes)
            undoable = _Undoable(series, view)
    return done, view


class _Undoable:
    """Which patches of a series a tree has: as many as can be undone in turn, the last one first.

    One alone does not tell: a later patch of the series may have changed the very lines of an earlier one.
    """

    def __init__(self, series: Series, view: View) -> None:
        self.series, self.view = series, view
        self._stops: dict[int, int] = {}  # end -> first of the patches before it that can be undone in turn

    @cached_property
    def _ends(self) -> set[int]:
        """Behind which patches to begin: found once a tree, however many patches do not fit it."""
        return {end for end, patch in enumerate(self.series.patches, 1) if _stands(patch, self.view)}

    def count(self, start: int) -> int:
        """How many from `start` on the tree has. Where undoing stops, it begins again at the very patch that could not
        be undone: one behind it may only have looked as if the tree had it."""
        end = len(self.series.patches)
        while end > start:
            if end in self._ends and end not in self._stops:
                self._stops[end] = self._undone(start, end)
            stop = self._stops.get(end, end)
            if stop <= start:
                return end - start
            end = min(stop, end - 1)
        return 0

    def _undone(self, start: int, end: int) -> int:
        undone = self.view
        for number in range(end - 1, start - 1, -1):
            back = step(self.series.patches[number].reversed(), undone, self.series.line_endings)
            if back.fuzz or not back.applicable:
                return number + 1
            undone = undone.with_changes(back.changes)
        return start


def _stands(patch: Patch, view: View) -> bool:
    """False where what a hunk makes is not in its file, so that the patch cannot be undone: quicker than to try it."""
    for diff in patch.files:
        with contextlib.suppress(Outside, Unfit):
            there = view.get(diff.new) if diff.hunks and diff.new else None
            bare = there.data.replace(b"\r", b"") if there else b""
            if there and any(b"".join(hunk.new).replace(b"\r", b"") not in bare for hunk in diff.hunks):
                return False
    return True


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
