"""The patch-id is git's own, for every form in which a change comes."""

from __future__ import annotations

from pathlib import Path

import pytest
from patching import DATA, everything, one, run

from labs.series import read
from labs.series.identity import _sum, blob_digest, is_blob, series_id

GIT_FORM = [
    "lf.patch",
    "two-files.patch",
    "rename-only.patch",
    "binary-plus-text.patch",
    "from-line-in-body.mbox",
    "raw-utf8-from.mbox",
    "bracket-subject.mbox",
    "out-of-order.mbox",
]


def ids_of_git(data: bytes, folder: Path) -> list[str]:
    lines = run(folder, "git", "patch-id", "--stable", stdin=data).stdout.decode().splitlines()
    return [line.split()[0] for line in lines]


@pytest.mark.parametrize("name", GIT_FORM)
def test_recorded_patches(name: str, tmp_path: Path) -> None:
    path = DATA / name
    (series,) = read(str(path))
    assert sorted(patch.id for patch in series.patches) == sorted(ids_of_git(path.read_bytes(), tmp_path))


def test_everything_that_git_can_say(tmp_path: Path) -> None:
    tree, text = everything(tmp_path / "tree")
    assert [patch.id for patch in one(text, tmp_path).patches] == ids_of_git(text, tree)
    second = text.replace(b"Subject: [PATCH]", b"Subject: [PATCH 2/2]")
    both = (DATA / "lf.patch").read_bytes().replace(b"[PATCH]", b"[PATCH 1/2]") + second
    assert [patch.id for patch in one(both, tmp_path).patches] == ids_of_git(both, tree)


def test_line_numbers_white_space_order_and_form_do_not_matter(tmp_path: Path) -> None:
    (series,) = read(str(DATA / "two-files.patch"))
    text = (DATA / "two-files.patch").read_bytes()
    head, first, second = text[: text.index(b"diff")], *(b"diff" + part for part in text.split(b"diff --git")[1:])
    first, second = (part.replace(b"diff", b"diff --git", 1) for part in (first, second))
    second, tail = second.split(b"-- \n")
    swapped = head + second + first + b"-- \n" + tail
    for other in (
        swapped,
        text.replace(b"@@ -1,3 +1,3 @@", b"@@ -7,3 +9,3 @@ config OTHER"),
        text.replace(b"\n", b"\r\n"),
        b"".join(line for line in text.splitlines(True) if not line.startswith((b"diff", b"index"))),
    ):
        assert one(other, tmp_path).id == series.id
    assert one(text.replace(b"+hey", b"+hay"), tmp_path).id != series.id


def test_a_series_has_an_id_of_its_own() -> None:
    (steps,), (alone,) = read(str(DATA / "out-of-order.mbox")), read(str(DATA / "lf.patch"))
    assert alone.id == alone.patches[0].id
    ids = [patch.id for patch in steps.patches]
    assert steps.id == series_id(ids) not in ids
    assert series_id(reversed(ids)) != steps.id


def test_sums_carry_and_blobs_are_gits(tmp_path: Path) -> None:
    assert _sum([b"\xff" + bytes(19), b"\x01" + bytes(19)]) == "0001" + "00" * 18
    assert blob_digest(b"hello\nworld\n") == "94954abda49de8615a048f8d2e64b5de848e27a1"
    assert is_blob(b"hello\nworld\n", "94954ab") and not is_blob(b"hello\nworld", "94954ab")
    assert not is_blob(b"hello\nworld\n", "94954a") and not is_blob(b"", "0000000")
