"""The bridge between pytest and the lab: options in, cells as parameters, verdicts out. It decides nothing itself."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import logging
import os
import random
import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

import pytest
from rich.console import Console

from labs import executed, judged, prepare
from labs.casebook import Bench, boot, named, verdict_of
from labs.errors import BadInput, GuestLost, KernelFailed, LabError
from labs.invariant.known import today
from labs.invariant.verdict import Verdict
from labs.matrix import Cell
from labs.matrixfile import Planned, asked
from labs.probe.register import Absent
from labs.provision.hosts import provider_for
from labs.report.record import CaseResult, Run
from labs.report.session import claim, close_run, joined_run, open_run
from labs.report.table import table
from labs.run.collect import TOLD
from labs.run.leftovers import orphaned
from labs.run.plan import ARCHIVE_FILE, Plan, load, todo
from labs.signoff import capsule
from labs.source.debian import Archive
from labs.store import Store

JOINED = pytest.StashKey[Plan]()  # of the run that this session has a part in
CELLS = pytest.StashKey[dict[Cell, Planned]]()
ARCHIVE = pytest.StashKey[Archive]()  # as it was when the run began, to its end
FOUND = pytest.StashKey[dict[Cell, prepare.Found]]()
RUN = pytest.StashKey[Run]()
VERDICT = pytest.StashKey[Verdict]()
HISTORIES = pytest.StashKey[tuple[str, ...]]()
JUDGED = pytest.StashKey[str]()
DESELECTED = pytest.StashKey[int]()


def pytest_addoption(parser: pytest.Parser) -> None:
    lab = parser.getgroup("lab", "validation lab")
    lab.addoption("--kernel", action="append", default=[], help="6.1, 6.12.57, 6.1.192-3, path:/x/bzImage; repeats")
    lab.addoption("--runtime", action="append", default=[], help="runc, crun, runc@1.1.15, path:/x/runc; repeats")
    lab.addoption("--series", action="append", default=[], help="patches/kernel/x, A+B, an mbox, ...; repeats")
    lab.addoption("--variant", action="append", default=[], help="config of a built kernel: default, lockdep, ...")
    lab.addoption("--provider", default="qemu", help="qemu, vagrant, ssh (default: qemu)")
    lab.addoption("--ssh", action="append", default=[], metavar="USER@HOST:PORT", help="a machine that runs; repeats")
    lab.addoption("--matrix", default="", metavar="FILE", help="the cells of a matrix file, as ci/matrix.toml")
    lab.addoption("--capsule", default="", metavar="FOLDER", help="the cell of a capsule that labs replay has opened")
    lab.addoption("--set", default="", metavar="NAME", help="only this set of the matrix; may switch --full on")
    lab.addoption("--cell", action="append", default=[], metavar="GLOB", help="only cells whose id matches; repeats")
    lab.addoption("--record", default="records", metavar="DIR", help="where the evidence goes (default: records/)")
    lab.addoption("--report", default="report", metavar="DIR", help="where the report goes (default: report/)")
    lab.addoption("--seed", type=int, default=None, help="seed of all random choices (default: drawn, and told)")
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
    options = config.option
    try:
        config.stash[CELLS] = _planned(config)
    except BadInput as error:
        raise pytest.UsageError(str(error)) from None
    if options.seed is None:
        options.seed = random.Random(_uid(config)).randrange(1 << 24) if _uid(config) else random.randrange(1 << 24)


def _planned(config: pytest.Config) -> dict[Cell, Planned]:
    options = config.option
    if options.join:
        return _joined(config)
    if options.capsule:
        cell = capsule.opened(Path(options.capsule)).cell
        return {cell: Planned(cell)}
    provider = options.provider if options.matrix else provider_for(options.provider, options.ssh)
    axes = {"kernels": options.kernel, "runtimes": options.runtime, "provider": provider}
    axes |= {"variants": options.variant, "series": options.series}
    path = Path(options.matrix) if options.matrix else None
    rows = asked(path, options.set, options.cell, **axes)
    options.full = options.full or any(row.full for row in rows)
    rows = [replace(row, hosts=tuple(options.ssh) or row.hosts) if row.cell.provider == "ssh" else row for row in rows]
    for row in rows:
        provider_for(row.cell.provider, row.hosts)
    return {row.cell: row for row in rows if not row.excluded}


def _joined(config: pytest.Config) -> dict[Cell, Planned]:
    """The one cell that this session runs of a larger run, with the options that were planned."""
    options = config.option
    if orphaned():
        raise BadInput("labs run has ended")
    plan = config.stash[JOINED] = load(Path(options.join))
    config.stash[RUN] = Run.open(Path(options.join))
    options.full, options.known, options.seed = plan.request.full, plan.request.known, config.stash[RUN].seed
    options.matrix = plan.request.matrix
    row = plan.rows[options.cell[0]]
    return {row.cell: row}


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of a larger run, only what has no outcome yet."""
    if JOINED in config.stash:
        cases = {cell.id: set(todo(config.stash[RUN].cell(cell.id))) for cell in config.stash[CELLS]}
        items[:] = [item for item in items if "bench" in getattr(item, "fixturenames", ()) and _wanted(item, cases)]


def _wanted(item: pytest.Item, cases: dict[str, set[str]]) -> bool:
    return case_name(item) in cases[item.callspec.params["cell"].id]  # type: ignore[attr-defined]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "bench" in metafunc.fixturenames:
        rows = metafunc.config.stash[CELLS].values()
        metafunc.parametrize("cell", [_parameter(row, metafunc.definition.nodeid) for row in rows], scope="session")


def _parameter(row: Planned, nodeid: str) -> Any:
    why = row.skipped(nodeid)
    return pytest.param(row.cell, id=row.cell.id, marks=[pytest.mark.skip(reason=why)] if why else [])


def case_name(item: pytest.Item) -> str:
    return named(item.nodeid, [item.callspec.params["cell"].id])[1]  # type: ignore[attr-defined]


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    for item in items:
        more = "bench" in getattr(item, "fixturenames", ())
        item.config.stash[DESELECTED] = item.config.stash.get(DESELECTED, 0) + more


def pytest_collection_finish(session: pytest.Session) -> None:
    """Plan the run: every case of every cell is on record as not-run before the first guest starts."""
    config = session.config
    plan: dict[str, list[str]] = {}
    for item in session.items:
        if "bench" in getattr(item, "fixturenames", ()):
            cases = plan.setdefault(item.callspec.params["cell"].id, [])  # type: ignore[attr-defined]
            cases += [case_name(item)] if case_name(item) not in cases else []
    if config.option.tell_plan:
        _tell_plan(session, plan)
    if plan and not config.option.collectonly:
        try:
            config.stash[FOUND] = _find(config)
            if JOINED in config.stash:
                return
            command = ["pytest", *config.invocation_params.args]
            config.stash[RUN] = open_run(
                _records(config), _uid(config), plan, command, config.option.seed, config.stash.get(DESELECTED, 0)
            )
        except LabError as error:
            _refuse(config, error)


def _tell_plan(session: pytest.Session, plan: dict[str, list[str]]) -> None:
    judged = [item for item in session.items if "bench" in getattr(item, "fixturenames", ())]
    exclusive = sorted({case_name(item) for item in judged if item.get_closest_marker("exclusive")})
    told = {"cells": plan, "exclusive": exclusive, "deselected": session.config.stash.get(DESELECTED, 0)}
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
    config = sched.config
    run = _finished_run(config)
    if run is not None and "[" in crashitem:
        report.when = "setup"
        cell, case = named(crashitem, [cell.id for cell in config.stash[CELLS]])
        verdict = Verdict("infrastructure", "error", "the pytest-xdist worker died in this case")
        run.cell(cell).add(CaseResult(case, "error", verdict, reason=verdict.reason))


def _find(config: pytest.Config) -> dict[Cell, prepare.Found]:
    store = Store.of_user()
    if JOINED in config.stash:
        archive = config.stash[ARCHIVE] = Archive.as_of(store, Path(config.option.join) / ARCHIVE_FILE)
        return {cell: config.stash[JOINED].found(cell.id, archive) for cell in config.stash[CELLS]}
    archive = config.stash[ARCHIVE] = Archive(store)
    if config.option.capsule:
        found = capsule.opened(Path(config.option.capsule)).found
        return {found.cell: found}
    return {cell: prepare.find(cell, archive) for cell in config.stash[CELLS]}


def _records(config: pytest.Config) -> Path:
    return Path(config.rootpath / config.option.record)


def _uid(config: pytest.Config) -> str:
    """Name of the pytest-xdist session, known to its workers and to its main process; empty without one."""
    worker = getattr(config, "workerinput", None)
    if worker:
        return str(worker["testrunuid"])
    manager = getattr(config.pluginmanager.getplugin("dsession"), "nodemanager", None)
    return str(manager.testrunuid) if manager else ""


@pytest.fixture(scope="session")
def bench(cell: Cell, request: pytest.FixtureRequest) -> Iterator[Bench]:
    """The cell's guest, booted once, with the cell's record."""
    config = request.config
    archive = config.stash[ARCHIVE]
    record = config.stash[RUN].cell(cell.id)
    if config.option.capsule:
        artifacts = capsule.opened(Path(config.option.capsule)).artifacts(archive.store, archive)
    else:
        artifacts = prepare.prepare(config.stash[FOUND][cell], archive.store, archive)
    artifacts = prepare.in_virtual_time(artifacts) if config.option.virtual_time else artifacts
    record.write_artifacts(artifacts.to_json())
    planned = config.stash[CELLS][cell]
    spec = prepare.machine(artifacts, planned.sizes, hosts=planned.hosts)
    functions = executed.changed(artifacts.found, archive.store, archive) if config.option.executed else ()
    with boot(artifacts, record, spec) as (booted, attempts):
        record.write_facts(booted.facts)
        made = Bench(booted, record, config.option.seed, config.option.full, attempts)
        with executed.watching(made, functions, booted.guest.console.path.parent):
            yield made
        if config.option.keep_guest:
            _hold(config, booted)


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
    judged = hasattr(item.config, "workerinput") and "bench" in getattr(item, "fixturenames", ())
    if not judged or claim(item.config.stash[RUN], item.nodeid):
        return None
    item.session._setupstate.teardown_exact(nextitem)  # as pytest's own protocol ends
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    bench = getattr(item, "funcargs", {}).get("bench")
    if bench is not None:
        bench.case, bench.replay = case_name(item), _replay(item)


def _replay(item: pytest.Item) -> str:
    """The command that runs one case again, with the same seed."""
    option, cell = item.config.option, item.callspec.params["cell"]  # type: ignore[attr-defined]
    named = ["--matrix", option.matrix, "--cell", cell.id] if option.matrix else cell.options
    named += [word for host in option.ssh for word in ("--ssh", host)]
    words = ["pytest", item.nodeid, *named, "--seed", str(option.seed), "--known", option.known]
    return shlex.join(
        [*words, *(["--full"] if option.full else []), *(["--virtual-time"] if option.virtual_time else [])]
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """Outcome of a phase by the kind of its exception; the record is written here and nowhere else."""
    report = yield
    error = call.excinfo.value if call.excinfo else None
    if "bench" in getattr(item, "fixturenames", ()) and (call.when == "call" or error is not None):
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
        report.sections.append(("again", _replay(item)))
    if report.outcome == "failed" and report.when != "teardown":
        report.when = "call" if verdict.outcome == "fail" else "setup"


def _record(item: pytest.Item, call: pytest.CallInfo[None], verdict: Verdict, error: BaseException | None) -> None:
    cell, case = item.callspec.params["cell"].id, case_name(item)  # type: ignore[attr-defined]
    started = datetime.fromtimestamp(call.start, UTC).isoformat(timespec="seconds")
    bench = getattr(item, "funcargs", {}).get("bench")
    bad = verdict.outcome in ("fail", "error")
    result = CaseResult(
        case if call.when != "teardown" else f"{case} (teardown)",  # the case's own outcome stands beside it
        verdict.outcome, verdict, call.duration, verdict.reason,
        attempts=bench.attempts if bench else getattr(error, "attempts", 1),
        started=started, histories=item.stash.get(HISTORIES, ()), judged=item.stash.get(JUDGED, ""),
        console=bench.console_of(case) if bench and bad else "", replay=_replay(item) if bad else "",
    )  # fmt: skip
    item.config.stash[RUN].cell(cell).add(result)


def _finished_run(config: pytest.Config) -> Run | None:
    """The run to report, as the main process sees it; under pytest-xdist the workers have made it."""
    if hasattr(config, "workerinput") or JOINED in config.stash:
        return None
    return config.stash.get(RUN, None) or joined_run(_records(config), _uid(config))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    config = session.config
    run = _finished_run(config)
    if run is None:
        return
    config.stash[RUN] = run
    close_run(_records(config), _uid(config))
    try:
        plots = importlib.import_module("labs.report.publish")  # brings matplotlib, for which no start should wait
        plots.publish(run, config.rootpath / config.option.report)
    except LabError as error:
        raise pytest.exit.Exception(f"lab error: no report: {error}", returncode=3) from None
    outcomes = [result.outcome for results in run.results().values() for result in results]
    terminal = config.pluginmanager.getplugin("terminalreporter")
    failed = terminal is not None and terminal.stats.get("failed")
    if exitstatus == pytest.ExitCode.TESTS_FAILED and not failed and "fail" not in outcomes:
        session.exitstatus = 3


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    unseen = hasattr(config, "workerinput") or JOINED in config.stash
    run = None if unseen else config.stash.get(RUN, None)
    if run is None:
        return
    width = max(100, shutil.get_terminal_size().columns)
    console = Console(width=width, no_color="NO_COLOR" in os.environ, force_terminal=terminalreporter.hasmarkup)
    with console.capture() as capture:
        console.print(table(run))
    terminalreporter.write_sep("=", "verdicts")
    terminalreporter.write(capture.get())
    report = config.rootpath / config.option.report
    for path in (report / "index.html", report / "junit.xml", run.path):
        terminalreporter.write_line(os.path.relpath(path, Path.cwd()))
    terminalreporter.write_line(f"again: pytest {shlex.join(config.invocation_params.args)} --seed {run.seed}")
