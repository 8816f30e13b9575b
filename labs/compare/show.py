"""A comparison as a table for people, and as a plot."""

from __future__ import annotations

from math import isfinite

from rich.table import Table

from labs.compare.judge import Comparison, Row
from labs.report.plots import Effect, effects_svg

TITLES = {"regression": "regression", "within": "no regression", "open": "not told"}


def table(result: Comparison, a: str, b: str) -> Table:
    """One row an invariant. A: what the first cell took, in ns; effects are the second's against it."""
    made = Table(title=f"A {a}\nB {b}", title_justify="left")
    for column in ("invariant", "A ns", "B ns", "effect", "95 % interval", "could see", "differ", "result"):
        made.add_column(column, justify="left" if column in ("invariant", "result") else "right")
    for row in result.rows:
        made.add_row(*_cells(row))
    for name, reason in result.missing.items():
        made.add_row(name, *["-"] * 6, reason)
    return made


def _cells(row: Row) -> list[str]:
    smallest = f"{row.smallest:+.1%}" if isfinite(row.smallest) else "none"
    interval = f"{row.low:+.2%} {row.high:+.2%}"
    told = [row.name, f"{row.a_ns:,.0f}", f"{row.b_ns:,.0f}", f"{row.effect:+.2%}", interval, smallest]
    return [*told, {True: "yes", False: "no", None: "-"}[row.differs], TITLES[row.outcome]]


def plot(result: Comparison, title: str) -> str:
    """Effects with their intervals and the bound, as an <svg> element; equal input gives equal bytes."""
    return effects_svg(
        [Effect(row.name, row.outcome, row.effect, row.low, row.high) for row in result.rows], result.bound, title
    )
