"""An axis: candidates in order, and the cell of each."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from labs.bisect.subset import ONLY
from labs.errors import BadInput
from labs.matrix import DEFAULT_KERNEL, DEFAULT_RUNTIME, Cell

BASE = "base"  # on an axis of changes that add up: none of them


@dataclass(frozen=True)
class Axis:
    """Candidates in order, both ends included, the cell of each, and what to call each in a report.

    `pick` makes the cell of some patches of a series by their numbers; None on the other axes.
    """

    cells: dict[str, Cell]
    low: str  # outcome that is claimed of the first candidate
    titles: dict[str, str] = dataclasses.field(default_factory=dict)
    pick: Callable[[Sequence[int]], Cell] | None = None

    def cell(self, name: str) -> Cell:
        """The cell of a candidate, or of patches by their numbers as `only:1+4`."""
        if name in self.cells or not self.pick:
            return self.cells[name]
        return self.pick([int(number) for number in name.removeprefix(ONLY).split("+")])

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.cells)


@dataclass(frozen=True)
class Wish:
    """What was asked: the axis, its ends, the outcome whose first candidate is looked for, the rest of the cell."""

    axis: str
    good: str = ""
    bad: str = ""
    first: str = ""
    kernel: str = DEFAULT_KERNEL
    runtime: str = DEFAULT_RUNTIME
    variant: str = ""
    series: str = ""


def cut(names: Sequence[str], good: str, bad: str, first: str = "") -> tuple[list[str], str]:
    """The names from one end to the other, and the outcome of the first of them; BadInput as for `axis_of`.

    >>> cut(["1", "2", "3", "4"], good="4", bad="2")
    (['2', '3', '4'], 'bad')
    """
    for end in (good, bad):
        if end not in names:
            raise BadInput(f"{end or 'a file'} is not on the axis", mend=f"it goes from {names[0]} to {names[-1]}")
    if good == bad:
        raise BadInput(f"both ends are {good}", mend="name two")
    ends = sorted((names.index(good), names.index(bad)))
    low = "good" if names[ends[0]] == good else "bad"
    if first and first == low:
        raise BadInput(
            f"--first {first}: {names[ends[0]]}, the older end, is said to be {low} already",
            mend="leave --first out, or exchange --good and --bad",
        )
    return list(names[ends[0] : ends[1] + 1]), low
