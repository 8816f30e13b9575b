"""The `labs bisect` command: parses and calls, decides nothing."""

from __future__ import annotations

import json
import logging
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from labs.bisect.axes import AXES, Axis, Wish, axis_of
from labs.bisect.drive import bisect, reduce
from labs.bisect.guests import Guests, find_case
from labs.bisect.plan import Plan, effective, noisy, tally
from labs.bisect.report import STEPS, Search, exit_code, lines, load, save
from labs.bisect.search import Answer, Ask
from labs.bisect.step import Log, Step, read_steps
from labs.bisect.subset import Subset
from labs.errors import BadInput
from labs.matrix import DEFAULT_KERNEL, DEFAULT_RUNTIME
from labs.source.debian import Archive
from labs.store import Store

log = logging.getLogger("labs")
OPTIONS = (
    click.option("--axis", type=click.Choice(AXES), default="kernel", show_default=True),
    click.option("--good", default="", help="End that is good: a kernel, a runtime, or a patch's number."),
    click.option("--bad", default="", help="End that is bad."),
    click.option("--first", type=click.Choice(["good", "bad"]), help="What is looked for; else the ends' order says."),
    click.option("--kernel", default=DEFAULT_KERNEL, show_default=True, help="Of the cells of another axis."),
    click.option("--runtime", default=DEFAULT_RUNTIME, show_default=True, help="Of the cells of another axis."),
    click.option("--variant", default="", help="Config of built kernels: default, lockdep, ..."),
    click.option("--series", default="", help="The series whose patches are the axis."),
    click.option("--confidence", type=click.FloatRange(0.5, 0.9999), default=0.95, show_default=True),
    click.option("--runs", type=click.IntRange(1, 1000), default=1, show_default=True,
                 help="Runs of each end first; 2 or more: the test is flaky, search by probability."),
    click.option("--signature", "pattern", default="", metavar="REGEX", help="Only failures that match are bad."),
    click.option("--skip", "skips", multiple=True, metavar="NAME", help="Never run this candidate; repeats."),
    click.option("--start", multiple=True, metavar="NAME", help="Run this candidate first; repeats."),
    click.option("--scan", type=click.IntRange(0), default=0, help="Run so many, evenly spread, first: finds outcomes "
                 "that change more than once."),
    click.option("--most", type=click.IntRange(2), default=300, show_default=True, help="Give up after so many runs."),
    click.option("--smallest", is_flag=True, help="Series: then the fewest patches that still show it."),
    click.option("--fresh", is_flag=True, help="Take nothing from earlier searches."),
    click.option("--full", is_flag=True, help="The large sizes."),
    click.option("--record", "records", type=click.Path(path_type=Path), default=Path("records"), show_default=True),
    click.option("--resume", type=click.Path(path_type=Path), metavar="DIR", help="Go on with an earlier search."),
    click.option("--json", "as_json", is_flag=True, help="One JSON array on standard output, nothing else."),
    click.argument("test", required=False, metavar="SUITE::TEST"),
)  # fmt: skip


def _options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(OPTIONS):
        command = option(command)
    return command


@click.command("bisect")
@_options
def bisect_(test: str | None, resume: Path | None, records: Path, fresh: bool, as_json: bool, **given: Any) -> None:
    """Find the first bad, or first good, kernel, runtime or patch by one test. Known defects are plain failures here.

    Exit 0: found; 4: only a range, several changes, or ends not verified; 2: the ends are not as said; 3: not judged.

    Example: labs bisect --good 6.1.192-3 --bad 6.1.187-1 suites/cgroup_atomicity/test_promises.py::max-that-raised
    """
    archive = Archive(Store.of_user())
    if resume:
        folder = resume
        search, steps = load(folder)
        extra = frozenset(given["skips"])
        axis = axis_of(search.wish, archive, folder / "series")
        _known(axis, [*search.plan.names, *extra])
        search = replace(search, plan=replace(search.plan, skips=search.plan.skips | extra))
    else:
        if not test:
            raise click.UsageError("a test is needed: SUITE::TEST")
        folder = _folder(records)
        axis = axis_of(_wish(given), archive, folder / "series")
        search, steps = _search(test, axis, given), Log(folder / STEPS)
    case = find_case(search.test, axis.cells[search.plan.names[search.plan.bad_end]])
    judge = Guests(axis, case, folder, archive, search.pattern, search.options)
    folder.mkdir(parents=True, exist_ok=True)
    earlier = {} if fresh else _earlier(folder.parent)
    sys.exit(_run(search, judge, steps, earlier, as_json))


def _run(search: Search, judge: Guests, steps: Log, earlier: dict[str, Step], as_json: bool) -> int:
    plan, folder = search.plan, judge.folder
    save(folder, search, steps, None)
    log.info("%s of %d candidates by %s; record: %s", search.wanted, len(plan.names), judge.case.name, folder)

    def told(ask: Ask, step: Step) -> None:
        save(folder, search, steps, None)
        step = effective(plan, steps.steps)[-1]  # as the search reads it
        where = "an earlier search" if step.cached else f"{step.seconds:.0f} s"
        said = f"step {len(steps.steps)}: {step.candidate} ({ask.why}): {step.outcome}, {step.reason} [{where}]"
        log.info("%s; about %d left", said, ask.left - 1)

    def known(name: str) -> Step | None:
        found = earlier.get(judge.key(name))
        return replace(found, candidate=name, cached=True) if found else None

    try:
        answer = bisect(plan, judge, steps, told=told, known=known)
        fewest = _fewest(search, answer, judge, steps, told)
    except BaseException:
        log.info("to go on: labs bisect --resume %s", shlex.quote(str(folder)))
        raise
    row = save(folder, search, steps, answer, fewest)
    if as_json:
        print(json.dumps([row], indent=1))
    else:
        _show(row)
        print("\n".join(lines(search, answer, judge.axis.titles, fewest)))
    return exit_code(answer)


def _fewest(search: Search, answer: Answer, judge: Guests, steps: Log, told: Callable[[Ask, Step], None]) -> Subset:
    if not search.smallest or answer.kind != "found":
        return ()
    if noisy(search.plan, tally(search.plan, steps.steps)):
        log.info("--smallest: left out, the test is flaky")
        return ()
    return reduce(search.plan, int(search.plan.names[answer.boundaries[0].high]), judge, steps, told)


def _show(row: dict[str, Any]) -> None:
    console = Console()
    table = Table()
    for column in ("step", "candidate", "outcome", "reason", "evidence"):
        table.add_column(column, overflow="fold")
    for number, step in enumerate(row["steps"], 1):
        table.add_row(str(number), step["candidate"], step["outcome"], escape(step["reason"]), step["evidence"])
    console.print(table)
    for name, probability in row["probabilities"].items():
        print(f"probability {probability:.3f}  {name}")


def _wish(given: dict[str, Any]) -> Wish:
    return Wish(**{one.name: given[one.name] or "" for one in fields(Wish)})


def _folder(records: Path) -> Path:
    return records / f"bisect-{datetime.now(UTC):%Y%m%dT%H%M%S.%f}Z"


def _search(test: str, axis: Axis, given: dict[str, Any]) -> Search:
    names = axis.names
    _known(axis, [*given["skips"], *given["start"]])
    if ends := set(given["skips"]) & {names[0], names[-1]}:
        raise BadInput(f"--skip {ends.pop()}: an end must be judged", mend="choose another end")
    spread = [names[(len(names) - 1) * part // (given["scan"] + 1)] for part in range(1, given["scan"] + 1)]
    start = tuple(dict.fromkeys(name for name in [*given["start"], *spread] if name not in (names[0], names[-1])))
    if given["smallest"] and not axis.pick:
        raise BadInput("--smallest is for patches", mend="with --axis series")
    try:
        re.compile(given["pattern"])
    except re.error as error:
        raise BadInput(f"--signature {given['pattern']}: {error}") from None
    plan = Plan(names, axis.low, given["confidence"], given["runs"], frozenset(given["skips"]), start, given["most"])
    return Search(_wish(given), test, plan, given["pattern"], ("--full",) if given["full"] else (), given["smallest"])


def _known(axis: Axis, names: Sequence[str]) -> None:
    for name in names:
        if name not in axis.cells:
            raise BadInput(f"{name} is not on the axis", mend=f"there are: {', '.join(axis.names)}")


def _earlier(records: Path) -> dict[str, Step]:
    """Steps of earlier searches that were judged, by all that went into them."""
    found = [step for path in sorted(records.glob(f"*/{STEPS}")) for step in read_steps(path)]
    return {step.key: step for step in found if step.key and step.outcome != "skip"}
