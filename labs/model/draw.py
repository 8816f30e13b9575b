"""Random cases from Hypothesis: a seed gives the same cases, whatever else is loaded.

A case chooses a few themes and groups for itself and draws its acts from their pool, so that its acts meet.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st

from labs.model.act import Act, Case
from labs.model.cgroup import parent
from labs.model.fit import fit, look
from labs.model.pool import PLACES, THEMES, pool
from labs.model.versions import Kernel

T = TypeVar("T")
BATCH = 400
ALL = "+cpu +io +memory +pids"
# Far from every number in a source file: Hypothesis likes to draw those that it finds in the modules that are loaded,
# and spreads numbers below 2**64 unevenly. From here it draws evenly, and the same for a seed in every process.
FAR = 0x5A17_C0DE_0BAD_CAFE_9E37_79B9_7F4A_7C15
NUMBER = st.integers(FAR, FAR + (1 << 32) - 1).map(lambda number: number - FAR)


def _numbers(least: int, most: int) -> st.SearchStrategy[list[int]]:
    return st.lists(NUMBER, min_size=least, max_size=most)


# Numbers that choose: themes; places, focus, controllers, groups made before; acts one by one.
CHOICES = st.tuples(_numbers(1, 3), st.tuples(NUMBER, NUMBER, NUMBER, NUMBER))
SEQUENTIAL = st.tuples(CHOICES, _numbers(8, 24), st.just(()))
CONCURRENT = st.tuples(
    CHOICES, _numbers(0, 3), st.one_of(*(st.tuples(*[_numbers(2, 6)] * lanes) for lanes in (2, 2, 3)))
)
Drawn = tuple[tuple[list[int], tuple[int, int, int, int]], list[int], tuple[list[int], ...]]


def one(options: Sequence[T], number: int) -> T:
    """The option that a number chooses; each is as likely as the others, repeated ones more."""
    return options[number % len(options)]


def case_of(drawn: Drawn, files: frozenset[str]) -> Case:
    """The case that the numbers stand for, in a kernel whose groups have these files."""
    (themes, (place, focus, controllers, made)), before, lanes = drawn
    places = one(PLACES, place)
    chosen = tuple(sorted({one(THEMES, number) for number in themes}))
    acts = pool(chosen, places, one(("", *places), focus) if lanes else None, files)
    setup = [Act("mkdir", place) for place in places] if one((True, True, False), made) else []
    if one((True, False), controllers):
        setup += [Act("write", group, "cgroup.subtree_control", ALL) for group in dict.fromkeys(map(parent, places))]
    return Case(
        (*setup, *(one(acts, number) for number in before)),
        tuple(tuple(one(acts, number) for number in lane) for lane in lanes),
    )


def batches(
    seed: int, count: int, kernel: Kernel, *, concurrent: bool, mask: Callable[[Case], Case] = lambda case: case
) -> Iterator[list[Case]]:
    """`count` cases fit to run, BATCH at a time: drawn as they are asked for, the same for a seed."""
    for number, at in enumerate(range(0, count, BATCH)):
        drawn = draw(seed * 1_000 + number, min(BATCH, count - at), concurrent)
        yield [look(fit(mask(case_of(numbers, kernel.files)), kernel)) for numbers in drawn]


@functools.lru_cache(maxsize=64)
def draw(seed: int, count: int, concurrent: bool) -> tuple[Drawn, ...]:
    drawn: list[Drawn] = []

    @settings(
        max_examples=count, phases=(Phase.generate,), database=None, deadline=None, derandomize=False,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @seeded(seed)
    @given(CONCURRENT if concurrent else SEQUENTIAL)
    def collect(numbers: Drawn) -> None:
        drawn.append(numbers)

    collect()
    return tuple(drawn)
