"""`labs signoff`, `labs verify`: parse, call, print."""

from __future__ import annotations

import logging
import random
import secrets
import shlex
import shutil
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import click

from labs import matrix, prepare
from labs.compare.ask import Bound
from labs.errors import BadInput
from labs.git import user
from labs.matrix import Cell
from labs.prove.boots import LOG
from labs.report.record import replace_file
from labs.report.session import source_digest
from labs.signoff import cells, signature
from labs.signoff.controls import ASKED, PROOF, RESULT, proven
from labs.signoff.document import NAME, Document, document, encoded
from labs.signoff.page import write_page
from labs.signoff.plan import SUITES, Plan, copy_patches, planned
from labs.signoff.reason import REFUSED, SIGNED, UNPROVEN
from labs.signoff.verify import MOST, find_folder, load, renderings, verify
from labs.signoff.words import write_words
from labs.source.debian import Archive
from labs.store import NO_RECORDS, Store, file_digest, usable

log = logging.getLogger("labs")

a_path = click.Path(path_type=Path)
EXIT = {SIGNED: 0, REFUSED: 1, UNPROVEN: 4}


@click.command()
@click.option("--series", required=True, help="patches/kernel/x, A+B, an mbox, ...")
@click.option("--kernel", "kernels", multiple=True, help="6.1, 6.12.57, tree:PATH, git:REPO#REV; repeats.")
@click.option("--runtime", "runtimes", multiple=True, help="runc, crun, runc@1.1.15; repeats.")
@click.option("--suite", "suites", multiple=True, metavar="PATH", help=f"Repeats; default: {' '.join(SUITES)}.")
@click.option("--record", "records", type=a_path, default=Path("records"), show_default=True, metavar="DIR")
@click.option("-o", "--output", type=a_path, metavar="DIR", help="A copy of the four files goes there.")
@click.option("--resume", type=a_path, metavar="FOLDER", help="Go on in a sign-off's folder; cells that ran stay.")
@click.option("--seed", type=int, help="Of all random choices; default: drawn, and told.")
@click.option("--full", is_flag=True, help="The large sizes, in base and patched cells.")
@click.option("--bound", type=Bound(), default="5%", show_default=True, help="A slowdown that is not minded.")
@click.option("--proof", type=a_path, metavar="FOLDER", help="A record of labs prove, made with the same code.")
@click.option("--sign", "key", type=a_path, metavar="KEY", help="Sign sign-off.json with this SSH key.")
def signoff(
    series: str,
    kernels: Sequence[str],
    runtimes: Sequence[str],
    suites: Sequence[str],
    records: Path,
    output: Path | None,
    resume: Path | None,
    seed: int | None,
    full: bool,
    bound: float,
    proof: Path | None,
    key: Path | None,
) -> None:
    """Run base, patched and defect cells of a series, and decide: signed, refused (exit 1) or not proven (exit 4).

    Writes sign-off.html, .md, .json and junit.xml beside the evidence, and prints trailers for the commit.

    Example: labs signoff --series patches/kernel/cpu-max-atomic --kernel 6.1 -o sign-off
    """
    if key:
        signature.known(key)
    if proof and (lost := [name for name in (RESULT, ASKED, LOG) if not (proof / name).is_file()]):
        raise BadInput(f"{proof}: has no {lost[0]}", mend="give --proof a folder that labs prove has made")
    if output:
        usable(output, "name another folder with -o")
    for suite in suites:
        if not Path(suite).exists():
            raise BadInput(f"{suite}: no such suite", mend=f"as {SUITES[0]}")
    archive = Archive(Store.of_user())
    if resume:
        folder, plan = resume, resumed(resume, series)
    else:
        drawn = random.randrange(1 << 24) if seed is None else seed
        chosen = matrix.cells(kernels, runtimes, series=[series])
        for cell in chosen:
            prepare.find(cell, archive)  # a name that points nowhere is refused before anything runs
        folder = _fresh(records, chosen[0])
        plan = planned(folder.name, series, chosen, suites or SUITES, drawn, sys.argv[1:], user(), full, bound)
        plan = copy_patches(plan, folder, archive)
        if proof:
            take_proof(proof, folder)
    log.info("record: %s", folder)
    try:
        cells.run(plan, folder, archive)
    except BaseException:
        log.info("to go on: labs signoff --series %s --resume %s", shlex.quote(series), shlex.quote(str(folder)))
        raise
    made = write(folder)
    show(made, folder)  # first: what comes may fail, as on a full disk
    if key:
        signature.sign(folder / NAME, key)
    if output:
        copy(folder, output)
    sys.exit(EXIT[made["decision"]])


def resumed(folder: Path, series: str) -> Plan:
    """The plan to go on with; BadInput where what would be added cannot be compared with what is there."""
    plan = Plan.load(folder)
    if plan.series != series:
        raise BadInput(f"{folder} is a sign-off of {plan.series}, not of {series}", mend="leave out --resume")
    if plan.test_code != source_digest():
        raise BadInput(f"the lab or its suites have changed since {folder} was begun", mend="leave out --resume")
    return plan


def _fresh(records: Path, cell: Cell) -> Path:
    name = cell.id.rpartition("_")[2].rpartition(".")[0]  # the series, as ids have it: fit for a file name
    now = datetime.now(UTC)
    folder = usable(records, NO_RECORDS) / f"signoff-{name}-{now:%Y%m%dT%H%M%SZ}-{secrets.token_hex(2)}"
    folder.mkdir()
    return folder


def take_proof(proof: Path, folder: Path) -> None:
    """Copy what is judged of a proof; its boots' own records stay where they are."""
    (folder / PROOF).mkdir()
    for name in (RESULT, ASKED, LOG):
        shutil.copyfile(proof / name, folder / PROOF / name)
    proven(folder, ())


def write(folder: Path) -> Document:
    """Decide on a folder, and write what people and machines read."""
    made = document(folder)
    path = folder / NAME
    replace_file(path, encoded(made))
    digest = file_digest(path)
    write_words(made, digest, folder)
    write_page(made, digest, folder, folder / "sign-off.html")
    signature.signature_of(path).unlink(missing_ok=True)
    return made


def copy(folder: Path, output: Path) -> None:
    output.mkdir(parents=True, exist_ok=True)
    for name in (NAME, f"{NAME}.sig", "sign-off.html", "sign-off.md", "junit.xml"):
        if (folder / name).exists():
            shutil.copyfile(folder / name, output / name)


def show(made: Document, folder: Path) -> None:
    print(f"{made['decision']}: {made['series']['name']}")
    for one in made["reasons"]:
        where = ", ".join(filter(None, (one["rule"], one["cell"], one["case"])))
        print(f"  {one['weight']} ({where}): {one['why']}")
    for one in made["notes"]:
        print(f"  note ({one['rule']}): {one['why']}")
    print(folder / NAME)
    for line in made["trailers"]:
        print(line)


@click.command("verify")
@click.argument("path", type=a_path, metavar="sign-off.json")
@click.option("--record", type=a_path, metavar="FOLDER", help="The sign-off's folder of evidence, if not beside it.")
@click.option("--key", type=a_path, metavar="PUBLIC", help="It must be signed with the private half of this key.")
def verify_(path: Path, record: Path | None, key: Path | None) -> None:
    """Compute every verdict, figure and the decision again from the evidence, and then what stands beside
    sign-off.json for people and CI. Exit 1 where anything differs.

    Needs no guest and no network.

    Example: labs verify sign-off/sign-off.json --key ~/.ssh/id_ed25519.pub
    """
    path = path / NAME if path.is_dir() else path
    made = load(path)
    folder = find_folder(path, record, _evidence(made))
    found = verify(made, folder)
    differences = [*_signature(path, key), *(found.differences or renderings(path, made, folder))]
    for line in differences[:MOST]:
        print(line)
    if len(differences) > MOST:
        print(f"and {len(differences) - MOST} more")
    for line in (*found.unseen, *found.notes):
        log.info("%s", line)
    told = f"{found.files} files, {found.verdicts} verdicts judged again, {len(found.unseen)} without raw evidence"
    print(f"{'differs' if differences else 'verified'}: {made['decision']}; {told}")
    sys.exit(1 if differences else 0)


def _evidence(made: Document) -> str:
    """The name of the folder that a document is of."""
    asked = made.get("asked")
    return str(asked.get("folder", "")) if isinstance(asked, dict) else ""


def _signature(path: Path, key: Path | None) -> list[str]:
    """What is wrong with the signature; nothing where there is none, and none was asked for."""
    if not signature.signature_of(path).exists():
        return [f"{path.name}: is not signed"] if key else []
    try:
        log.info("signed with %s", signature.signer(path))
        if key:
            signature.signed_by(path, key)
    except BadInput as error:
        return [str(error)]
    return []
