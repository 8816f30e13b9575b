"""The `labs bisect` command: parses and calls, decides nothing."""

from __future__ import annotations

import json
import logging
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from labs.bisect.ahead import Ahead, next_names
from labs.bisect.axes import AXES, axis_of
from labs.bisect.axis import Axis, Wish
from labs.bisect.changes import changes
from labs.bisect.drive import bisect, reduce
from labs.bisect.guests import Guests, find_case
from labs.bisect.page import write_page
from labs.bisect.plan import Plan, effective, noisy, tally
from labs.bisect.report import STEPS, Found, Search, exit_code, lines, load, load_found, replay, save
from labs.bisect.search import Answer, Ask
from labs.bisect.simulate import simulate
from labs.bisect.step import Log, Step, read_steps
from labs.bisect.subset import Subset
from labs.commandline import show, signature_option
from labs.errors import BadInput, LabError
from labs.matrix import DEFAULT_KERNEL, DEFAULT_RUNTIME
from labs.report.text import clean
from labs.source.debian import Archive
from labs.store import NO_RECORDS, Store, usable

log = logging.getLogger("labs")
USUAL = 0.8  # how often a simulated test is right
OPTIONS = (
    click.option("--axis", type=click.Choice(AXES), default="kernel", show_default=True),
    click.option("--good", default="", help="End that is good: as the axis, or a patch's number."),
    click.option("--bad", default="", help="End that is bad."),
    click.option("--first", type=click.Choice(["good", "bad"]), help="What is looked for; else the ends' order says."),
    click.option("--kernel", default=DEFAULT_KERNEL, show_default=True, help="Of the cells of another axis."),
    click.option("--runtime", default=DEFAULT_RUNTIME, show_default=True, help="Of the cells of another axis."),
    click.option("--variant", default="", help="Config of built kernels: default, lockdep, ..."),
    click.option("--series", default="", help="The series whose patches are the axis."),
    click.option("--confidence", type=click.FloatRange(0.5, 0.9999), default=0.95, show_default=True),
    click.option("--runs", type=click.IntRange(1, 1000), default=1, show_default=True,
                 help="Runs of each end first; 2 or more: the test is flaky, search by probability."),
    signature_option,
    click.option("--right", type=click.FloatRange(0.55, 0.999), metavar="P", help="How often the test is right, "
                 "as 0.8, if that is known; takes fewer runs than to measure it."),
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
    click.option("--replay", "again", type=click.Path(path_type=Path), metavar="DIR",
                 help="Tell an earlier search again from its log; run nothing."),
    click.option("--simulate", "searches", type=click.IntRange(1, 100_000), metavar="N",
                 help="Print how N simulated searches end, and in how many runs; run nothing."),
    click.option("--json", "as_json", is_flag=True, help="One JSON array on standard output, nothing else."),
    click.argument("test", required=False, metavar="SUITE::TEST"),
)  # fmt: skip


def _options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(OPTIONS):
        command = option(command)
    return command


@click.command("bisect")
@_options
def bisect_(
    test: str | None,
    resume: Path | None,
    again: Path | None,
    searches: int | None,
    records: Path,
    fresh: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Find the first bad, or first good, kernel, runtime, patch, commit or option by one test. Known defects are plain
    failures here.

    Exit 0: found; 4: only a range, several changes, or ends not verified; 2: the ends are not as said; 3: not judged.

    Example: labs bisect --good 6.1.192-3 --bad 6.1.187-1 suites/cgroup_atomicity/test_promises.py::max-that-raised
    """
    if searches:
        figures = simulate(given["right"] or USUAL, given["confidence"], searches)
        rows = [{**asdict(one), "limit": round(one.limit, 1), "ratio": round(one.ratio, 2)} for one in figures]
        show(rows, as_json)
        return
    if again:
        sys.exit(_replayed(again, as_json))
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
    plan, folder, titles = search.plan, judge.folder, judge.axis.titles
    save(folder, search, steps, titles)
    log.info("%s of %d candidates by %s; record: %s", search.wanted, len(plan.names), judge.case.name, folder)

    def told(ask: Ask, step: Step) -> None:
        save(folder, search, steps, titles)
        step = effective(plan, steps.steps)[-1]  # as the search reads it
        where = "an earlier search" if step.cached else f"{step.seconds:.0f} s"
        said = f"step {len(steps.steps)}: {step.candidate} ({ask.why}): {step.outcome}, {step.reason} [{where}]"
        log.info("%s; about %d left", said, ask.left - 1)

    def known(name: str) -> Step | None:
        found = earlier.get(judge.key(name))
        return replace(found, candidate=name, cached=True) if found else None

    try:
        with Ahead(judge.axis, folder / "ahead.log") as ahead:
            asking = lambda name: ahead.make(next_names(plan, steps.steps, name))  # noqa: E731
            answer = bisect(plan, judge, steps, told=told, known=known, asking=asking)
            fewest = _fewest(search, answer, judge, steps, told)
    except BaseException:
        log.info("to go on: labs bisect --resume %s", shlex.quote(str(folder)))
        raise
    found = Found(answer, fewest, _changes(search, answer, judge))
    _tell(folder, search, save(folder, search, steps, titles, found), found, as_json)
    return exit_code(answer)


def _changes(search: Search, answer: Answer, judge: Guests) -> list[list[str]]:
    """What changed at each boundary; nothing where it cannot be had: the answer stands without it."""
    try:
        return [changes(judge.axis, search.wish, edge, judge.archive) for edge in answer.boundaries]
    except LabError as error:
        log.warning("what changed is not told: %s", error)
        return []


def _replayed(folder: Path, as_json: bool) -> int:
    """An earlier search as its log tells it: each step must be the one that this search asks for."""
    search, steps = load(folder)
    titles, found = load_found(folder, search, steps)
    for number, (ask, step) in enumerate(replay(search.plan, steps.steps), 1):
        log.info("step %d: %s (%s): %s, %s", number, step.candidate, ask.why, step.outcome, step.reason)
    if found is None:
        raise BadInput(f"{folder}: the search has not ended", mend=f"labs bisect --resume {folder}")
    _tell(folder, search, save(folder, search, steps, titles, found), found, as_json)
    return exit_code(found.answer)


def _fewest(search: Search, answer: Answer, judge: Guests, steps: Log, told: Callable[[Ask, Step], None]) -> Subset:
    if not search.smallest or answer.kind != "found":
        return ()
    if noisy(search.plan, tally(search.plan, steps.steps)):
        log.info("--smallest: left out, the test is flaky")
        return ()
    return reduce(search.plan, int(search.plan.names[answer.boundaries[0].high]), judge, steps, told)


def _tell(folder: Path, search: Search, row: dict[str, Any], found: Found, as_json: bool) -> None:
    told = lines(search, found, row["titles"])
    page = write_page(folder, row, told)
    if as_json:
        print(json.dumps([row], indent=1))
        return
    columns = ("candidate", "outcome", "reason", "evidence")
    show([{"step": n, **{key: step[key] for key in columns}} for n, step in enumerate(row["steps"], 1)], False)
    for name, probability in row["probabilities"].items():
        print(f"probability {probability:.3f}  {'#' * round(40 * probability):40}  {name}")
    print("\n".join(clean(line) for line in [*told, str(page)]))  # titles and changelogs are anybody's text


def _wish(given: dict[str, Any]) -> Wish:
    return Wish(**{one.name: given[one.name] or "" for one in fields(Wish)})


def _folder(records: Path) -> Path:
    return usable(records, NO_RECORDS) / f"bisect-{datetime.now(UTC):%Y%m%dT%H%M%S.%f}Z"


def _search(test: str, axis: Axis, given: dict[str, Any]) -> Search:
    names = axis.names
    _known(axis, [*given["skips"], *given["start"]])
    if ends := set(given["skips"]) & {names[0], names[-1]}:
        raise BadInput(f"--skip {ends.pop()}: an end must be judged", mend="choose another end")
    spread = [names[(len(names) - 1) * part // (given["scan"] + 1)] for part in range(1, given["scan"] + 1)]
    start = tuple(dict.fromkeys(name for name in [*given["start"], *spread] if name not in (names[0], names[-1])))
    if given["smallest"] and not axis.pick:
        raise BadInput("--smallest is for changes that add up", mend="with --axis series, config or cell")
    smallest = given["smallest"] or given["axis"] == "cell"  # which axis moved it is the whole question there
    plan = Plan(
        names,
        axis.low,
        given["confidence"],
        given["runs"],
        frozenset(given["skips"]),
        start,
        given["most"],
        given["right"] or 0.0,
    )
    return Search(_wish(given), test, plan, given["pattern"], ("--full",) if given["full"] else (), smallest)


def _known(axis: Axis, names: Sequence[str]) -> None:
    for name in names:
        if name not in axis.cells:
            raise BadInput(f"{name} is not on the axis", mend=f"there are: {', '.join(axis.names)}")


def _earlier(records: Path) -> dict[str, Step]:
    """Steps of earlier searches that were judged, by all that went into them."""
    found = [step for path in sorted(records.glob(f"*/{STEPS}")) for step in read_steps(path)]
    return {step.key: step for step in found if step.key and step.outcome != "skip"}
