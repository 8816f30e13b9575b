"""Pipelines: those in ci/ are what the matrix gives, and what the services' schemas take."""

from __future__ import annotations

import importlib.util
import re
import shlex
import sys
from pathlib import Path

import click
import pytest
from bridge import ROOT
from click.testing import CliRunner

from labs.__main__ import main
from labs.command import run as run_command
from labs.deadline import Deadline
from labs.errors import BadInput
from labs.matrixfile import Matrix, read
from labs.pipeline import FORMATS, pipeline
from labs.run_commands import ci

SCHEMA = {
    "github": ["--builtin-schema", "vendor.github-workflows"],
    "gitlab": ["--builtin-schema", "vendor.gitlab-ci", "--data-transform", "gitlab-ci"],
}
SMALL = """\
[axes]
kernel = ["6.10", "path:/x/bzImage", "6.9"]
[[exclude]]
cells = "6.9_*"
reason = "old"
[set.smoke]
cells = "*"
suites = ["suites/a b", "suites/c"]
minutes = 7
[set.mine]
cells = "6.10_*"
suites = "suites/c"
"""
FOR_PEOPLE = re.compile(r"(?:^|; |\| )(\.venv/bin/\S+ .*?)(?: \| tee| \|\| test|$)")


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Matrix:
    monkeypatch.chdir(tmp_path)
    Path("my matrix.toml").write_text(SMALL)
    return read(Path("my matrix.toml"))


def commands(text: str) -> list[str]:
    """The lab's commands among the steps."""
    lines = [line.strip().removeprefix("- ").removeprefix("run: ") for line in text.splitlines()]
    return [found[1] for line in lines if (found := FOR_PEOPLE.search(line))]


@pytest.mark.parametrize("form", FORMATS)
def test_the_examples_are_what_the_lab_s_own_matrix_gives(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    made = CliRunner().invoke(ci, ["--format", form])
    assert made.exit_code == 0
    assert made.stdout == Path(f"ci/{form}.yml").read_text(), f"labs ci --format {form} > ci/{form}.yml"


@pytest.mark.parametrize("form", FORMATS)
def test_the_service_s_schema_takes_it(form: str, small: Matrix, tmp_path: Path) -> None:
    if not importlib.util.find_spec("check_jsonschema"):
        pytest.skip("check-jsonschema is not installed: make setup")
    (tmp_path / "small.yml").write_text(pipeline(small, form))
    files = [str(tmp_path / "small.yml"), str(ROOT / f"ci/{form}.yml")]
    run_command([sys.executable, "-m", "check_jsonschema", *SCHEMA[form], *files], Deadline(60, "schema"))


@pytest.mark.parametrize("form", FORMATS)
def test_every_set_has_its_trigger_its_kernels_and_its_verdict(form: str) -> None:
    text = (ROOT / f"ci/{form}.yml").read_text()
    jobs = dict(re.findall(r"^ *(smoke|nightly|sign-off):\n((?:.+\n)+)", text, re.MULTILINE))
    assert list(jobs) == ["smoke", "nightly", "sign-off"]
    trigger = {
        "github": {"smoke": "pull_request", "nightly": "'schedule'", "sign-off": "ref_type == 'tag'"},
        "gitlab": {"smoke": "merge_request_event", "nightly": '"schedule"', "sign-off": "CI_COMMIT_TAG"},
    }
    for name, told in jobs.items():
        assert trigger[form][name] in told
        assert f"\n{'  ' if form == 'github' else ''}{name}-verdict:\n" in text
    assert '["6.1", "6.12", "7.3"]' in jobs["nightly"] and '["6.1"]' in jobs["smoke"]
    assert "|| test $? -eq 1" in jobs["sign-off"] and "|| test" not in jobs["smoke"] + jobs["nightly"]
    assert "240" in jobs["nightly"] and "junit.xml" in text and "store" in text
    assert not re.search(r"https?://", text), "no host is named"


@pytest.mark.parametrize("form", FORMATS)
def test_the_steps_are_commands_that_people_can_run(form: str) -> None:
    told = commands((ROOT / f"ci/{form}.yml").read_text())
    assert len(told) == 3 * 3, told
    for command in told:
        program, *words = shlex.split(command)
        if program == ".venv/bin/labs":
            name, *arguments = words
            command = main.get_command(click.Context(main), name)
            assert command is not None, name
            command.make_context(name, arguments)
        else:
            assert words[:2] == ["-m", "pytest"] and {"--matrix", "--set", "--cell"} < set(words)


@pytest.mark.parametrize("form", FORMATS)
def test_names_that_need_quotes_and_sets_for_people(form: str, small: Matrix) -> None:
    text = pipeline(small, form)
    run, index, judge = commands(text)
    assert run.startswith(
        ".venv/bin/python -m pytest 'suites/a b' suites/c --matrix 'my matrix.toml' --set smoke --cell"
    )
    assert index == ".venv/bin/labs index" and "--matrix 'my matrix.toml' --set smoke --link" in judge
    assert '["6.10", "bzImage-' in text and "6.9" not in text, "text, as 6.10 is no number; an excluded cell has no job"
    assert "mine" not in text and ("timeout-minutes: 7" in text or "timeout: 7 minutes" in text)


def test_a_matrix_without_a_set_for_pipelines_is_refused(small: Matrix) -> None:
    Path("m.toml").write_text(SMALL.replace("set.smoke", "set.other"))
    with pytest.raises(BadInput, match=r"m\.toml: no set for a pipeline; write one of: smoke, nightly, sign-off"):
        pipeline(read(Path("m.toml")), "github")


def test_a_sign_off_needs_its_rules(small: Matrix) -> None:
    Path("m.toml").write_text(SMALL.replace("set.smoke", "set.sign-off"))
    with pytest.raises(BadInput, match=r"signoff\.toml: No such file"):
        pipeline(read(Path("m.toml")), "gitlab")
    rules = 'matrix = "m.toml"\nset = "mine"\n[[must]]\ncells = "*"\ncases = "*"\nevery = "pass"\nreason = "x"\n'
    Path("signoff.toml").write_text(rules)
    with pytest.raises(BadInput, match=r"signoff\.toml: is not about set sign-off"):
        pipeline(read(Path("m.toml")), "gitlab")
    Path("signoff.toml").write_text(rules.replace("mine", "sign-off"))
    assert "labs summary --signoff signoff.toml --link" in pipeline(read(Path("m.toml")), "gitlab")
