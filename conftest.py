"""The bridge between pytest and the lab: options in, cells as parameters, verdicts out. It decides nothing itself."""

from __future__ import annotations

import contextlib
import logging
import os
import platform
import random
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from labs import catalog, prepare
from labs.casebook import Bench
from labs.errors import BadInput, KernelFailed, LabError
from labs.invariant.known import explain
from labs.invariant.verdict import Verdict
from labs.matrix import Cell, cells
from labs.probe.register import Absent
from labs.report.html import write_page
from labs.report.junit import write_junit
from labs.report.record import CaseResult, Run
from labs.report.table import table
from labs.source.debian import Archive
from labs.store import Store

CELLS = pytest.StashKey[list[Cell]]()
FOUND = pytest.StashKey[dict[Cell, prepare.Found]]()
RUN = pytest.StashKey[Run]()
VERDICT = pytest.StashKey[Verdict]()
HISTORIES = pytest.StashKey[tuple[str, ...]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    lab = parser.getgroup("lab", "validation lab")
    lab.addoption("--kernel", action="append", default=[], help="6.1, 6.12.57, 6.1.192-3, path:/x/bzImage; repeats")
    lab.addoption("--runtime", action="append", default=[], help="runc, crun, runc@1.1.15, path:/x/runc; repeats")
    lab.addoption("--provider", default="qemu", help="qemu")
    lab.addoption("--cell", action="append", default=[], metavar="GLOB", help="only cells whose id matches; repeats")
    lab.addoption("--record", default="records", metavar="DIR", help="where the evidence goes (default: records/)")
    lab.addoption("--seed", type=int, default=None, help="seed of all random choices (default: drawn, and told)")
    lab.addoption("--full", action="store_true", help="the large sizes")
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
        config.stash[CELLS] = cells(options.kernel, options.runtime, options.provider, options.cell)
    except BadInput as error:
        raise pytest.UsageError(str(error)) from None
    if options.seed is None:
        options.seed = int(os.environ.get("PYTEST_XDIST_TESTRUNUID", "")[:6] or f"{random.randrange(1 << 24):x}", 16)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "bench" in metafunc.fixturenames:
        asked = metafunc.config.stash[CELLS]
        metafunc.parametrize("cell", asked, ids=[cell.id for cell in asked], scope="session")


def case_name(item: pytest.Item) -> str:
    """The item without its cell: the same case has the same name in every cell."""
    callspec = item.callspec  # type: ignore[attr-defined]
    name = item.nodeid.split("::", 1)[1].split("[", 1)[0]
    others = [part for part in callspec.id.split("-") if part]
    cell = callspec.params["cell"].id.split("-")
    for at in range(len(others) - len(cell) + 1):
        if others[at : at + len(cell)] == cell:
            others = others[:at] + others[at + len(cell) :]
            break
    module = Path(item.nodeid.split("::", 1)[0]).stem.removeprefix("test_")
    return f"{module}.{name.removeprefix('test_')}" + (f"[{'-'.join(others)}]" if others else "")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Plan the run: every case of every cell is on record as not-run before the first guest starts."""
    config = session.config
    plan: dict[str, list[str]] = {}
    for item in session.items:
        if "bench" in getattr(item, "fixturenames", ()):
            plan.setdefault(item.callspec.params["cell"].id, []).append(case_name(item))  # type: ignore[attr-defined]
    if plan and not config.option.collectonly:
        try:
            config.stash[FOUND] = _find(config)
            config.stash[RUN] = _open_run(config, plan)
        except BadInput as error:
            raise pytest.UsageError(str(error)) from None
        except LabError as error:
            raise pytest.exit.Exception(f"lab error: {error}", returncode=error.exit_code) from None


def _find(config: pytest.Config) -> dict[Cell, prepare.Found]:
    archive = Archive(Store.of_user())
    return {cell: prepare.find(cell, archive) for cell in config.stash[CELLS]}


def _open_run(config: pytest.Config, plan: dict[str, list[str]]) -> Run:
    """The run's record. Workers of one pytest-xdist session meet in one run through a link named by its uid."""
    records = config.rootpath / config.option.record
    host = {"hostname": platform.node(), "kernel": platform.release(), "cpus": os.cpu_count() or 0}
    command = ["pytest", *config.invocation_params.args]
    uid = os.environ.get("PYTEST_XDIST_TESTRUNUID", "")
    if not uid:
        return Run.create(records, plan, host, command, config.option.seed)
    link = _link(uid)
    with Store.of_user().lock(f"run-{uid}"):
        if not link.is_symlink():
            link.symlink_to(Run.create(records, plan, host, command, config.option.seed).path)
    return Run.open(link.resolve())


def _link(uid: str) -> Path:
    return Path(tempfile.gettempdir()) / f"cgroup-lab-run-{uid}"


@pytest.fixture(scope="session")
def bench(cell: Cell, request: pytest.FixtureRequest) -> Iterator[Bench]:
    """The cell's guest, booted once, with the cell's record."""
    config = request.config
    store = Store.of_user()
    record = config.stash[RUN].cell(cell.id)
    artifacts = prepare.prepare(config.stash[FOUND][cell], store, Archive(store))
    record.write_artifacts(artifacts.to_json())
    logs = record.new_boot()
    record.console_path.unlink(missing_ok=True)
    record.console_path.symlink_to(logs.relative_to(record.path) / "console.log")
    with prepare.boot(artifacts, logs) as booted:
        record.write_facts(booted.facts)
        yield Bench(booted, record, config.option.seed, config.option.full)
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
        if self.item.config.option.known == "report":
            verdict = explain(verdict, catalog.known_defects(), self.bench.kernel, files)
        self.item.stash[VERDICT] = verdict
        self.item.stash[HISTORIES] = self.bench.saved(probe)
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
    bench.case = case_name(request.node)
    return Judge(request.node, bench)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """Outcome of a phase by the kind of its exception; the record is written here and nowhere else."""
    report = yield
    if "bench" not in getattr(item, "fixturenames", ()):
        return report
    error = call.excinfo.value if call.excinfo else None
    if isinstance(error, Absent):
        report.outcome, report.longrepr = "skipped", (str(item.path), item.location[1] or 0, f"Skipped: {error}")
    elif isinstance(error, KernelFailed):  # the kernel's failure is the case's, even when it died in boot
        report.when, report.longrepr = "call", f"{error}\n{error.evidence}"
    elif isinstance(error, LabError):  # infrastructure is an error, even when it broke inside the test
        report.when, report.longrepr = "setup", f"{error}\n{error.evidence}"
    if call.when == "call" or (error is not None and call.when == "setup"):
        _record(item, report, call, error)
    return report


def _record(
    item: pytest.Item, report: pytest.TestReport, call: pytest.CallInfo[None], error: BaseException | None
) -> None:
    verdict = item.stash.get(VERDICT, None)
    if verdict is None and error is not None:
        if isinstance(error, KernelFailed):
            verdict = Verdict("quiet kernel", "fail", str(error), evidence=error.evidence)
        elif isinstance(error, Absent):
            verdict = Verdict("feature", "skip", str(error))
        elif isinstance(error, LabError):
            verdict = Verdict("infrastructure", "error", str(error), evidence=error.evidence)
        elif isinstance(error, (AssertionError, pytest.fail.Exception)):
            verdict = Verdict("assertion", "fail", str(error))
        elif isinstance(error, pytest.skip.Exception):
            verdict = Verdict("feature", "skip", str(error))
        elif isinstance(error, Exception):
            verdict = Verdict(
                "infrastructure", "error", f"{type(error).__name__}: {error}", evidence=report.longreprtext
            )
        else:
            return  # Ctrl-C: the case stays not-run
    if verdict is None:
        verdict = Verdict("assertion", "pass", "")
    cell = item.callspec.params["cell"]  # type: ignore[attr-defined]
    started = datetime.fromtimestamp(call.start, UTC).isoformat(timespec="seconds")
    result = CaseResult(
        case_name(item), verdict.outcome, verdict, call.duration, verdict.reason,
        started=started, histories=item.stash.get(HISTORIES, ()),
    )  # fmt: skip
    item.config.stash[RUN].cell(cell.id).add(result)


def _finished_run(config: pytest.Config) -> Run | None:
    """The run as the main process sees it; under pytest-xdist the workers have made it."""
    if hasattr(config, "workerinput"):
        return None
    run = config.stash.get(RUN, None)
    uid = os.environ.get("PYTEST_XDIST_TESTRUNUID", "") or getattr(
        config.pluginmanager.getplugin("dsession"), "uid", ""
    )
    if run is None and uid and _link(uid).is_symlink():
        run = Run.open(_link(uid).resolve())
        _link(uid).unlink()
    return run


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    run = _finished_run(session.config)
    if run is None:
        return
    session.config.stash[RUN] = run
    write_junit(run, run.path / "report/junit.xml")
    write_page(run, run.path / "report/index.html")
    latest = session.config.rootpath / "report"
    for path in (run.path / "report").iterdir():
        latest.mkdir(exist_ok=True)
        part = latest / f".{path.name}.{os.getpid()}"
        shutil.copyfile(path, part)
        part.replace(latest / path.name)
    outcomes = [result.outcome for results in run.results().values() for result in results]
    stats = session.config.pluginmanager.getplugin("terminalreporter").stats
    if exitstatus == pytest.ExitCode.TESTS_FAILED and not stats.get("failed") and "fail" not in outcomes:
        session.exitstatus = 3


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    run = None if hasattr(config, "workerinput") else config.stash.get(RUN, None)
    if run is None:
        return
    width = max(100, shutil.get_terminal_size().columns)
    console = Console(width=width, no_color="NO_COLOR" in os.environ, force_terminal=terminalreporter.hasmarkup)
    with console.capture() as capture:
        console.print(table(run))
    terminalreporter.write_sep("=", "verdicts")
    terminalreporter.write(capture.get())
    root = config.rootpath
    for path in (root / "report/index.html", root / "report/junit.xml", run.path):
        terminalreporter.write_line(os.path.relpath(path, Path.cwd()))
    terminalreporter.write_line(f"again: pytest {shlex.join(config.invocation_params.args)} --seed {run.seed}")
