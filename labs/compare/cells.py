"""Two cells to be compared: made, verified to be as on record when a comparison goes on, and measured."""

from __future__ import annotations

import logging
import os
import platform
import random
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from labs import prepare
from labs.compare.boots import Boot, command_line, measured
from labs.compare.drive import run
from labs.compare.judge import ALPHA, Comparison
from labs.compare.measures import measures_of
from labs.compare.record import Asked, CompareRecord
from labs.compare.show import plot
from labs.errors import BadInput, KernelFailed, LabError
from labs.invariant.latency import EMULATED
from labs.matrix import Cell
from labs.prepare import Artifacts
from labs.provision.accel import VIRTUAL_TIME, qemu_version
from labs.report.record import replace_file
from labs.source.debian import Archive
from labs.store import Store, file_digest

log = logging.getLogger("labs")

Sides = dict[str, Artifacts]  # A and B


def begin(
    cells: Mapping[str, Cell],
    records: Path,
    suite: Path,
    *,
    only: Sequence[str] = (),
    boots: int = 10,
    bound: float = 0.05,
    alpha: float = ALPHA,
    virtual: bool | None = None,
    seed: int | None = None,
    parameters: Mapping[str, str] | None = None,
) -> tuple[CompareRecord, Sides]:
    """Make what both cells (A and B) need, and start a record. `virtual`: None is where there is no KVM."""
    measures = measures_of(suite, only)
    sides = _in_one_time(_made(cells), virtual)
    artifacts = {side: {**one.to_json(), "command_line": command_line(one, 0)} for side, one in sides.items()}
    drawn = random.randrange(1 << 24) if seed is None else seed
    asked = Asked(
        cells["A"].id, cells["B"].id, str(suite), measures, boots, bound, alpha, drawn, _setting(sides), artifacts,
        {side: asdict(cell) for side, cell in cells.items()}, dict(parameters or {}),
    )  # fmt: skip
    return CompareRecord.create(records, asked), sides


def resumed(path: Path) -> tuple[CompareRecord, Sides]:
    """An earlier comparison, to go on; BadInput when host, QEMU, accelerator, a kernel or the agent is another now."""
    record = CompareRecord(path)
    asked = record.asked()
    made = _made({side: Cell(**fields) for side, fields in asked.cells.items()})
    sides = _in_one_time(made, asked.setting["accelerator"] == VIRTUAL_TIME.name)
    for side, artifacts in sides.items():
        then, now = asked.artifacts[side], artifacts.to_json()
        for part in ("vmlinuz_sha256", "build_id"):
            if then["kernel"][part] != now["kernel"][part]:
                raise BadInput(f"side {side}: {part} is {now['kernel'][part]}", mend="start a new comparison")
        if then["agent_sha256"] != file_digest(artifacts.agent):
            raise BadInput("the agent has changed since", mend="start a new comparison")
    if _setting(sides) != asked.setting:
        raise BadInput(f"host, QEMU or accelerator is not as on record: {asked.setting}", mend="go on there")
    return record, sides


def go_on(record: CompareRecord, sides: Sides, whole: bool = False) -> Comparison:
    """Boot and measure until the comparison is done, or with `whole` until all rounds are; write decision and plot."""
    asked = record.asked()
    log.info("A %s, B %s, %s; seed %d", asked.a, asked.b, asked.setting["accelerator"], asked.seed)
    log.info("record: %s", record.path)

    def boot(side: str, seed: int, record: CompareRecord) -> tuple[Boot, str]:
        logs = record.logs()
        try:
            parameters = asked.parameters if side == "B" else {}
            return measured(sides[side], asked.measures, seed, logs, parameters), logs.name
        except KernelFailed as error:
            raise KernelFailed(f"side {side}: {error.what}", evidence=error.evidence) from None

    try:
        result = run(record, boot, whole)
    except BaseException:
        log.info("to go on: labs compare --resume %s", shlex.quote(str(record.path)))
        raise
    replace_file(record.path / "plot.svg", plot(result, f"{asked.b} against {asked.a}").encode())
    return result


def _made(cells: Mapping[str, Cell]) -> Sides:
    store = Store.of_user()
    archive = Archive(store)
    found = {side: prepare.find(cell, archive) for side, cell in cells.items()}
    return {side: prepare.prepare(one, store, archive) for side, one in found.items()}


def _in_one_time(sides: Sides, virtual: bool | None) -> Sides:
    """Both sides under one accelerator, or in virtual time where asked for, or where there is no other measure."""
    names = {artifacts.accelerator.name for artifacts in sides.values()}
    if virtual is None:
        virtual = bool(names & set(EMULATED))
        if virtual:
            log.info("no hardware virtualisation: measuring in virtual time")
    if not virtual and len(names) > 1:
        raise LabError(f"the two sides have different accelerators: {' and '.join(sorted(names))}")
    return {side: prepare.in_virtual_time(artifacts) if virtual else artifacts for side, artifacts in sides.items()}


def _setting(sides: Sides) -> dict[str, Any]:
    """All that must be equal in every boot of a comparison."""
    host = {"hostname": platform.node(), "kernel": platform.release(), "cpus": os.cpu_count() or 0}
    return {"accelerator": sides["A"].accelerator.name, "qemu": qemu_version(), "host": host}
