"""CI pipelines for a matrix file: its sets smoke (each change), nightly and sign-off (each tag), one job a kernel.

The templates beside this file hold what a service wants; the steps are the commands that a person runs.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from labs.errors import BadInput
from labs.matrixfile import Matrix
from labs.report.required import read_required

FORMATS = ("github", "gitlab")
SETS = ("smoke", "nightly", "sign-off")  # those with a place in a pipeline; others are for people
SIGNOFF = "signoff.toml"  # beside the matrix file


@dataclass(frozen=True)
class Job:
    """One set in a pipeline: `run` is the command for the cells of a kernel, `judge` the one for all of them."""

    set: str
    kernels: tuple[str, ...]  # as ids begin
    minutes: int
    run: str
    judge: str
    allowed: str  # exit code of `judge` that is no failure, empty for none
    fails: bool  # whether some cases must fail, so that only `judge` can tell


def pipeline(matrix: Matrix, form: str) -> str:
    """The pipeline's file; BadInput when the matrix has none of the sets, or a sign-off without its rules."""
    jobs = [_job(matrix, name) for name in SETS if name in matrix.sets]
    if not jobs:
        raise BadInput(f"{matrix.path}: no set for a pipeline", mend=f"write one of: {', '.join(SETS)}")
    return _ENVIRONMENT.get_template(f"{form}.yml.j2").render(jobs=jobs, matrix=shlex.quote(matrix.path), form=form)


def _job(matrix: Matrix, name: str) -> Job:
    chosen = matrix.set(name)
    kernels = dict.fromkeys(row.cell.id.partition("_")[0] for row in matrix.chosen(name))
    asked = f"--matrix {shlex.quote(matrix.path)} --set {name}"
    rules = Path(matrix.path).with_name(SIGNOFF)
    if name == "sign-off" and read_required(rules).set != name:
        raise BadInput(f"{rules}: is not about set {name}", mend=f'write set = "{name}"')
    return Job(
        set=name,
        kernels=tuple(kernels),
        minutes=chosen.minutes,
        run=f'.venv/bin/python -m pytest {shlex.join(chosen.suites)} {asked} --cell "${{KERNEL}}_*"',
        judge=f".venv/bin/labs summary {f'--signoff {shlex.quote(str(rules))}' if name == 'sign-off' else asked}",
        allowed="" if name == "sign-off" else "4",
        fails=name == "sign-off",
    )


# The services' own syntax has {{ }} and {% %}
_ENVIRONMENT = Environment(
    loader=PackageLoader("labs.pipeline", "."),
    undefined=StrictUndefined,
    block_start_string="[%",
    block_end_string="%]",
    variable_start_string="[[",
    variable_end_string="]]",
    comment_start_string="[#",
    comment_end_string="#]",
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
_ENVIRONMENT.filters["yaml"] = json.dumps  # JSON is YAML
