"""Evidence -> sign-off.json: all that the decision rests on, in a form that anybody can compute again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from labs.errors import BadInput
from labs.report.record import CaseResult
from labs.report.text import clean, identity
from labs.series.identity import series_id
from labs.signoff.controls import controls
from labs.signoff.evidence import CellEvidence, Evidence, gather
from labs.signoff.latency import compared
from labs.signoff.plan import PATCHED, PatchFile, Plan, patch_id
from labs.signoff.rates import shares
from labs.signoff.reason import SIGNED, Reason, decision
from labs.signoff.rules import RULES, judge
from labs.store import file_digest
from labs.untrusted import LINES, inside, read, reading

NAME = "sign-off.json"
FORMAT = 1
WRITTEN = (
    NAME,
    f"{NAME}.sig",
    "sign-off.html",
    "sign-off.md",
    "junit.xml",
)  # made from the evidence, and no part of it
ASKED = ("folder", "command", "suites", "seed", "started", "test_code", "tester", "full", "bound")
Document = dict[str, Any]


def document(folder: Path) -> Document:
    """The document of a sign-off's folder; BadInput where that is malformed. Equal folders give equal documents."""
    evidence = gather(folder)
    plan, found = evidence.plan, controls(evidence)
    reasons, notes = judge(evidence, found)
    decided = decision(reasons)
    made = {
        "format": FORMAT,
        "decision": decided,
        "reasons": [asdict(one) for one in reasons],
        "missing": [cell.id for cell in evidence.cells if cell.record is None],
        "notes": [asdict(one) for one in notes],
        "rules": [_rule(name, function.__doc__ or "", reasons) for name, function in RULES.items()],
        "series": _series(plan, folder),
        "asked": {name: getattr(plan, name) for name in ASKED},
        "hosts": _hosts(evidence),
        "cells": [_cell(cell) for cell in evidence.cells],
        "controls": [asdict(one) | {"proven": one.proven} for one in found],
        "latency": [one.told for one in compared(folder)],
        "shares": [asdict(one) for one in shares(evidence)],
        "trailers": trailers(evidence, decided),
        "files": dict(files(folder)),
    }
    plain: Document = json.loads(json.dumps(made))
    return plain


def encoded(made: Document) -> bytes:
    return json.dumps(made, indent=1, ensure_ascii=True).encode() + b"\n"


def _rule(name: str, says: str, reasons: list[Reason]) -> dict[str, Any]:
    against = [one for one in reasons if one.rule == name]
    return {"rule": name, "asks": says.split("\n")[0].strip(), "outcome": "held" if not against else decision(against)}


def _series(plan: Plan, folder: Path) -> dict[str, Any]:
    patches = [asdict(one) | _read_again(one, folder) for one in plan.patches]
    kernels = dict.fromkeys(one.kernel for one in plan.patches)
    return {
        "asked": plan.series,
        "name": plan.name,
        "title": plan.title,
        "intent": plan.intent,
        "components": plan.components,
        "mends": plan.mends,
        "ids": {kernel: series_id(p["patch_id"] for p in patches if p["kernel"] == kernel) for kernel in kernels},
        "patches": patches,
    }


def _read_again(one: PatchFile, folder: Path) -> dict[str, str]:
    """Patch-id and digest from the bytes that are in the folder; empty where they are no patch of it."""
    try:
        path = inside(folder, one.file)
        with reading(one.file):
            return {"sha256": hashlib.sha256(read(path, LINES)).hexdigest(), "patch_id": patch_id(path)}
    except BadInput:
        return {"patch_id": "", "sha256": ""}


def _hosts(evidence: Evidence) -> list[dict[str, Any]]:
    hosts = [cell.record.run.host for cell in evidence.cells if cell.record]
    return [host for number, host in enumerate(hosts) if host not in hosts[:number]]


def _cell(cell: CellEvidence) -> dict[str, Any]:
    run = cell.record.run if cell.record else None
    return {
        "id": cell.id,
        "purpose": cell.planned.purpose,
        "asked": asdict(cell.planned.cell),
        "breaks": cell.planned.breaks,
        "record": cell.run,
        "trouble": cell.trouble,
        "identity": identity(cell.facts),
        "facts": cell.facts,
        "artifacts": cell.artifacts,
        "seed": run.seed if run else None,
        "started": run.started if run else "",
        "command": run.command if run else (),
        "functions": [asdict(one) for one in cell.functions],
        "cases": [_case(result) for result in cell.results],
    }


def _case(result: CaseResult) -> dict[str, Any]:
    return result.to_json() | {"earlier": result.earlier}


def files(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every file of the evidence by its name, with its digest and size."""
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_file() and not path.is_symlink() and name not in WRITTEN and path.name != ".lock":
            yield name, {"sha256": file_digest(path), "bytes": path.stat().st_size}


def trailers(evidence: Evidence, decided: str) -> list[str]:
    """Lines for the commit's message: what was tested, by its build-ids, and what came of it."""
    lines = [f"Tested-by: {evidence.plan.tester}"] if evidence.plan.tester and decided == SIGNED else []
    for cell in evidence.having(PATCHED):
        told = identity(cell.facts)
        what = [f"kernel {told.get('kernel-release', '?')} build-id {told.get('build-id', '?')}"]
        what.append(
            f"{told.get('runtime', '?')} {told.get('runtime-version', '?')} {told.get('runtime-digest', '')[:16]}"
        )
        what.append(f"patch-id {told.get('series-patch-id', '?')}")
        lines.append(
            clean(f"Lab-{decided.title().replace(' ', '-')}: {', '.join(what)}, {told.get('accelerator', '?')}")
        )
    return lines
