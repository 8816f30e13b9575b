"""The smallest set of patches that still shows what the whole shows: delta debugging.

A. Zeller and R. Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", IEEE TSE 28 (2002), algorithm ddmin.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

Subset = tuple[int, ...]
ONLY = "only:"  # begins the name of a candidate that is some patches, as `only:1+4`; `4` is all up to the fourth


def smallest(items: Sequence[int], shows: Callable[[Subset], bool]) -> Subset:
    """A subset, in order, that `shows` and from which no single item can be left out; `items` as a whole must show.

    `shows` is false too for what cannot be judged, as a subset that does not apply. No subset is asked about twice.
    """
    asked: dict[Subset, bool] = {tuple(items): True}

    def ask(subset: Subset) -> bool:
        if subset not in asked:
            asked[subset] = shows(subset)
        return asked[subset]

    if items and ask(()):
        return ()
    current, parts = tuple(items), 2
    while len(current) > 1:
        chunks = split(current, parts)
        rests = [tuple(item for item in current if item not in chunk) for chunk in chunks]
        if smaller := next((chunk for chunk in chunks if ask(chunk)), None):
            current, parts = smaller, 2
        elif rest := next((rest for rest in rests if ask(rest)), None):
            current, parts = rest, max(parts - 1, 2)
        elif parts < len(current):
            parts = min(len(current), 2 * parts)
        else:
            break
    return current


def split(items: Subset, parts: int) -> list[Subset]:
    """Items in so many neighbouring parts whose sizes differ by one at most.

    >>> split((1, 2, 3, 4, 5), 2)
    [(1, 2), (3, 4, 5)]
    """
    size = len(items)
    return [items[size * part // parts : size * (part + 1) // parts] for part in range(parts)]
