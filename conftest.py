"""The bridge between pytest and the lab: options in, cells as parameters, verdicts out. It decides nothing itself."""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import json
import logging
import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

import pytest
from rich.console import Console

from labs import judged, prepare
from labs.casebook import Bench, named, verdict_of
from labs.errors import BadInput, GuestLost, KernelFailed, LabError, foreseen
from labs.invariant.known import today
from labs.invariant.verdict import Verdict
from labs.matrix import Cell
from labs.matrixfile import Planned
from labs.probe.register import Absent
from labs.report.record import CaseResult, Run
from labs.report.session import claim
from labs.report.table import table
from labs.run.collect import TOLD
from labs.runbook import Runbook

BOOK = pytest.StashKey[Runbook]()
VERDICT = pytest.StashKey[Verdict]()
HISTORIES = pytest.StashKey[tuple[str, ...]]()
JUDGED = pytest.StashKey[str]()


def pytest_addoption(parser: pytest.Parser) -> None:
    lab = parser.getgroup("lab", "validation lab")
    lab.addoption("--kernel", action="append", default=[], help="6.1, 6.12.57, 6.1.192-3, path:/x/bzImage; repeats")
    lab.addoption("--runtime", action="append", default=[], help="runc, crun, runc@1.1.15, path:/x/runc; repeats")
    lab.addoption("--series", action="append", default=[], help="patches/kernel/x, A+B, an mbox, ...; repeats")
    lab.addoption("--variant", action="append", default=[], help="config of a built kernel: default, lockdep, ...")
    lab.addoption("--provider", default="", help="qemu, vagrant, ssh (default: qemu)")
    lab.addoption("--ssh", action="append", default=[], metavar="USER@HOST:PORT", help="a machine that runs; repeats")
    lab.addoption("--matrix", default="", metavar="FILE", help="the cells of a matrix file, as ci/matrix.toml")
    lab.addoption("--capsule", default="", metavar="FOLDER", help="the cell of a capsule that labs replay has opened")
    lab.addoption("--set", default="", metavar="NAME", help="only this set of the matrix; may switch --full on")
    lab.addoption("--cell", action="append", default=[], metavar="GLOB", help="only cells whose id matches; repeats")
    lab.addoption("--record", default="records", metavar="DIR", help="where the evidence goes (default: records/)")
    lab.addoption("--report", default="report", metavar="DIR", help="where the report goes (default: report/)")
    lab.addoption("--seed", type=int, default=None, help="seed of all random choices (default: drawn, and told)")
    lab.addoption(
        "--boots", type=int, default=1, metavar="N", help="every case on N fresh guests, each with a new seed"
    )
    lab.addoption("--full", action="store_true", help="the large sizes")
    lab.addoption("--join", default="", help=argparse.SUPPRESS)  # for labs run: a part of the run of that folder
    lab.addoption("--tell-plan", action="store_true", help=argparse.SUPPRESS)  # for labs run: what was collected
    lab.addoption("--virtual-time", action="store_true", help="guests of one vCPU; time is what their code costs")
    lab.addoption("--executed", action="store_true", help="note which functions that the series changes are run")
    lab.addoption("--keep-guest", action="store_true", help="hold a cell's guest at its end until Enter is pressed")
    lab.addoption(
        "--known", choices=["report", "ignore"], default="report", help="known defects: own outcome, or plain failures"
    )


class Progress(logging.Handler):
    """What the lab says while it works, shown at once although pytest captures output."""

    def __init__(self, config: pytest.Config) -> None:
        super().__init__(logging.INFO)
        self.capture = config.pluginmanager.getplugin("capturemanager")

    def emit(self, record: logging.LogRecord) -> None:
        with self.capture.global_and_fixture_disabled() if self.capture else contextlib.nullcontext():
            print(f"\nlabs: {record.getMessage()}", end="", file=sys.stderr, flush=True)


def pytest_configure(config: pytest.Config) -> None:
    lab = logging.getLogger("labs")
    lab.setLevel(logging.INFO)
    lab.addHandler(Progress(config))
    try:
        config.stash[BOOK] = Runbook.of(config.option, config.rootpath, functools.partial(_uid, config))
    except (BadInput, PermissionError) as error:
        raise pytest.UsageError(str(foreseen(error))) from None


def _uid(config: pytest.Config) -> str:
    """Name of the pytest-xdist session, known to its workers and to its main process; empty without one."""
    worker = getattr(config, "workerinput", None)
    if worker:
        return str(worker["testrunuid"])
    manager = getattr(config.pluginmanager.getplugin("dsession"), "nodemanager", None)
    return str(manager.testrunuid) if manager else ""


def judged_of(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Those that work on a cell, and so have a place in the record."""
    return [item for item in items if "bench" in getattr(item, "fixturenames", ())]


def cell_of(item: pytest.Item) -> Cell:
    return item.callspec.params["cell"]  # type: ignore[attr-defined,no-any-return]


def case_name(item: pytest.Item) -> str:
    return named(item.nodeid, [cell_of(item).id])[1]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of a larger run, only what has no outcome yet."""
    book = config.stash[BOOK]
    if book.plan:
        wanted = book.wanted()
        items[:] = [item for item in judged_of(items) if case_name(item) in wanted[cell_of(item).id]]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "bench" in metafunc.fixturenames:
        rows = metafunc.config.stash[BOOK].cells.values()
        guests = range(1, metafunc.config.option.boots + 1)
        found = [_parameter(row, metafunc.definition.nodeid, number, guests) for row in rows for number in guests]
        metafunc.parametrize(("cell", "boot_number"), found, scope="session")


def _parameter(row: Planned, nodeid: str, number: int, guests: Sequence[int]) -> Any:
    why = row.skipped(nodeid)
    name = row.cell.id if len(guests) == 1 else f"{row.cell.id}-boot{number}"
    return pytest.param(row.cell, number, id=name, marks=[pytest.mark.skip(reason=why)] if why else [])


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    for item in judged_of(items):
        item.config.stash[BOOK].deselected += 1


def pytest_collection_finish(session: pytest.Session) -> None:
    """Plan the run: every case of every cell is on record as not-run before the first guest starts."""
    config = session.config
    plan: dict[str, list[str]] = {}
    for item in judged_of(session.items):
        cases = plan.setdefault(cell_of(item).id, [])
        cases += [case_name(item)] if case_name(item) not in cases else []
    if config.option.tell_plan:
        _tell_plan(session, plan)
    if plan and not config.option.collectonly:
        try:
            config.stash[BOOK].open(plan, ["pytest", *config.invocation_params.args])
        except (LabError, OSError) as error:
            _refuse(config, foreseen(error))


def _tell_plan(session: pytest.Session, plan: dict[str, list[str]]) -> None:
    exclusive = {case_name(item) for item in judged_of(session.items) if item.get_closest_marker("exclusive")}
    told = {"cells": plan, "exclusive": sorted(exclusive), "deselected": session.config.stash[BOOK].deselected}
    session.config.get_terminal_writer().line(f"\n{TOLD}{json.dumps(told)}")


def _refuse(config: pytest.Config, error: LabError) -> NoReturn:
    """End before any test runs; a pytest-xdist worker has its main process say why, once."""
    if hasattr(config, "workeroutput"):
        config.workeroutput["refused"] = str(error)
    elif isinstance(error, BadInput):
        raise pytest.UsageError(str(error)) from None
    code = pytest.ExitCode.USAGE_ERROR if isinstance(error, BadInput) else error.exit_code
    raise pytest.exit.Exception(f"lab error: {error}", returncode=int(code)) from None


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """pytest-xdist, main process: a worker has ended."""
    output = getattr(node, "workeroutput", None) or {}
    if "refused" in output:
        raise pytest.exit.Exception(output["refused"], returncode=output["exitstatus"])


@pytest.hookimpl(optionalhook=True)
def pytest_handlecrashitem(crashitem: str, report: pytest.TestReport, sched: Any) -> None:
    """pytest-xdist, main process: a worker died in the middle of a test; an error of the case, and not its failure."""
    book = sched.config.stash[BOOK]
    run = book.whole()
    if run is not None and "[" in crashitem:
        report.when = "setup"
        cell, case = named(crashitem, [cell.id for cell in book.cells])
        verdict = Verdict("infrastructure", "error", "the pytest-xdist worker died in this case")
        run.cell(cell).add(CaseResult(case, "error", verdict, reason=verdict.reason))


@pytest.fixture(scope="session")
def bench(cell: Cell, boot_number: int, request: pytest.FixtureRequest) -> Iterator[Bench]:
    """The cell's guest, booted once, with the cell's record."""
    config = request.config
    with config.stash[BOOK].bench(cell, boot_number) as made:
        yield made
        if config.option.keep_guest:
            _hold(config, made.booted)


def _hold(config: pytest.Config, booted: prepare.Booted) -> None:
    capture = config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        print(f"\nguest kept: {booted.guest.session.login(booted.artifacts.keys)}")
        input("press Enter to end it ")


@pytest.fixture
def host(bench: Bench) -> Any:
    """A testinfra host whose commands run in the cell's guest."""
    return bench.guest.testinfra()


class Judge:
    """Turns a verdict into the case's outcome, after a look into the table of known defects."""

    def __init__(self, item: pytest.Item, bench: Bench) -> None:
        self.item = item
        self.bench = bench

    def __call__(self, verdict: Verdict, files: Sequence[str] = (), probe: str = "") -> None:
        """`files`: names of the files judged; `probe`: name of the report that the verdict rests on."""
        day = today().isoformat() if self.item.config.option.known == "report" else ""
        context = judged.Context(tuple(files), self.bench.kernel, day, self.bench.mended, self.bench.runtime)
        saved = self.bench.saved(probe)
        if verdict.call:
            self.item.stash[JUDGED] = judged.save(
                verdict.call, context, self.bench.record.path, case_name(self.item), saved[0] if saved else ""
            )
        verdict = context.explained(verdict)
        self.item.stash[VERDICT] = verdict
        self.item.stash[HISTORIES] = saved
        if verdict.outcome == "fail":
            pytest.fail(verdict.reason, pytrace=False)
        if verdict.outcome == "known":
            pytest.xfail(f"{verdict.known}: {verdict.reason}")
        if verdict.outcome in ("inconclusive", "skip"):
            pytest.skip(f"{verdict.outcome}: {verdict.reason}")
        if verdict.outcome == "error":
            raise LabError(verdict.reason, evidence=verdict.evidence)


@pytest.fixture
def judge(request: pytest.FixtureRequest, bench: Bench) -> Judge:
    return Judge(request.node, bench)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """pytest-xdist may hand the case that killed a worker to the next one, which would die of it too."""
    run = item.config.stash[BOOK].run
    if not hasattr(item.config, "workerinput") or not judged_of([item]) or run is None or claim(run, item.nodeid):
        return None
    item.session._setupstate.teardown_exact(nextitem)  # as pytest's own protocol ends
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    bench = getattr(item, "funcargs", {}).get("bench")
    if bench is not None:
        bench.case, bench.replay = case_name(item), _again(item)


def _again(item: pytest.Item) -> str:
    book: Runbook = item.config.stash[BOOK]
    return book.again(item.nodeid, cell_of(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """Outcome of a phase by the kind of its exception; the record is written here and nowhere else."""
    report = yield
    error = call.excinfo.value if call.excinfo else None
    if judged_of([item]) and (call.when == "call" or error is not None):
        verdict = _verdict(item, call, error, report)
        _shape(item, report, verdict, error)
        bench = getattr(item, "funcargs", {}).get("bench")
        if bench is not None and isinstance(error, (KernelFailed, GuestLost)):
            bench.ended = bench.ended or f"the guest ended in {case_name(item)}: {error}"
        try:
            _record(item, call, verdict, error)
        except LabError as trouble:  # a full disk, mostly: going on without a record would be for nothing
            raise pytest.exit.Exception(f"lab error: {trouble}", returncode=trouble.exit_code) from None
    return report


def _verdict(
    item: pytest.Item, call: pytest.CallInfo[None], error: BaseException | None, report: pytest.TestReport
) -> Verdict:
    judged = item.stash.get(VERDICT, None)
    if judged is not None and call.when == "call" and (error is None or judged.outcome != "pass"):
        return judged
    if error is None:
        return Verdict("assertion", "pass", "")
    if isinstance(error, LabError):
        bench = getattr(item, "funcargs", {}).get("bench")
        return verdict_of(error, bench.symbolized if bench else str)
    if isinstance(error, pytest.skip.Exception):
        return Verdict("feature", "skip", str(error))
    if isinstance(error, (AssertionError, pytest.fail.Exception)) and call.when == "call":
        return Verdict("assertion", "fail", str(error))
    return Verdict("infrastructure", "error", f"{type(error).__name__}: {error}", evidence=report.longreprtext)


def _shape(item: pytest.Item, report: pytest.TestReport, verdict: Verdict, error: BaseException | None) -> None:
    """Make pytest tell the outcome as the record does: its `error` is what broke in setup, its `failed` in the call."""
    if isinstance(error, Absent):
        report.outcome, report.longrepr = "skipped", (str(item.path), item.location[1] or 0, f"Skipped: {error}")
    elif isinstance(error, LabError):
        report.longrepr = f"{error}\n{error.evidence}"
    if report.outcome == "failed":
        report.sections.append(("again", _again(item)))
    if report.outcome == "failed" and report.when != "teardown":
        report.when = "call" if verdict.outcome == "fail" else "setup"


def _record(item: pytest.Item, call: pytest.CallInfo[None], verdict: Verdict, error: BaseException | None) -> None:
    run, case = item.config.stash[BOOK].run, case_name(item)
    assert run
    started = datetime.fromtimestamp(call.start, UTC).isoformat(timespec="seconds")
    bench = getattr(item, "funcargs", {}).get("bench")
    bad = verdict.outcome in ("fail", "error")
    result = CaseResult(
        case if call.when != "teardown" else f"{case} (teardown)",  # the case's own outcome stands beside it
        verdict.outcome, verdict, call.duration, verdict.reason,
        attempts=bench.attempts if bench else getattr(error, "attempts", 1),
        started=started, histories=item.stash.get(HISTORIES, ()), judged=item.stash.get(JUDGED, ""),
        console=bench.console_of(case) if bench and bad else "", replay=_again(item) if bad else "",
    )  # fmt: skip
    run.cell(cell_of(item).id).add(result)


def _finished_run(config: pytest.Config) -> Run | None:
    """The run to report: by the main process, of a session that is no part of a larger run."""
    book = config.stash.get(BOOK, None)
    return None if book is None or book.plan or hasattr(config, "workerinput") else book.whole()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    config = session.config
    run = _finished_run(config)
    if run is None:
        return
    config.stash[BOOK].run = run
    config.stash[BOOK].close()
    try:
        plots = importlib.import_module("labs.report.publish")  # brings matplotlib, for which no start should wait
        plots.publish(run, Path(config.option.report))
    except LabError as error:
        raise pytest.exit.Exception(f"lab error: no report: {error}", returncode=3) from None
    outcomes = [result.outcome for results in run.results().values() for result in results]
    terminal = config.pluginmanager.getplugin("terminalreporter")
    failed = terminal is not None and terminal.stats.get("failed")
    if exitstatus == pytest.ExitCode.TESTS_FAILED and not failed and "fail" not in outcomes:
        session.exitstatus = 3


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    run = _finished_run(config)
    if run is None:
        return
    width = max(100, shutil.get_terminal_size().columns)
    console = Console(width=width, no_color="NO_COLOR" in os.environ, force_terminal=terminalreporter.hasmarkup)
    with console.capture() as capture:
        console.print(table(run))
    terminalreporter.write_sep("=", "verdicts")
    terminalreporter.write(capture.get())
    report = Path(config.option.report)
    for path in (report / "index.html", report / "junit.xml", run.path):
        terminalreporter.write_line(os.path.relpath(path, Path.cwd()))
    terminalreporter.write_line(f"again: pytest {shlex.join(config.invocation_params.args)} --seed {run.seed}")
