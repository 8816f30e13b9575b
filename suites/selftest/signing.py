"""A sign-off's folder without guests: plan, patches, and cells whose verdicts real judges gave over real evidence."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from labs import judged
from labs.compare.boots import Boot
from labs.compare.drive import run
from labs.compare.record import Asked, CompareRecord
from labs.console import scan
from labs.errors import KernelFailed
from labs.executed import FILE, IDLE, RUN, UNSEEN, Function
from labs.invariant.atomicity import linearizable, no_lost_update
from labs.invariant.kernel_health import quiet_kernel
from labs.invariant.latency import latency
from labs.invariant.verdict import Verdict
from labs.matrix import Cell
from labs.probe.history import History, Register
from labs.probe.samples import Measure, Samples
from labs.prove import boots as proving
from labs.prove.boots import Sight
from labs.report.record import CaseResult, Run
from labs.series import read
from labs.signoff.evidence import place
from labs.signoff.plan import BASE, CONTROL, EXTRA, PATCHED, PatchFile, Plan, Planned, patch_id
from labs.signoff.verify import differing
from labs.store import file_digest
from suites.selftest.histories import Op, atomic_register, with_tail

FILES = ("cpu.max", "cpu.max.burst")
CONTEXT = judged.Context(FILES, (6, 1, 192), "2027-01-01", ())
PATCH = """\
From: A <a@b>
Subject: sched: <b>Keep</b> both

Why.
---
--- a/kernel/sched/core.c
+++ b/kernel/sched/core.c
@@ -1,1 +1,1 @@
-	old();
+	new();
"""
(PATCH_ID,) = (series.id for series in read("-", io.BytesIO(PATCH.encode())))
LOST = 12  # writes of a broken cell: more than chance
HOST = {"hostname": "h", "cpus": 2, "test_code": "code"}
OOPS = "[    9.000000] BUG: kernel NULL pointer dereference, address: 0000000000000000\n"


def registers(seed: int, broken: bool) -> tuple[Register, ...]:
    """Two files of a group; broken: what was read is torn, and a write is gone when its writer looks."""
    made = [atomic_register(seed + at, path=f"/lab/{name}", writers=1, readers=1) for at, name in enumerate(FILES)]
    if broken:
        pair = (("write", "1000000 2000000", 0), ("read", "1000000 2000001", 20))
        ops = [Op(0, kind, text, at + 40 * n, at + 40 * n + 10) for n in range(LOST) for kind, text, at in pair]
        made[0] = with_tail(made[0], ops, after=int(made[1].operations["end"].max()))
    return tuple(made)


@dataclass
class CellSpec:
    """What one cell's guest does: whether it violates, complains, tells another kernel, runs the changed functions."""

    purpose: str
    broken: bool = False
    oops: bool = False
    build_id: str = "aa" * 20
    functions: Sequence[Function] = ()
    breaks: tuple[str, ...] = ()
    role: str = ""
    outcomes: dict[str, CaseResult] = field(default_factory=dict)  # cases that are other than the evidence gives


FUNCTIONS = (
    Function(1, "kernel/sched/core.c", "cpu_max_write", RUN, "alone.linearizable[bandwidth]"),
    Function(1, "kernel/sched/core.c", "tg_get_cfs_bandwidth", UNSEEN),
)
NEVER_RUN = Function(1, "kernel/sched/core.c", "cpu_cfs_quota_write_s64", IDLE)


def specs() -> dict[str, CellSpec]:
    """A series that does what it says."""
    return {
        "base": CellSpec(BASE, broken=True, build_id="bb" * 20),
        "patched": CellSpec(PATCHED, functions=FUNCTIONS),
        "off": CellSpec(CONTROL, role="off", breaks=("no lost update",)),
        "on": CellSpec(CONTROL, role="patched", breaks=("no lost update",), broken=True),
    }


def write(folder: Path, cells: dict[str, CellSpec], **changes: Any) -> Path:
    """Make the folder of a sign-off with these cells; `changes` are fields of its plan."""
    folder.mkdir()
    (folder / "patches").mkdir()
    patch = folder / "patches/0001.patch"
    patch.write_text(PATCH)
    kept = PatchFile("6.1", "x", "sched: <b>Keep</b> both", patch_id(patch), file_digest(patch), "patches/0001.patch")
    planned = tuple(
        Planned(f"6.1_runc_{name}", _cell(spec), spec.purpose, ("suites/x",), spec.breaks)
        for name, spec in cells.items()
    )
    plan = Plan(
        folder=folder.name,
        series="patches/kernel/x",
        name="x",
        title="cpu.max keeps writes",
        intent="fix",
        components=("kernel",),
        mends=("no lost update", "cpu-max-burst-lost-update"),
        suites=("suites/x",),
        seed=7,
        started="2027-01-01T00:00:00+00:00",
        command=("signoff", "--series", "patches/kernel/x"),
        test_code="code",
        tester="A Person <a@example.org>",
        full=False,
        bound=0.05,
        patches=(kept,),
        cells=planned,
    )
    replace(plan, **changes).save(folder)
    for number, (one, spec) in enumerate(zip(planned, cells.values(), strict=True), 1):
        record(folder / place(number, one), one, spec)
    return folder


def _cell(spec: CellSpec) -> Cell:
    series = "patches/kernel/defect" if spec.purpose == CONTROL else "patches/kernel/x"
    return Cell("6.1", "runc", series=series, role=spec.role or spec.purpose)


@mock.patch("os.fsync")  # three quarters of the time, and nothing that is looked at here
def record(folder: Path, planned: Planned, spec: CellSpec, _: object = None) -> None:
    folder.mkdir(parents=True)
    verdicts = _verdicts(spec)
    made = Run.create(folder, {planned.id: list(verdicts)}, HOST, ["pytest", "x"], 7)
    cell = made.cell(planned.id)
    cell.write_facts(
        {
            "release": "6.1.192",
            "build_id": spec.build_id,
            "accelerator": "tcg",
            "runtime": {"name": "runc", "version": "1.1.5", "sha256": "cc" * 32},
            "qemu_arguments": ["qemu-system-x86_64", "-nodefaults"],
            **({"series": {"name": "x", "patch_id": PATCH_ID}} if spec.purpose in (PATCHED, EXTRA) else {}),
        }
    )
    cell.write_artifacts({"kernel": {"version": "6.1.192-3", "config_sha256": "ee" * 32}, "qemu": "QEMU 7.2"})
    boot = cell.new_boot()
    (boot / "console.log").write_text("[    0.000000] Linux version 6.1.192\n" + (OOPS if spec.oops else ""))
    cell.link_console(boot)
    if spec.functions:
        (boot / FILE).write_text(json.dumps([asdict(one) for one in spec.functions]))
    path = cell.history_path("alone")
    History(verdicts["alone.linearizable[bandwidth]"][1], 1.0, 2).save(path)
    saved = str(path.relative_to(cell.path))
    for case, (verdict, _) in verdicts.items():
        assert verdict.call
        context = CONTEXT if spec.purpose != CONTROL else judged.Context()  # what is planted is in no table
        name = judged.save(verdict.call, context, cell.path, case, saved)
        told = context.explained(verdict)
        result = CaseResult(case, told.outcome, told, 1.0, told.reason, histories=(saved,), judged=name)
        cell.add(spec.outcomes.get(case, result))


def _verdicts(spec: CellSpec) -> dict[str, tuple[Verdict, tuple[Register, ...]]]:
    made = registers(5, spec.broken)
    console = "[    0.000000] Linux version 6.1.192\n" + (OOPS if spec.oops else "")
    return {
        "alone.linearizable[bandwidth]": (linearizable(made), made),
        "alone.no_lost_update[bandwidth]": (no_lost_update(made, minimum_overlaps=1), made),
        "alone.write_latency[cpu.max]": (latency("cpu.max write", [1, 2, 3], "tcg", 5), ()),
        "quiet.quiet_kernel": (quiet_kernel(scan(console), seconds=1.0, lines=10), ()),
    }


def told(claimed: dict[str, Any], found: dict[str, Any]) -> list[str]:
    """How a document differs from what its evidence gives."""
    return differing(claimed, found, "")


COLUMN = np.arange(1000, 1200, dtype="<u4")


def compare(folder: Path, slower: float = 1.0, boots: int = 10, fails: str = "") -> Path:
    """A comparison of the base and patched cells in a sign-off's folder, with boots that are made up; its record.
    `fails`: the side whose kernel fails in one boot, before all goes on.
    """
    setting = {"accelerator": "icount", "qemu": "QEMU 7.2", "host": {}}
    measure = Measure("cpu-max", "cpu.max", 200, 0)
    artifacts = {"A": {"kernel": {"build_id": "bb" * 20}}, "B": {"kernel": {"build_id": "aa" * 20}}}
    asked = Asked("6.1_runc_base", "6.1_runc_patched", "x", (measure,), boots, 0.05, 0.05, 1, setting, artifacts, {})
    record = CompareRecord.create(folder / "latency/6.1_runc_patched", asked)

    def boot(side: str, seed: int, record: CompareRecord) -> tuple[Boot, str]:
        taken = COLUMN * (slower if side == "B" else 1.0) + seed % 7
        return Boot(Samples({"cpu-max": taken.astype("<u4")}), "", {}), record.logs().name

    def failing(side: str, seed: int, record: CompareRecord) -> tuple[Boot, str]:
        if side == fails:
            raise KernelFailed(f"side {side}: kernel failed: BUG: planted")
        return boot(side, seed, record)

    with mock.patch("os.fsync"):
        if fails:
            with contextlib.suppress(KernelFailed):
                run(record, failing)
        run(record, boot)
    return record.path


def proof(
    folder: Path,
    caught: int = 20,
    *,
    boots: int = 20,
    off: Sequence[str] = (),
    clean: Sequence[str] = ("pass",) * 20,
    **asked: str,
) -> None:
    """What labs prove leaves, of one defect: caught in so many of its boots, and the outcomes of those without it."""

    def boot(defect: str, number: int, outcome: str, on: bool = False) -> str:
        sight = Sight("c", "new invariant", outcome, "", 1, 1)
        return json.dumps(asdict(proving.Boot(defect, on, number, number, sights=(sight,)))) + "\n"

    lines = [boot("d", number, "fail" if number < caught else "pass", on=True) for number in range(boots)]
    lines += [boot("d", number, outcome) for number, outcome in enumerate(off)]
    lines += [boot("", number, outcome) for number, outcome in enumerate(clean)]
    row = {"invariant": "new invariant", "defect": "d", "boots": boots, "alarms": 0}
    (folder / "proof").mkdir()
    (folder / "proof/prove.json").write_text(json.dumps({"defects": [row, {**row, "invariant": ""}]}))
    (folder / "proof/plan.json").write_text(json.dumps({"source": "code", "kernel": "6.1", "runtime": "runc", **asked}))
    (folder / "proof/boots.jsonl").write_text("".join(lines))
