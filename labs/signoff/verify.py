"""Is sign-off.json what its evidence gives? Each byte, verdict and figure, and the decision, computed again."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labs.errors import BadInput, LabError
from labs.judged import Reader
from labs.report.record import CaseResult
from labs.report.session import source_digest
from labs.report.text import clean
from labs.signoff.document import NAME, document, files
from labs.signoff.evidence import CellEvidence, astray, gather
from labs.signoff.page import render
from labs.signoff.plan import FILE
from labs.signoff.reason import REFUSED, SIGNED, UNPROVEN
from labs.signoff.words import junit, markdown
from labs.store import file_digest
from labs.untrusted import read, reading

LIMIT = 32 << 20  # bytes of a sign-off.json
MOST = 50  # differences that are told


@dataclass(frozen=True)
class Verified:
    """What was compared. `differences` tell where and what; `unseen` are verdicts that nobody can compute again."""

    files: int
    verdicts: int
    differences: tuple[str, ...]
    unseen: tuple[str, ...]
    notes: tuple[str, ...]


def find_folder(path: Path, record: Path | None, name: str) -> Path:
    """Where the evidence of a sign-off.json is: what was named, or beside the file, or in records/."""
    with reading(f"{path}: its evidence is not found"):
        for folder in (record, path.parent, Path("records") / Path(name).name):
            if folder and (folder / FILE).is_file():
                return folder
    raise BadInput(f"{path}: its evidence is not beside it", mend="give --record FOLDER, which holds plan.json")


def load(path: Path) -> dict[str, Any]:
    """A sign-off.json as it stands; BadInput when it is none."""
    try:
        if path.is_dir():
            path = path / NAME
        made = json.loads(read(path.resolve(), LIMIT))
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}", mend="name a sign-off.json") from None
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path}: is no JSON: {error}") from None
    if not isinstance(made, dict) or made.get("decision") not in (SIGNED, UNPROVEN, REFUSED):
        raise BadInput(f"{path}: is no sign-off.json", mend="name the one that labs signoff has written")
    return made


def verify(claimed: Mapping[str, Any], folder: Path) -> Verified:
    """Compare a document with its evidence. Nothing that is wrong with the evidence raises: it is a difference."""
    signed_files = claimed.get("files")
    differences = astray(folder) or list(_files(signed_files, folder))  # what leads elsewhere is told, and never opened
    verdicts, unseen = 0, []
    try:
        with reading(str(folder)):
            for cell in gather(folder).cells:
                for result, said in _judged(cell):
                    verdicts += not said.startswith("?")
                    if said.startswith("?"):
                        unseen.append(f"{cell.id} {result.case}: {said[1:]}")
                    elif said:
                        differences.append(f"{cell.run}/{cell.id}: {result.case}: {said}")
            differences += differing(dict(claimed), document(folder), "")
    except LabError as error:
        differences.append(str(error))
    code = source_digest()
    asked = claimed.get("asked")
    signed = asked.get("test_code") if isinstance(asked, dict) else None
    notes = [] if signed == code else [f"judged by other code than signed with: {code} here, {signed} there"]
    told = (tuple(dict.fromkeys(map(clean, lines))) for lines in (differences, unseen, notes))
    return Verified(len(signed_files) if isinstance(signed_files, dict) else 0, verdicts, *told)


def renderings(path: Path, made: Mapping[str, Any], folder: Path) -> list[str]:
    """What people and CI read beside a sign-off.json, where it is other than that gives; one mailed alone has none."""
    digest = file_digest(path)
    again: dict[str, Callable[[], bytes]] = {
        "sign-off.html": lambda: render(made, digest, folder).encode(),
        "sign-off.md": lambda: markdown(made, digest).encode(),
        "junit.xml": lambda: junit(made),
    }
    return [told for name, make in again.items() if (told := _rendered(path.with_name(name), make, folder))]


def _rendered(path: Path, make: Callable[[], bytes], folder: Path) -> str:
    if not os.path.lexists(path):
        return f"{path.name}: the file is missing" if path.parent.resolve() == folder.resolve() else ""
    try:
        with reading(path.name):
            return "" if read(path, LIMIT) == make() else f"{path.name}: is not what the sign-off gives"
    except LabError as error:
        return str(error)


def _files(claimed: object, folder: Path) -> Iterator[str]:
    """Files that changed or are gone; new ones show in the comparison of the documents."""
    if not isinstance(claimed, dict):
        yield "files: not there"
        return
    found = dict(files(folder))
    for name, told in claimed.items():
        if name not in found:
            yield f"{name}: the file is missing"
        elif not isinstance(told, dict) or found[name]["sha256"] != told.get("sha256"):
            yield f"{name}: the file's bytes are not those that were signed"


def _judged(cell: CellEvidence) -> Iterator[tuple[CaseResult, str]]:
    """Each verdict of the cell's last word, with how it differs when judged again; '?' and why nobody can do that."""
    if cell.record is None:
        return
    reader = Reader(cell.record.path)
    for result in cell.results:
        if result.judged:
            yield result, _again(reader, result)
        elif result.outcome not in ("skip", "not-run"):
            yield result, f"?{result.outcome}, of which no raw evidence is kept"


def _again(reader: Reader, result: CaseResult) -> str:
    try:
        verdict = reader.judge(result.judged)
    except BadInput as error:
        return str(error)
    told = result.verdict.to_json() if result.verdict else None
    again = json.loads(json.dumps(verdict.to_json()))
    found = differing(json.loads(json.dumps(told)), again, "verdict")
    if not found and verdict.outcome != result.outcome:
        found = [f"outcome: {result.outcome}, the evidence gives {verdict.outcome}"]
    return "; ".join(found[:3])


def differing(claimed: Any, found: Any, where: str) -> list[str]:
    """Where two documents differ, by path, the deepest that can be told."""
    if isinstance(claimed, dict) and isinstance(found, dict):
        return [
            line
            for key in dict.fromkeys([*found, *claimed])
            for line in _member(claimed, found, key, f"{where}.{key}" if where else str(key))
        ]
    if isinstance(claimed, list) and isinstance(found, list) and len(claimed) == len(found):
        pairs = enumerate(zip(claimed, found, strict=True))
        return [line for at, (one, two) in pairs for line in differing(one, two, f"{where}[{at}]")]
    if isinstance(claimed, list) and isinstance(found, list):
        return [_lists(claimed, found, where)]
    if claimed == found and type(claimed) is type(found):
        return []
    return [f"{where}: says {_short(claimed)}, the evidence gives {_short(found)}"]


def _member(claimed: dict[str, Any], found: dict[str, Any], key: str, where: str) -> list[str]:
    if key not in claimed:
        return [f"{where}: is not in the document, the evidence gives {_short(found[key])}"]
    if key not in found:
        return [f"{where}: says {_short(claimed[key])}, the evidence has nothing of it"]
    return differing(claimed[key], found[key], where)


def _lists(claimed: list[Any], found: list[Any], where: str) -> str:
    missing = [_name(one) for one in found if one not in claimed]
    more = [_name(one) for one in claimed if one not in found]
    told = [f"without {', '.join(missing[:3])}" if missing else "", f"with {', '.join(more[:3])} more" if more else ""]
    said = " and ".join(filter(None, told)) or "one of them twice"
    return f"{where}: {len(claimed)} entries, the evidence gives {len(found)}: {said}"


def _name(one: Any) -> str:
    keys = ("id", "why", "case", "subject", "invariant") if isinstance(one, dict) else ()
    names = [str(one[key]) for key in keys if one.get(key)]
    return names[0] if names else _short(one)


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 100 else f"{text[:99]}…"
