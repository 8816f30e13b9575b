"""The page of a sign-off: whole, safe whatever a patch or a guest has put into it, readable on a phone and on paper."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest

from labs.command import run
from labs.deadline import Deadline
from labs.signoff.document import document
from labs.signoff.page import _change, render
from suites.selftest import signing
from suites.selftest.browser import FLAGS, browser, width_in_browser
from suites.selftest.signing import FUNCTIONS, NEVER_RUN, specs

DIGEST = "ab" * 32


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    cells = specs()
    cells["patched"].functions = (*FUNCTIONS, NEVER_RUN)
    made = signing.write(tmp_path_factory.mktemp("signoff") / "signoff-x", cells)
    signing.compare(made)
    return made


@pytest.fixture(scope="module")
def made(folder: Path) -> dict[str, Any]:
    return document(folder)


@pytest.fixture(scope="module")
def page(made: dict[str, Any], folder: Path) -> str:
    return render(made, DIGEST, folder)


def test_the_decision_comes_first_then_what_is_against_it(page: str) -> None:
    order = ["<h1>", "not proven", "Against it", "was never run", "What was asked", "Cells", "Evidence by invariant"]
    order += [
        "Latency",
        "no regression",
        "The patch, and what of it ran",
        "What was violated",
        "Repeat it, check it",
        "Trailers",
    ]
    at = -1
    for words in order:
        assert page.find(words, at + 1) > at, words
        at = page.index(words, at + 1)


def test_all_evidence_is_there(page: str) -> None:
    assert page.count('<svg class="spacetime"') == 2, "the counterexamples of the base"
    assert page.count('<figure class="rates">') == 1
    assert "lost writes of cpu.max" in page and "95 % interval" in page
    for function in (*FUNCTIONS, NEVER_RUN):
        assert re.search(rf"{function.function}</td>.*?>{function.state}<", page)
    assert "planted defect 6.1_runc_on: 1 of 1" in page
    assert f"labs signoff --series patches/kernel/x\nlabs verify {'sign-off.json'}" in page
    assert DIGEST in page
    assert "qemu-system-x86_64" in page


def test_what_stands_below_each_other_on_a_narrow_screen_says_what_it_is(page: str) -> None:
    assert re.search(r'<td class="short" data-th="base"><span class="count">\d', page)
    assert "content: attr(data-th)" in page


def test_what_was_skipped_in_both_cells_is_folded(made: dict[str, Any], folder: Path) -> None:
    again = copy.deepcopy(made)
    for cell in again["cells"]:
        cell["cases"].append({**cell["cases"][0], "case": "promises.late", "outcome": "skip", "verdict": None})
    shown = render(again, DIGEST, folder)
    folded = shown[shown.index("1 cases were skipped in all of them") :].partition("</details>")[0]
    assert "promises.late" in folded and "<tr><td>promises.late</td>" not in shown


@pytest.mark.parametrize(
    ("part", "words"), [(-0.00001, "0.00"), (0.00001, "0.00"), (0.0614, "+6.14"), (-0.05, "-5.00")]
)
def test_a_change_that_rounds_to_nothing_has_no_sign(part: float, words: str) -> None:
    assert _change(part) == words


def test_what_others_wrote_stays_text(page: str) -> None:
    assert "sched: &lt;b&gt;Keep&lt;/b&gt; both" in page
    assert "<b>" not in page and "<script" not in page


def test_it_needs_nothing_from_outside(page: str) -> None:
    assert not re.search(r"(?:src|href)=[\"'](?!#)", page)
    assert "url(" not in re.sub(r"url\(#[^)]*\)", "", page)
    assert "default-src 'none'" in page


def test_the_same_document_gives_the_same_page(made: dict[str, Any], folder: Path, page: str) -> None:
    assert render(made, DIGEST, folder) == page


def test_a_patch_that_is_gone_is_told(made: dict[str, Any], tmp_path: Path) -> None:
    assert "the patch is missing" in render(made, DIGEST, tmp_path)


@pytest.mark.parametrize("width", [360, 1280])
def test_it_is_not_wider_than_the_screen(page: str, tmp_path: Path, width: int) -> None:
    assert 0 < width_in_browser(page, width, tmp_path) <= width


def test_it_prints(page: str, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(page)
    pdf = tmp_path / "page.pdf"
    argv = [browser(), *FLAGS.split(), f"--user-data-dir={tmp_path / 'profile'}", f"--print-to-pdf={pdf}"]
    run([*argv, (tmp_path / "page.html").as_uri()], Deadline(120, "page on paper"))
    assert pdf.read_bytes().count(b"/Type /Page\n") > 1
