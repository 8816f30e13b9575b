"""Known defects explain a violation when all of a row matches, and nothing else."""

from __future__ import annotations

import re
import string
from dataclasses import replace
from datetime import date, timedelta

import pytest

from labs import catalog
from labs.catalog import Known
from labs.errors import BadInput
from labs.invariant.known import explain
from labs.invariant.verdict import SEVERITY, Step, Verdict
from labs.version import in_range, upstream_of

ROW = Known(
    id="a-defect",
    invariants=("no lost update", "linearizable register"),
    files=("cpu.max", "cpu.max.burst"),
    ranges=(("5.14", "6.1.200"), ("6.6", "6.6.10")),
    signature=r"lost \d+ of \d+ writes of cpu\.max",
    source="where it is told",
    expires=date(2030, 1, 1),
)
LOST = Verdict(
    "no lost update", "fail", "lost 3 of 90 writes of cpu.max",
    looked_at={"operations": 90}, counterexample=(Step("writer 0", "write cpu.max", "1", 0, 1),), evidence="lines",
)  # fmt: skip
FILES = ("cpu.max", "cpu.max.burst")
KERNEL = (6, 1, 192)


def known(verdict: Verdict = LOST, kernel: tuple[int, ...] | None = KERNEL, files: tuple[str, ...] = FILES) -> str:
    return explain(verdict, [ROW], kernel, files, day=ROW.expires).known


def test_a_known_violation_keeps_all_that_was_seen() -> None:
    verdict = explain(LOST, [ROW], KERNEL, FILES)
    assert (verdict.outcome, verdict.known) == ("known", "a-defect")
    assert replace(verdict, outcome="fail", known="", evidence="lines") == LOST
    assert verdict.evidence == "lines\nknown defect a-defect: where it is told"


@pytest.mark.parametrize("kernel", [(5, 14, 0), (6, 1, 199), (6, 6, 0), (6, 6, 9)])
def test_versions_that_have_it(kernel: tuple[int, ...]) -> None:
    assert known(kernel=kernel) == "a-defect"


@pytest.mark.parametrize("kernel", [(5, 13, 19), (6, 1, 200), (6, 5, 0), (6, 6, 10), (7, 3, 4), None])
def test_versions_that_have_it_not(kernel: tuple[int, ...] | None) -> None:
    assert explain(LOST, [ROW], kernel, FILES) is LOST


@pytest.mark.parametrize("outcome", [outcome for outcome in SEVERITY if outcome != "fail"])
def test_only_a_failure_is_explained(outcome: str) -> None:
    assert explain(replace(LOST, outcome=outcome), [ROW], KERNEL, FILES).outcome == outcome


@pytest.mark.parametrize("files", [("cpu.max",), ("cpu.max.burst",), FILES])
def test_files_of_the_row(files: tuple[str, ...]) -> None:
    assert known(files=files) == "a-defect"


@pytest.mark.parametrize("files", [("cpu.weight",), (*FILES, "cpu.weight"), ("cpu.max.x",), ("cpu",), ()])
def test_a_row_never_hides_another_file(files: tuple[str, ...]) -> None:
    """A verdict that names no file is no file's: a row of files cannot explain it."""
    assert known(files=files) == ""


@pytest.mark.parametrize("invariant", ["rejected write", "no lost", "no lost update x", ""])
def test_a_row_never_hides_another_invariant(invariant: str) -> None:
    assert known(replace(LOST, invariant=invariant)) == ""


@pytest.mark.parametrize("reason", ["", "lost writes", "2 torn values of cpu.max", "lost 3 of 90 writes of cpu.weight"])
def test_a_row_never_hides_another_violation(reason: str) -> None:
    assert known(replace(LOST, reason=reason)) == ""


def test_the_first_row_that_matches_explains() -> None:
    other = replace(ROW, id="another", ranges=(("6.1", ""),))
    assert explain(LOST, [replace(ROW, ranges=(("7.0", ""),)), other, ROW], KERNEL, FILES).known == "another"


@pytest.mark.parametrize(
    "runtime, known",
    [
        (("runc", (1, 1, 5)), "a-defect"),
        (("runc", (1, 3, 2)), ""),
        (("crun", (1, 1, 5)), ""),
        (None, ""),
    ],
)
def test_a_runtimes_defect_is_only_of_its_versions(runtime: tuple[str, tuple[int, ...]] | None, known: str) -> None:
    row = replace(ROW, runtimes=(("runc", "0", "1.3.2"),))
    assert explain(LOST, [row], KERNEL, FILES, runtime, ROW.expires).known == known
    assert explain(LOST, [ROW], KERNEL, FILES, runtime, ROW.expires).known == "a-defect"


def test_a_row_that_has_expired_explains_nothing_and_is_named() -> None:
    late = ROW.expires + timedelta(days=1)
    verdict = explain(LOST, [ROW], KERNEL, FILES, day=late)
    assert (verdict.outcome, verdict.known) == ("fail", "")
    assert verdict.evidence == "lines\nknown defect a-defect has expired on 2030-01-01: look whether it still holds"
    other = replace(ROW, id="another", expires=late)
    assert explain(LOST, [ROW, other], KERNEL, FILES, day=late).known == "another"


# The table itself


@pytest.mark.parametrize("row", catalog.known_defects(), ids=lambda row: row.id)
def test_rows_of_the_table(row: Known) -> None:
    assert set(row.id) <= set(string.ascii_lowercase + string.digits + "-")
    assert row.invariants and row.files and row.ranges and row.signature and len(row.source) > 20
    re.compile(row.signature)
    assert not re.search(row.signature, ""), "it would explain anything"
    assert row.expires < date(2032, 1, 1), "a row that nobody has to look at again"
    for low, high in row.ranges:
        assert in_range(upstream_of(low), low, high), "an empty range"


def test_ids_of_rows_differ() -> None:
    ids = [row.id for row in catalog.known_defects()]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("reason", ["lost 12 of 100 writes of cpu.max", "lost 1 of 9 writes of cpu.max.burst"])
def test_the_bandwidth_defect(reason: str) -> None:
    verdict = Verdict("no lost update", "fail", reason)
    rows = catalog.known_defects()
    day = date(2027, 1, 1)
    assert explain(verdict, rows, (6, 1, 192), FILES, day=day).known == "cpu-max-burst-lost-update"
    assert explain(verdict, rows, (5, 13, 0), FILES, day=day).known == ""
    assert explain(verdict, rows, (6, 1, 192), ("cpu.weight",), day=day).known == ""


def test_images() -> None:
    assert catalog.image("bookworm").suites == ("bookworm", "bookworm-security")
    with pytest.raises(BadInput, match="no image 'jessie'; one of: bookworm, trixie"):
        catalog.image("jessie")
