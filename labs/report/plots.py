"""Pictures for the page: counterexamples as space-time diagrams, latencies as dot plots."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullFormatter, StrMethodFormatter

from labs.invariant.verdict import Step
from labs.report.record import CaseResult
from labs.report.text import clean

# Geometry of a diagram, in CSS pixels. It is shown unscaled: on a narrow screen it scrolls, its text stays readable.
WIDTH, MARGIN, ROW, LANE_HEAD, AXIS = 760, 12, 24, 20, 30
LABEL_LENGTH = 48

QUANTILES = {"p50": ("o", "#1f77b4"), "p99": ("D", "#ff7f0e"), "max": ("|", "#d62728")}
EFFECTS = {"regression": "#d62728", "within": "#1f77b4"}
RATES = {"base": "#d97706", "patched": "#1f77b4"}
_FIGURE_KEY = re.compile(r"(?:(.+) )?(p50|p99|max) us")
# Matplotlib takes no 'currentColor'. Ink is drawn in a colour that is used for nothing else, then replaced, so that
# a plot is dark on light and light on dark like the page around it.
_INK = "#010203"


@dataclass(frozen=True)
class Box:
    """One operation: from start to end on its own row, its label where there is room for it."""

    x: float
    y: float
    width: float
    kind: str  # 'write', 'read', ...: first word of the operation
    label: str
    label_x: float
    anchor: str


@dataclass(frozen=True)
class Lane:
    name: str
    y: float
    height: float
    boxes: tuple[Box, ...]


@dataclass(frozen=True)
class Diagram:
    """A space-time diagram: one lane a thread, `ticks` are (x, microseconds)."""

    width: int
    height: float
    lanes: tuple[Lane, ...]
    ticks: tuple[tuple[float, str], ...]


def spacetime(steps: Sequence[Step]) -> Diagram:
    """Lay out the steps of a counterexample. Each step has its own row in its lane, so that no label covers another."""
    first = min(step.start for step in steps)
    span = max(max(step.end for step in steps) - first, 1)
    scale = (WIDTH - 2 * MARGIN) / span
    lanes, y = [], float(AXIS)
    for thread in dict.fromkeys(step.thread for step in sorted(steps, key=lambda step: step.start)):
        mine = sorted((step for step in steps if step.thread == thread), key=lambda step: (step.start, step.end))
        boxes = tuple(_box(step, first, scale, y + LANE_HEAD + ROW * row) for row, step in enumerate(mine))
        height = LANE_HEAD + ROW * len(mine) + 6
        lanes.append(Lane(thread, y, height, boxes))
        y += height + 6
    values = MaxNLocator(nbins=6).tick_values(0, span / 1000)
    ticks = tuple((MARGIN + value * 1000 * scale, f"{value:g}") for value in values if 0 <= value * 1000 <= span)
    return Diagram(WIDTH, y, tuple(lanes), ticks)


def _box(step: Step, first: int, scale: float, y: float) -> Box:
    x = MARGIN + (step.start - first) * scale
    width = max((step.end - step.start) * scale, 3.0)
    label = f"{step.operation} = {step.value}"
    label = label if len(label) <= LABEL_LENGTH else label[: LABEL_LENGTH - 1] + "…"
    if x + width < WIDTH * 0.55:
        label_x, anchor = x + width + 5, "start"
    elif x > WIDTH * 0.45:
        label_x, anchor = x - 5, "end"
    else:  # the box covers the middle: the label lies on it
        label_x, anchor = x + 6, "start"
    return Box(round(x, 1), y, round(width, 1), step.operation.split(" ")[0], label, round(label_x, 1), anchor)


@dataclass(frozen=True)
class Latency:
    """Quantiles of one operation in microseconds; a quantile that was not measured is absent."""

    operation: str
    quantiles: dict[str, float]


def latencies(results: Sequence[CaseResult]) -> list[Latency]:
    """All latencies among the figures of the results: keys 'p50 us', 'p99 us', 'max us', or 'exec p50 us' and so on."""
    found: dict[str, dict[str, float]] = {}
    for result in results:
        for key, value in (result.verdict.figures if result.verdict else {}).items():
            match = _FIGURE_KEY.fullmatch(key)
            if match and value > 0 and math.isfinite(value):
                name = f"{result.case}: {match[1]}" if match[1] else result.case
                found.setdefault(name, {})[match[2]] = value
    return [Latency(operation, quantiles) for operation, quantiles in found.items()]


def latency_svg(rows: Sequence[Latency], title: str) -> str:
    """A dot plot, one row an operation, as an <svg> element; equal input gives equal bytes."""

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        for name, (marker, colour) in QUANTILES.items():
            points = [(row.quantiles[name], index) for index, row in enumerate(rows) if name in row.quantiles]
            if points:
                axes.plot(*zip(*points, strict=True), marker, color=colour, label=name, markeredgewidth=2, markersize=6)
        _log(axes, [value for row in rows for value in row.quantiles.values()])
        _name_rows(axes, [row.operation for row in rows])
        axes.set_xlabel("latency, us (log)")
        axes.set_title(clean(title), fontsize=9)
        figure.legend(loc="outside upper right", ncols=3, frameon=False)

    return _svg(1.3 + 0.32 * len(rows), draw)


@dataclass(frozen=True)
class Rate:
    """How often something was wrong: `low` and `high` are the ends of its interval; `kind` has a colour of its own."""

    name: str
    kind: str
    rate: float
    low: float
    high: float


def rates_svg(rows: Sequence[Rate], title: str) -> str:
    """Rates with their intervals, one row each, on a logarithmic axis: a rate of 0 is an arrow from its upper end."""

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        for index, row in enumerate(rows):
            colour = RATES.get(row.kind, "#7a7f87")
            axes.plot([max(row.low, row.high / 1e3), row.high], [index, index], color=colour, linewidth=2)
            if row.rate > 0:
                axes.plot([row.rate], [index], "o", color=colour, markersize=6)
            else:
                axes.plot([row.high], [index], "|", color=colour, markersize=10, markeredgewidth=2)
        _log(axes, [value for row in rows for value in (row.high / 1e2, row.high)])
        _name_rows(axes, [row.name for row in rows])
        axes.set_xlabel("share that was wrong (log)")
        axes.set_title(clean(title), fontsize=9)

    return _svg(1.1 + 0.45 * len(rows), draw)


@dataclass(frozen=True)
class Effect:
    """A change in parts (0.05: 5 % more), with its interval; `kind` has a colour of its own."""

    name: str
    kind: str
    effect: float
    low: float
    high: float


def effects_svg(rows: Sequence[Effect], bound: float, title: str) -> str:
    """Effects with their intervals in percent, one row each; the bound is a dashed line."""

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        for index, row in enumerate(rows):
            colour = EFFECTS.get(row.kind, "#7a7f87")
            axes.plot([100 * row.low, 100 * row.high], [index, index], color=colour, linewidth=2)
            axes.plot([100 * row.effect], [index], "o", color=colour, markersize=6)
        axes.axvline(0, color=_INK, alpha=0.4, linewidth=0.8)
        axes.axvline(100 * bound, color=EFFECTS["regression"], linewidth=1, linestyle="--")
        _name_rows(axes, [row.name for row in rows])
        axes.set_xlabel("slower by, %; dashed: the bound")
        axes.set_title(clean(title), fontsize=9)

    return _svg(1.1 + 0.32 * len(rows), draw)


def _name_rows(axes: Any, names: Sequence[str]) -> None:
    shown = ["\n".join(line[-60:] for line in clean(name).split("\n")) for name in names]
    axes.set_yticks(range(len(names)), shown)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(axis="x", color=_INK, alpha=0.15)


def _svg(height: float, draw: Callable[[Figure], None]) -> str:
    """What `draw` puts into a figure of that height in inches, as an element."""
    ink = dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), _INK)
    # Without a fixed salt element ids are random; parse_math would read a '$' in a name as TeX.
    settings: dict[Any, Any] = {
        "svg.hashsalt": "labs",
        "svg.fonttype": "none",
        "font.size": 9,
        "text.parse_math": False,
        **ink,
    }
    with matplotlib.rc_context(settings):
        figure = Figure(figsize=(7.4, height), layout="constrained")
        FigureCanvasSVG(figure)
        draw(figure)
        out = io.StringIO()
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
    svg = out.getvalue()
    return svg[svg.index("<svg") :].replace(_INK, "currentColor")


def _log(axes: Any, values: Sequence[float]) -> None:
    """A logarithmic axis of whole decades around the values, so that it always has two labelled ends."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    axes.set_xscale("log")
    axes.set_xlim(10.0**low * 0.9, 10.0 ** max(high, low + 1) * 1.1)
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
