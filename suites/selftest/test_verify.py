"""Verify computes a sign-off again: it agrees with what was signed, and says where anything is other than that."""

from __future__ import annotations

import copy
import json
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from labs.errors import BadInput
from labs.signoff import signature
from labs.signoff.command import copy as copy_files
from labs.signoff.command import verify_, write
from labs.signoff.document import NAME, document
from labs.signoff.verify import find_folder, load, verify
from suites.selftest import signing
from suites.selftest.signing import specs

SCHEMA = Path(__file__).parents[2] / "labs/signoff/sign-off.schema.json"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole sign-off, with the files that people read."""
    folder = signing.write(tmp_path_factory.mktemp("signoff") / "signoff-x", specs())
    signing.compare(folder, boots=2)  # too few to tell
    write(folder)
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    """A copy, elsewhere and under another name."""
    return Path(shutil.copytree(made, tmp_path / "elsewhere", symlinks=True))


def differences(folder: Path) -> list[str]:
    return list(verify(load(folder / NAME), folder).differences)


def test_what_was_signed_is_what_the_evidence_gives(folder: Path) -> None:
    found = verify(load(folder / NAME), folder)
    assert found.differences == ()
    assert (found.verdicts, found.unseen) == (16, ())
    assert document(folder) == load(folder / NAME)


def change(path: Path) -> None:
    """One bit of a byte in the middle."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


RAW = ("*.npz", "*.json.gz", "console.log", "verdicts.jsonl", "cell.json", "artifacts.json", "executed.json", "*.patch")


@pytest.mark.parametrize("kind", [*RAW, "run.json", "plan.json"])
def test_a_changed_byte_is_told_with_its_file(folder: Path, kind: str) -> None:
    path = next(one for one in sorted(folder.rglob(kind)) if not one.is_symlink())
    change(path)
    told = differences(folder)
    assert any(line.startswith(f"{path.relative_to(folder)}: the file's bytes") for line in told), told


@pytest.mark.parametrize("kind", RAW)
def test_a_missing_file_is_told(folder: Path, kind: str) -> None:
    path = next(one for one in sorted(folder.rglob(kind)) if not one.is_symlink())
    path.unlink()
    assert f"{path.relative_to(folder)}: the file is missing" in differences(folder)


def test_a_file_that_was_not_there_is_told(folder: Path) -> None:
    (folder / "patches/0002.patch").write_text("x")
    assert any(line.startswith("files.patches/0002.patch: is not in the document") for line in differences(folder))


def digits(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The places of all that has a digit in a document."""
    if isinstance(value, dict):
        return [place for key, one in value.items() for place in digits(one, (*path, key))]
    if isinstance(value, list):
        return [place for key, one in enumerate(value) for place in digits(one, (*path, key))]
    return [path] if re.search(r"\d", json.dumps(value)) and not isinstance(value, bool) else []


def test_any_changed_digit_is_told_with_its_place(folder: Path) -> None:
    whole = load(folder / NAME)
    found = document(folder)
    places = digits(whole)
    assert len(places) > 300
    for place in places[:: max(1, len(places) // 150)]:
        changed = copy.deepcopy(whole)
        inner = changed
        for key in place[:-1]:
            inner = inner[key]
        text = re.sub(r"\d", lambda digit: str((int(digit[0]) + 1) % 10), json.dumps(inner[place[-1]]), count=1)
        inner[place[-1]] = json.loads(text)
        told = signing.told(changed, found)
        where = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in place).lstrip(".")
        assert any(line.startswith(f"{where}: ") for line in told), (place, told)


def edited(folder: Path, edit: Callable[[dict[str, Any]], object]) -> list[str]:
    whole = load(folder / NAME)
    edit(whole)
    return list(verify(whole, folder).differences)


def test_a_dropped_cell_is_told(folder: Path) -> None:
    told = edited(folder, lambda whole: whole["cells"].pop(3))
    assert told == ["cells: 3 entries, the evidence gives 4: without 6.1_runc_on"]


def test_a_dropped_case_a_dropped_reason_and_a_dropped_part_are_told(folder: Path) -> None:
    assert "without quiet.quiet_kernel" in edited(folder, lambda whole: whole["cells"][0]["cases"].pop())[0]
    assert "without the rounds do not tell" in edited(folder, lambda whole: whole["reasons"].clear())[0]
    assert edited(folder, lambda whole: whole.pop("controls"))[0].startswith("controls: is not in the document")


def test_a_decision_that_the_evidence_does_not_give_is_told(folder: Path) -> None:
    told = edited(folder, lambda whole: whole.update(decision="signed"))
    assert told == ['decision: says "signed", the evidence gives "not proven"']


def test_a_verdict_that_the_raw_evidence_does_not_give_is_told(folder: Path) -> None:
    """Digests made to fit: only judging again can tell."""
    (path,) = folder.glob("cells/*base/*/6.1_runc_base/verdicts.jsonl")
    path.write_text(path.read_text().replace('"outcome": "known"', '"outcome": "pass"'))
    told = list(verify(document(folder), folder).differences)
    assert len(told) == 2
    assert 'verdict.outcome: says "pass", the evidence gives "known"' in told[0]
    assert "cells/01-6.1_runc_base" in told[0]


def test_a_verdict_without_raw_evidence_is_named(folder: Path) -> None:
    (path,) = folder.glob("cells/*base/*/6.1_runc_base/verdicts.jsonl")
    path.write_text(re.sub(r'"judged": "judged/quiet[^"]*"', '"judged": ""', path.read_text()))
    found = verify(document(folder), folder)
    assert found.unseen == ("6.1_runc_base quiet.quiet_kernel: pass, of which no raw evidence is kept",)


def test_files_that_lead_out_of_the_record_are_not_read(folder: Path) -> None:
    one = {"sha256": "0" * 64, "bytes": 1}
    told = edited(folder, lambda whole: whole["files"].update({"../../etc/passwd": one, "/etc/passwd": one}))
    assert sum(line.endswith("/etc/passwd: the file is missing") for line in told) == 2
    (path,) = folder.glob("cells/*base/*/6.1_runc_base/cell.json")
    path.unlink()
    path.symlink_to("/etc/passwd")
    assert any("may lead out of the record" in line for line in differences(folder))


@pytest.mark.parametrize("text", ["", "[]", "{}", "nothing", "[" * 100_000])
def test_what_is_no_sign_off_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / NAME).write_text(text)
    with pytest.raises(BadInput, match=r"is no JSON|is no sign-off\.json"):
        load(tmp_path / NAME)


def test_hostile_documents_are_differences_and_no_traceback(folder: Path) -> None:
    for edit in ({"files": []}, {"files": {"x": 1}}, {"asked": 3}, {"cells": None}, {"cells": [1]}, {"files": None}):
        assert verify(load(folder / NAME) | edit, folder).differences


def test_evidence_is_found_where_it_was_put(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    copied = tmp_path / "out" / NAME
    copied.parent.mkdir()
    shutil.copy(folder / NAME, copied)
    assert find_folder(copied, folder, "x") == folder
    assert find_folder(folder / NAME, None, "x") == folder
    with pytest.raises(BadInput, match="its evidence is not beside it; give --record"):
        find_folder(copied, None, "../../x")
    (tmp_path / "records").mkdir()
    folder.rename(tmp_path / "records/signoff-x")
    assert find_folder(copied, None, "signoff-x") == Path("records/signoff-x")


def test_the_document_is_what_its_schema_says(made: Path) -> None:
    argv = [sys.executable, "-m", "check_jsonschema", "--schemafile", str(SCHEMA), str(made / NAME)]
    assert subprocess.run(argv, check=False, capture_output=True, text=True).stdout == "ok -- validation done\n"
    argv[3:] = ["--check-metaschema", str(SCHEMA)]
    assert subprocess.run(argv, check=False, capture_output=True, text=True).returncode == 0


def test_the_schema_refuses_what_is_no_sign_off(made: Path, tmp_path: Path) -> None:
    whole = load(made / NAME)
    del whole["cells"][0]["facts"]
    whole["decision"] = "fine"
    (tmp_path / NAME).write_text(json.dumps(whole))
    argv = [sys.executable, "-m", "check_jsonschema", "--schemafile", str(SCHEMA), str(tmp_path / NAME)]
    done = subprocess.run(argv, check=False, capture_output=True, text=True)
    assert done.returncode == 1
    assert "$.decision" in done.stdout and "'facts' is a required property" in done.stdout


def test_junit_and_markdown_say_the_same(made: Path) -> None:
    root = ET.parse(made / "junit.xml").getroot()
    skipped = [case.get("name") for case in root.iter("testcase") if case.find("skipped") is not None]
    assert skipped == ["latency"]
    text = (made / "sign-off.md").read_text()
    assert "Again: `labs signoff --series" in text
    assert text.startswith("## not proven: x\n")
    assert "Lab-Not-Proven: kernel 6.1.192 build-id " in text


# The command, and the signature


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "a@b", "-f", str(path)], check=True)
    return path


def ask(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(verify_, list(words))
    return done.exit_code, done.output


def test_verify_says_what_it_has_done(folder: Path) -> None:
    code, text = ask(str(folder / NAME))
    assert code == 0
    assert re.search(r"^verified: not proven; \d+ files, 16 verdicts judged again, 0 without raw evidence$", text, re.M)
    change(next(folder.rglob("*.npz")))
    code, text = ask(str(folder))
    assert code == 1
    assert re.search(r"\.npz: the file's bytes are not those that were signed$", text, re.M)
    assert "differs: not proven" in text


RENDERINGS = ["sign-off.html", "sign-off.md", "junit.xml"]


@pytest.mark.parametrize("name", RENDERINGS)
def test_what_people_read_is_compared_too(folder: Path, name: str) -> None:
    path = folder / name
    text = path.read_text()
    path.write_text(text.replace("not proven", "signed", 1))
    assert ask(str(folder))[0] == 1 and f"{name}: is not what the sign-off gives" in ask(str(folder))[1]
    path.write_text(text)
    path.rename(folder.with_name(name))
    assert f"{name}: the file is missing" in ask(str(folder))[1]
    path.symlink_to(folder.with_name(name))
    code, told = ask(str(folder))
    assert code == 1 and "may lead out of the record" in told


def test_what_people_read_is_compared_where_it_was_copied_to(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    copy_files(folder, out)
    asked = [str(out / NAME), "--record", str(folder)]
    assert ask(*asked)[0] == 0
    (out / "sign-off.md").write_text("signed")
    assert ask(*asked)[0] == 1 and "sign-off.md: is not what the sign-off gives" in ask(*asked)[1]
    for name in RENDERINGS:
        (out / name).unlink()
    assert ask(*asked)[0] == 0
    (out / "junit.xml").symlink_to(folder / "junit.xml")
    assert ask(*asked)[0] == 1 and "junit.xml: OSError" in ask(*asked)[1]


def test_a_signature_is_checked(folder: Path, key: Path, tmp_path: Path) -> None:
    public = f"{key}.pub"
    assert ask(str(folder), "--key", public) == (1, ask(str(folder), "--key", public)[1])
    write(folder)
    signature.sign(folder / NAME, key)
    assert ask(str(folder))[0] == ask(str(folder), "--key", public)[0] == 0
    assert signature.signer(folder / NAME).startswith("SHA256:")
    other = tmp_path / "other"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(other)], check=True)
    code, text = ask(str(folder), "--key", f"{other}.pub")
    assert code == 1 and "is not signed with" in text
    path = folder / NAME
    path.write_bytes(path.read_bytes() + b"\n")
    code, text = ask(str(folder))
    assert code == 1 and "is no signature of sign-off.json" in text


@pytest.mark.parametrize("content", [None, "no key\n", ""])
def test_a_key_that_is_none_is_told(folder: Path, tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "none"
    if content is not None:
        path.write_text(content)
    with pytest.raises(BadInput, match="give --sign the file of an SSH key"):
        signature.sign(folder / NAME, path)
    assert not signature.signature_of(folder / NAME).exists()
