"""A comparison as a table for people, and as a plot."""

from __future__ import annotations

import io
from math import isfinite
from typing import Any

import matplotlib
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from rich.table import Table

from labs.compare.judge import Comparison, Row

COLOURS = {"regression": "#d62728", "within": "#1f77b4", "open": "#7f7f7f"}
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
    settings: dict[Any, Any] = {
        "svg.hashsalt": "labs",
        "svg.fonttype": "none",
        "font.size": 9,
        "text.parse_math": False,
    }
    with matplotlib.rc_context(settings):
        figure = Figure(figsize=(7.4, 1.4 + 0.32 * max(1, len(result.rows))), layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.add_subplot()
        for at, row in enumerate(result.rows):
            reach = [[100 * (row.effect - row.low)], [100 * (row.high - row.effect)]]
            reach = [[max(0.0, side[0])] for side in reach]  # a BCa interval may lie beside its mean
            axes.errorbar(100 * row.effect, at, xerr=reach, fmt="o", color=COLOURS[row.outcome], capsize=4)
        axes.axvline(0, color="#999999", linewidth=0.8)
        axes.axvline(100 * result.bound, color=COLOURS["regression"], linewidth=0.8, linestyle="--")
        axes.set_yticks(range(len(result.rows)), [row.name for row in result.rows])
        axes.set_ylim(max(1, len(result.rows)) - 0.5, -0.5)
        axes.grid(axis="x", alpha=0.3)
        axes.set_xlabel("B against A, %; dashed: the bound")
        axes.set_title(title, fontsize=9)
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None})
    svg = out.getvalue()
    return svg[svg.index("<svg") :]
