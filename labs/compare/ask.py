"""The `labs compare` command: parses and calls, decides nothing."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from labs.commandline import cell_options, show
from labs.compare.cells import begin, go_on, resumed
from labs.compare.check import boots_in, checked, spread
from labs.compare.judge import ALPHA, WORDS, Comparison
from labs.compare.record import CompareRecord
from labs.compare.show import table
from labs.errors import BadInput
from labs.matrix import Cell, one_cell

PARAMETER = re.compile(r"(\w+\.\w+)=(\w+)", re.ASCII)


class Bound(click.ParamType[float]):
    """A part, written as 5% or 0.05."""

    name = "part"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            part = float(str(value).removesuffix("%")) / (100 if str(value).endswith("%") else 1)
        except ValueError:
            part = -1.0
        if not 0 <= part <= (10 if str(value).endswith("%") else 1):
            self.fail(f"{value!r} is no part; write it as 5%", param, ctx)
        return part


class Cells(click.Command):
    """A and B may be option strings, as "--kernel 6.12": words with a space are no options of this command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.obj = [word for word in args if word.startswith("-") and " " in word]
        marked = [f"@{ctx.obj.index(word)}" if word in ctx.obj else word for word in args]
        return super().parse_args(ctx, marked)


OPTIONS = (
    click.option("--suite", type=click.Path(path_type=Path), default=Path("suites/latency"), show_default=True,
                 help="Folder with measures.toml."),
    click.option("--measure", "only", multiple=True, metavar="NAME", help="Only this measure of the suite; repeats."),
    click.option("--boots", type=click.IntRange(2, 200), default=10, show_default=True, help="Of each side, at most."),
    click.option("--bound", type=Bound(), default="5%", show_default=True, help="A slowdown that is not minded."),
    click.option("--alpha", type=click.FloatRange(0.0001, 0.5), default=ALPHA, show_default=True,
                 help="Chance of a false alarm over all rows and looks; also of missing a regression."),
    click.option("--virtual-time/--wall-clock", "virtual", default=None,
                 help="Cost in guest instructions, one vCPU; default where there is no KVM."),
    click.option("--all-rounds", "whole", is_flag=True, help="Make all boots, even if fewer decide."),
    click.option("--parameter", "parameters", multiple=True, metavar="MODULE.NAME=VALUE",
                 help="Of B's planted defect, instead of what its series says; repeats."),
    click.option("--seed", type=int, default=None, help="Of all random choices (default: drawn, and told)."),
    click.option("--record", "records", type=click.Path(path_type=Path), default=Path("records"), show_default=True),
    click.option("--resume", type=click.Path(path_type=Path), metavar="DIR", help="Go on with an earlier comparison."),
    click.option("--self-check", "checks", multiple=True, type=click.Path(path_type=Path), metavar="DIR",
                 help="Instead: false alarms and power on the boots of an earlier comparison of equal cells; repeats."),
    click.option("--json", "as_json", is_flag=True, help="One JSON array on standard output, nothing else."),
)  # fmt: skip


def _options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(OPTIONS):
        command = option(command)
    return command


@click.command("compare", cls=Cells)
@_options
@click.argument("a", required=False)
@click.argument("b", required=False)
@click.pass_obj
def compare(
    quoted: list[str], /, a: str, b: str, resume: Path | None, whole: bool, as_json: bool, **given: Any
) -> None:
    """Tell whether cell B is slower than cell A. A and B: ids of `labs cells`, or options in quotes.

    Boots of both sides alternate, on fresh guests that only measure. Exit 0: no regression; 1: a regression beyond the
    bound; 4: inconclusive.

    Example: labs compare 6.1_runc_cpu-max-atomic.base 6.1_runc_cpu-max-atomic.patched --bound 3%
    """
    if given["checks"]:
        sys.exit(_self_check(given, as_json))
    del given["checks"]
    if resume:
        record, sides = resumed(resume)
    else:
        if not a or not b:
            raise click.UsageError("two cells are needed: A and B")
        cells = {side: _cell(_unquoted(word, quoted)) for side, word in (("A", a), ("B", b))}
        given["parameters"] = _parameters(given["parameters"])
        record, sides = begin(cells, given.pop("records"), given.pop("suite"), **given)
    result = go_on(record, sides, whole)
    if as_json:
        print(json.dumps([record.told(result)], indent=1))
    else:
        _show(record, result)
    sys.exit(result.code)


def _self_check(given: dict[str, Any], as_json: bool) -> int:
    boots = boots_in(given["checks"])
    rows, largest = checked(boots, given["boots"], given["bound"], given["alpha"], *given["only"][:1])
    if as_json:
        show([*rows, *spread(boots, largest)], as_json=True)
    else:
        print(f"{len(boots)} boots of one kernel, paired anew: comparisons share boots")
        show([_told(row) for row in rows], as_json=False)
        show([_told(row) for row in spread(boots, largest)], as_json=False)
    alarms, count = rows[0][WORDS[1]], rows[0]["of"]
    return 0 if alarms <= given["alpha"] * count else 1


def _told(row: dict[str, Any]) -> dict[str, Any]:
    parts = [key for key in row if key in ("planted", "bound") or key.endswith("apart")]
    return row | {key: f"{row[key]:.2%}" for key in parts}


def _unquoted(word: str, quoted: list[str]) -> str:
    return quoted[int(word[1:])] if word.startswith("@") and word[1:].isdigit() and quoted else word


@click.command("cell")
@cell_options
@click.argument("cell", required=False)
def _named(cell: str | None, **axes: Any) -> Cell:
    return one_cell(cell or "", **axes)


def _cell(words: str) -> Cell:
    """The cell of an id, or of options as `labs boot` takes them; BadInput when they name none, or several."""
    try:
        found: Cell = _named.main(shlex.split(words), prog_name="cell", standalone_mode=False)
    except (click.ClickException, ValueError) as error:
        raise BadInput(f"{words!r} names no cell: {error}", mend="give an id of `labs cells`") from None
    return found


def _parameters(words: Sequence[str]) -> dict[str, str]:
    found = [PARAMETER.fullmatch(word) for word in words]
    wrong = [word for word, match in zip(words, found, strict=True) if not match]
    if wrong:
        raise BadInput(f"--parameter {wrong[0]}: no parameter", mend="write it as cglab.torn_us=50")
    return {match[1]: match[2] for match in found if match}


def _show(record: CompareRecord, result: Comparison) -> None:
    asked, told = record.asked(), record.told(result)
    Console(width=max(110, shutil.get_terminal_size().columns)).print(table(result, asked.a, asked.b))
    for name in told["absent"]:
        print(f"{name}: cannot be measured on either side")
    print(f"{result.word}: {result.reason}")
    print(
        f"{result.rounds} rounds of at most {result.planned}, {asked.setting['accelerator']}; chance of a false alarm, "
        f"and of a miss, at most {result.alpha:g} over all rows and looks; {len(told['disturbed'])} boots disturbed"
    )
    print(record.path)
