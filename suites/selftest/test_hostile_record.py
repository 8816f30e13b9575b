"""A sign-off's folder as someone who means harm has left it: each thing is told with its place, and none is obeyed."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from labs.errors import BadInput
from labs.signoff.command import verify_, write
from labs.signoff.document import NAME
from labs.signoff.verify import load, verify
from suites.selftest import signing
from suites.selftest.signing import specs

DEEP = "[" * 200_000
BASE = "cells/01-6.1_runc_base"
AWAY = "may lead out of the record"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = signing.write(tmp_path_factory.mktemp("signoff") / "signoff-x", specs())
    signing.compare(folder, boots=2)
    signing.proof(folder)
    write(folder)
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "elsewhere", symlinks=True))


def one(folder: Path, name: str) -> Path:
    """A file of the base's cell, or of the sign-off."""
    return next(path for path in (*sorted(folder.glob(f"{BASE}/*/{name}")), *sorted(folder.glob(name))))


def pipe(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def deep(path: Path) -> None:
    path.write_text(DEEP)


def large(path: Path) -> None:
    os.truncate(path, 20 << 20)


def bomb(path: Path) -> None:
    path.write_bytes(gzip.compress(b'{"by":"x","arguments":[' + b"[]," * (6 << 20) + b"[]]}"))


def flip(at: int, bits: int) -> Callable[[Path], None]:
    """Change bits of a byte of a zip file's directory."""

    def change(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[data.index(b"PK\x01\x02") + at] ^= bits
        path.write_bytes(data)

    return change


def text(old: str, new: str) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))

    return change


def verdict(**changes: Any) -> Callable[[Path], None]:
    """Change what the last line of a kind says."""

    def change(path: Path) -> None:
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        for row in rows:
            if "no_lost_update" in row["case"]:
                row |= {name: value for name, value in changes.items() if name in row}
                row["verdict"]["figures"] |= changes.get("figures", {})
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))

    return change


MALFORMED = [
    ("run.json", deep, "run.json is malformed: RecursionError"),
    ("run.json", large, "run.json is larger than 16 MiB"),
    ("*/verdicts.jsonl", deep, "verdicts.jsonl is malformed"),
    ("*/verdicts.jsonl", verdict(case=["x"]), f"{BASE}: the cell's record is malformed: TypeError"),
    ("*/verdicts.jsonl", verdict(judged="a\0b"), "no_lost_update[bandwidth]: a\ufffdb: ValueError"),
    ("*/verdicts.jsonl", verdict(judged="a" * 300), "File name too long"),
    ("*/verdicts.jsonl", verdict(figures={"lost cpu.max": 10**9}), "its counts are none: ValueError('1000000000 of"),
    ("*/verdicts.jsonl", verdict(figures={"lost cpu.max": -1}), "its counts are none: ValueError('-1 of"),
    ("*/verdicts.jsonl", verdict(figures={"lost cpu.max": float("inf")}), "its counts are none: OverflowError"),
    ("*/cell.json", deep, "cell.json is malformed: RecursionError"),
    ("*/histories/*.npz", flip(8, 1), "encrypted"),
    ("*/histories/*.npz", flip(10, 64), "NotImplementedError"),
    ("*/judged/*.json.gz", bomb, "unpacks to more than 16 MiB"),
    ("*/judged/*.json.gz", lambda path: path.write_bytes(gzip.compress(DEEP.encode())), "RecursionError"),
    ("plan.json", deep, "plan.json: RecursionError"),
    ("plan.json", text("6.1_runc_base", "../../../x"), "plan.json: cell '../../../x' leads out of the record"),
    ("plan.json", text("patches/0001.patch", "../x.patch"), "series.patches[0].patch_id: says"),
    ("patches/0001.patch", large, "series.patches[0].sha256: says"),
    ("latency/*/*/compare.json", deep, "compare.json is malformed: RecursionError"),
    ("latency/*/*/boots/001/A.npz", flip(8, 1), "A.npz has changed since it was recorded"),
    ("proof/prove.json", deep, "proof/prove.json: is malformed: RecursionError"),
    ("proof/boots.jsonl", deep, "boots.jsonl is malformed"),
]


@pytest.mark.parametrize(("name", "change", "told"), MALFORMED)
def test_what_is_malformed_is_told_with_its_place(
    folder: Path, name: str, change: Callable[[Path], None], told: str
) -> None:
    change(one(folder, name))
    found = verify(load(folder / NAME), folder).differences
    assert any(told in line for line in found), found


def linked(path: Path) -> None:
    """Moved away, with a link in its place."""
    away = next(parent for parent in path.parents if parent.name == "elsewhere").with_name("away")
    shutil.move(path, away)
    path.symlink_to(away)


LEADING = [
    ("run.json", pipe),
    ("*/judged/*.json.gz", pipe),
    ("*/histories/*.npz", linked),
    ("*/histories", linked),
    ("*/boot-1", linked),
    ("", linked),
    ("plan.json", pipe),
    ("patches", linked),
    ("proof/boots.jsonl", pipe),
    ("latency", linked),
]


@pytest.mark.parametrize(("name", "change"), LEADING)
def test_what_may_lead_elsewhere_is_told_and_not_read(folder: Path, name: str, change: Callable[[Path], None]) -> None:
    path = one(folder, name) if name else one(folder, "run.json").parent
    change(path)
    found = verify(load(folder / NAME), folder)
    assert f"{path.relative_to(folder)}: a link, pipe or device {AWAY}, and is not read" in found.differences
    assert found.verdicts == 0


@pytest.mark.parametrize("to", ["/dev/zero", "../x", "boot-1/../boot-1/console.log", "boot-1"])
def test_only_a_boots_own_console_may_be_linked_to(folder: Path, to: str) -> None:
    path = one(folder, "*/console.log")
    path.unlink()
    path.symlink_to(to)
    assert AWAY in verify(load(folder / NAME), folder).differences[0]


def test_a_file_without_end_is_told_and_not_read(folder: Path) -> None:
    os.truncate(one(folder, "*/boot-1/console.log"), 1 << 40)
    (line,) = verify(load(folder / NAME), folder).differences
    assert line.endswith("/boot-1/console.log: larger than 1024 MiB, and is not read")


def test_the_log_of_a_session_without_a_record_is_bounded(folder: Path) -> None:
    path = one(folder, "run.json")
    shutil.rmtree(path.parent)
    with (path.parents[1] / "pytest.log").open("w") as file:
        file.truncate(100 << 20)
    found = verify(load(folder / NAME), folder).differences
    assert any(line.startswith(f"{BASE}: the cell's record is malformed: ") for line in found), found


def test_a_signature_that_is_a_pipe_is_told(folder: Path) -> None:
    pipe(folder / f"{NAME}.sig")
    done = CliRunner().invoke(verify_, [str(folder)])
    assert done.exit_code == 1 and "sign-off.json.sig: is no file" in done.output


def test_a_socket_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    with socket.socket(socket.AF_UNIX) as made:
        made.bind("cells/s")
    assert AWAY in verify(load(folder / NAME), folder).differences[0]


@pytest.mark.parametrize("name", ["a\0b", "a" * 300, "../../etc/passwd", "/etc/passwd", "\udc80"])
def test_a_name_that_no_file_has_is_told(folder: Path, name: str) -> None:
    whole = load(folder / NAME)
    whole["files"][name] = {"sha256": "0" * 64, "bytes": 1}
    (folder / NAME).write_text(json.dumps(whole))
    done = CliRunner().invoke(verify_, [str(folder)])
    assert done.exit_code == 1 and ": the file is missing" in done.output, done.output


@pytest.mark.parametrize("edit", [{"files": 5}, {"asked": {"folder": "a" * 300}}, {"asked": {"test_code": "\udc80"}}])
def test_what_a_document_says_is_no_traceback(folder: Path, edit: dict[str, Any]) -> None:
    (folder / NAME).write_text(json.dumps(load(folder / NAME) | edit))
    done = CliRunner().invoke(verify_, [str(folder)])
    assert done.exit_code == 1 and isinstance(done.exception, SystemExit), done


@pytest.mark.parametrize("decision", [["signed"], "\udc80", None])
def test_a_decision_that_is_none_is_refused(folder: Path, decision: Any) -> None:
    (folder / NAME).write_text(json.dumps(load(folder / NAME) | {"decision": decision}))
    with pytest.raises(BadInput, match=r"is no sign-off\.json"):
        load(folder)


def test_a_document_that_is_a_pipe_is_refused(folder: Path) -> None:
    pipe(folder / NAME)
    with pytest.raises(BadInput, match="name a sign-off"):
        load(folder)
