"""The `labs prove` command: parses and calls, decides nothing."""

from __future__ import annotations

import json
import logging
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from labs import prepare
from labs.child import collect
from labs.commandline import show
from labs.errors import BadInput
from labs.matrix import DEFAULT_KERNEL, DEFAULT_RUNTIME
from labs.promise.families import FAMILIES
from labs.promise.faults import tallies
from labs.prove.boots import CLEAN, Boot, Log, Prover, planned
from labs.prove.defects import Defect, chosen, clean_cell, defects
from labs.prove.tally import against, clean, statuses
from labs.report.record import replace_file
from labs.report.session import source_digest
from labs.source.debian import Archive
from labs.store import NO_RECORDS, Store, usable

log = logging.getLogger("labs")
RECORDED = Path("suites/selftest/data/promises")
PLAN, RESULT = "plan.json", "prove.json"
EXIT = {"proven": 0, "not judged": 4, "unproven": 4, "alarmed": 1}


@click.command("prove")
@click.option("--kernel", default=DEFAULT_KERNEL, show_default=True, help="Built, with and without each defect.")
@click.option("--runtime", default=DEFAULT_RUNTIME, show_default=True)
@click.option("--boots", type=click.IntRange(0, 1000), default=20, show_default=True, help="Of each planted defect.")
@click.option(
    "--clean",
    "clean_boots",
    type=click.IntRange(1, 1000),
    default=50,
    show_default=True,
    help="Boots in which nothing is planted: false alarms are counted there.",
)
@click.option("--defect", "names", multiple=True, metavar="NAME", help="Only this one; repeats.")
@click.option("--seed", type=int, default=1, show_default=True, help="Of the first boot; each next one has the next.")
@click.option("--full", is_flag=True, help="The large sizes.")
@click.option("--record", "records", type=click.Path(path_type=Path), default=Path("records"), show_default=True)
@click.option("--resume", type=click.Path(path_type=Path), metavar="DIR", help="Go on with an earlier proof.")
@click.option("--list", "list_", is_flag=True, help="Only list what has a planted defect or recorded faults.")
@click.option("--json", "as_json", is_flag=True, help="One JSON array on standard output, nothing else.")
@click.argument("suites", nargs=-1, metavar="SUITE...")
def prove(suites: Sequence[str], resume: Path | None, list_: bool, as_json: bool, **given: Any) -> None:
    """Boot every planted defect again and again: each invariant must fail on its own defect, and hold without it.

    Exit 0: every invariant is proven by each of its defects; 4: one is missed, or there is none; 1: one failed with
    nothing planted, or with its defect off; 3: boots without a word.

    Example: labs prove suites/cgroup_atomicity --boots 5 --clean 5
    """
    archive = Archive(Store.of_user())
    plan = _plan(resume) if resume else {**given, "suites": list(suites), "records": str(given["records"])}
    found, left_out = defects(plan["kernel"], plan["runtime"], archive)
    found = chosen(found, plan["names"])
    if list_:
        show(_listed(found, left_out), as_json)
        return
    if not plan["suites"]:
        raise click.UsageError("a suite is needed, as suites/cgroup_atomicity")
    cell = clean_cell(plan["kernel"], plan["runtime"])
    prepare.find(cell, archive)
    cases = collect(plan["suites"], cell)
    folder = resume or usable(Path(plan["records"]), NO_RECORDS) / f"prove-{datetime.now(UTC):%Y%m%dT%H%M%S.%f}Z"
    if not resume:
        replace_file(folder / PLAN, json.dumps({**plan, "source": source_digest()}, indent=1).encode())
    prover = Prover(folder.absolute(), tuple(plan["suites"]), cell, cases, ("--full",) if plan["full"] else ())
    log.info("record: %s", folder)
    try:
        boots = _boots(prover, found, plan, Log.open(folder))
    except BaseException:
        log.info("to go on: labs prove --resume %s", shlex.quote(str(folder)))
        raise
    nowhere = {
        one.name: f"no case of the suite judges: {'; '.join(one.breaks)}" for one in found if not judging(one, boots)
    }
    told = [one for one in found if one.name not in nowhere]
    sys.exit(_told(folder, told, boots, left_out | nowhere, as_json))


def _listed(found: Sequence[Defect], left_out: dict[str, str]) -> list[dict[str, Any]]:
    """A row for each invariant that something makes fail, then one for each defect that is left out."""
    recorded = _recorded()
    names = dict.fromkeys([*recorded, *(name for one in found for name in one.breaks)])
    rows = []
    for name in names:
        planted, caught = recorded.get(name, (0, 0))
        by = [one.name for one in found if name in one.breaks]
        faults = f"{caught} of {planted} caught" if planted else ""
        rows.append({"invariant": name, "recorded faults": faults, "planted defects": ", ".join(by)})
    return rows + [
        {"invariant": "-", "recorded faults": "", "planted defects": f"{name} is left out: {why}"}
        for name, why in left_out.items()
    ]


def _plan(folder: Path) -> dict[str, Any]:
    try:
        plan: dict[str, Any] = json.loads((folder / PLAN).read_bytes())
    except (OSError, ValueError):
        raise BadInput(f"{folder} is no record of a proof", mend="name a folder that labs prove made") from None
    if plan["source"] != source_digest():
        raise BadInput(f"{folder}: the lab or its suites have changed since", mend="begin a new proof")
    return plan


def _boots(prover: Prover, found: Sequence[Defect], plan: dict[str, Any], done: Log) -> list[Boot]:
    """Make every boot that is not on record yet; the first clean one tells which cases judge which invariant."""
    cells = {(CLEAN, False): prover.clean} | {(one.name, True): one.cell for one in found}
    cells |= {(one.name, False): one.off for one in found if one.off}
    wanted = list(planned(found, plan["boots"], plan["clean_boots"], plan["seed"]))
    made, by_name = {boot.key for boot in done.boots}, {one.name: one for one in found}
    for number, boot in enumerate(wanted, 1):
        if boot.key in made:
            continue
        cell = cells[boot.defect, boot.on]
        names = judging(by_name[boot.defect], done.boots) if boot.defect else frozenset()
        if boot.defect and not names:
            continue  # another suite's
        nodes = [case.node_in(cell.id) for case in prover.cases if case.name in names] if names else list(prover.suites)
        told = prover.boot(boot, cell, nodes)
        done.add(told)
        log.info("boot %d of %d: %s: %s [%.0f s]", number, len(wanted), cell.id, _words(told), told.seconds)
    return done.boots


def judging(defect: Defect, boots: Sequence[Boot]) -> frozenset[str]:
    """The cases that judge what the defect breaks, by what clean boots said."""
    clean = (sight for boot in boots if boot.defect == CLEAN for sight in boot.sights)
    return frozenset(sight.case for sight in clean if sight.invariant in defect.breaks)


def _words(boot: Boot) -> str:
    if boot.trouble:
        return f"says nothing after {boot.attempts} attempts: {boot.trouble}"
    failed = dict.fromkeys(sight.invariant for sight in boot.sights if sight.outcome in ("fail", "known"))
    tried = f" (attempt {boot.attempts})" if boot.attempts > 1 else ""
    return f"{len(boot.sights)} cases, broken: {', '.join(failed) or 'none'}{tried}"


def _recorded() -> dict[str, tuple[int, int]]:
    """Promise -> faults planted into its recorded outcomes, and those that were caught."""
    told = {}
    for family, promises in FAMILIES.items():
        path = RECORDED / f"{family}.json"
        for tally in tallies(promises, json.loads(path.read_text()) if path.exists() else {}):
            told[tally.promise] = (tally.planted, tally.caught)
    return told


def _told(folder: Path, found: Sequence[Defect], boots: list[Boot], left_out: dict[str, str], as_json: bool) -> int:
    rows = [row for defect in found for row in against(defect, boots)]
    cleans = clean(boots)
    told = statuses(cleans, rows, _recorded())
    mute = [boot for boot in boots if boot.trouble]
    result = {
        "defects": [{**asdict(row), "proven": row.proven} for row in rows],
        "clean": [asdict(one) for one in cleans],
        "invariants": [asdict(one) for one in told],
        "left_out": left_out,
        "without a word": [asdict(boot) for boot in mute],
        "attempts": sum(boot.attempts for boot in boots),
    }
    replace_file(folder / RESULT, json.dumps(result, indent=1).encode())
    if as_json:
        print(json.dumps([result], indent=1))
    else:
        _tables(result, boots)
    worst = max((EXIT[one.status] for one in told), key=[0, 4, 3, 1].index, default=3)
    return 3 if mute and worst != 1 else worst


def _tables(result: dict[str, Any], boots: Sequence[Boot]) -> None:
    show([_shown(row) for row in result["defects"]], as_json=False)
    few = [
        {name: "; ".join(value) if name in ("by", "missed") else value for name, value in one.items()}
        for one in result["invariants"]
        if one["status"] != "proven"
    ]
    show(few or [{"invariant": "all", "status": "proven"}], as_json=False)
    for one in result["clean"]:
        for reason in one["reasons"]:
            print(f"false alarm: {one['invariant']}: {reason}")
    count = sum(boot.defect == CLEAN and not boot.trouble for boot in boots)
    alarmed = sum(1 for boot in boots if boot.defect == CLEAN and any(s.outcome == "fail" for s in boot.sights))
    proven = sum(one["status"] == "proven" for one in result["invariants"])
    print(f"{proven} of {len(result['invariants'])} invariants proven")
    print(f"{alarmed} of {count} clean boots with a false alarm")
    print(f"{result['attempts']} boots made for {len(boots)} wanted; {len(result['without a word'])} say nothing")
    for name, why in result["left_out"].items():
        print(f"left out: {name}: {why}")


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    rate = f"{row['caught']} of {row['boots']}"
    return {
        "defect": row["defect"],
        "invariant": row["invariant"] or "any of these",
        "caught": rate,
        "95 % interval": f"{row['low']:.2f} to {row['high']:.2f}",
        "median seconds": f"{row['seconds']:.3f}" if row["caught"] else "",
        "median operations": f"{row['operations']:.0f}" if row["caught"] else "",
        "with it off": f"{row['alarms']} of {row['off']}" if row["off"] else "",
    }
