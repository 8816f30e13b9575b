"""A case over many runs: equal binaries that gave unequal answers are flaky, others are not."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from labs.report.history import histories
from labs.report.record import CaseResult, Run
from labs.run_commands import history


def run(folder: Path, outcomes: Sequence[str], build_id: str = "aa") -> Run:
    """A run in which the case gave these outcomes, one attempt after the other."""
    made = Run.create(folder, {"6.1_runc": ["alone.x[weights]", "never.ran"]}, {}, [], 1)
    cell = made.cell("6.1_runc")
    cell.write_facts({"build_id": build_id})
    for outcome in outcomes:
        cell.add(CaseResult("alone.x[weights]", outcome))
    return made


@pytest.mark.parametrize(
    ("runs", "flaky"),
    [
        ([["pass"], ["pass"]], False),
        ([["pass"], ["fail"]], True),
        ([["pass"], ["known"]], True),
        ([["known"], ["fail"]], False),
        ([["error", "pass"], ["inconclusive"]], False),
        ([["fail", "pass"]], True),
        ([["error"], ["error"]], False),
    ],
)
def test_flaky_is_an_unequal_answer_of_equal_binaries(tmp_path: Path, runs: list[list[str]], flaky: bool) -> None:
    made = histories([run(tmp_path, outcomes) for outcomes in runs])
    assert [(one.case, one.outcomes, one.flaky) for one in made] == [
        ("alone.x[weights]", tuple(outcome for outcomes in runs for outcome in outcomes), flaky)
    ]


def test_another_binary_may_answer_otherwise(tmp_path: Path) -> None:
    made = histories([run(tmp_path, ["pass"], "aa"), run(tmp_path, ["fail"], "bb")])
    assert [(one.build_id, one.flaky) for one in made] == [("aa", False), ("bb", False)]


def test_the_command(tmp_path: Path) -> None:
    for outcome in ("pass", "fail", "pass"):
        run(tmp_path, [outcome])
    done = CliRunner().invoke(history, ["--flaky", "--json", "--case", "alone.x[weights]", str(tmp_path)])
    assert done.exit_code == 1
    (row,) = json.loads(done.output)
    assert (row["outcomes"], row["flaky"]) == ("1 fail, 2 pass", True)
    done = CliRunner().invoke(history, ["--flaky", "--case", "other*", str(tmp_path)])
    assert (done.exit_code, done.output) == (0, "no such case\n")
