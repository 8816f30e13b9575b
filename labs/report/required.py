"""What must have come of a matrix before a series may ship: ci/signoff.toml.

matrix = "matrix.toml"              # beside this file
set = "sign-off"                    # every cell of it must have run, whole

[[must]]
cells = "*.patched"                 # patterns of ids
cases = "alone.linearizable*"       # patterns of cases; only * and ? are wild, [weights] is what it says
every = ["pass", "known"]           # of the rules with `every` that look at a case, the first decides
reason = "for whoever is refused"

[[must]]
cells = "*_torn-weight.patched"
cases = "alone.*"
some = ["fail"]                     # at least one of the cases; such a rule always counts
reason = "a suite that does not see the planted fault proves nothing"

A rule must find a case in each of its cells, and each case must be looked at by a rule with `every`; no rule can allow
what never ran or broke (`not-run`, `error`).
"""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from labs.errors import BadInput
from labs.invariant.verdict import NO_VERDICT, SEVERITY, worst
from labs.matrixfile import Matrix, read
from labs.report.gather import CellOutcome
from labs.report.record import CaseResult
from labs.tomlfile import TomlFile

ALLOWED = tuple(outcome for outcome in SEVERITY if outcome not in NO_VERDICT)


def of_case(case: str, pattern: str) -> bool:
    """Whether a case's name matches; only * and ? are wild, [weights] is what it says."""
    return fnmatch.fnmatchcase(case, pattern.replace("[", "[[]"))


@dataclass(frozen=True)
class Rule:
    cells: tuple[str, ...]
    cases: tuple[str, ...]
    every: tuple[str, ...]
    some: tuple[str, ...]
    reason: str

    def of_cell(self, cell: str) -> bool:
        return any(fnmatch.fnmatchcase(cell, pattern) for pattern in self.cells)

    def of_case(self, case: str) -> bool:
        return any(of_case(case, pattern) for pattern in self.cases)


@dataclass(frozen=True)
class Required:
    matrix: Matrix
    set: str
    rules: tuple[Rule, ...]

    @property
    def cells(self) -> list[str]:
        return [row.cell.id for row in self.matrix.chosen(self.set)]


@dataclass(frozen=True)
class Unmet:
    """One thing that stands against shipping. `case` is a case's name, or the patterns of a rule."""

    cell: str
    case: str
    outcome: str
    why: str


def read_required(path: Path) -> Required:
    """Read and check a sign-off file and its matrix; BadInput tells the line of what is wrong."""
    file = TomlFile.read(path)
    file.has_only((), ("matrix", "set", "must"))
    matrix = read(path.parent / file.text(("matrix",)))
    name = file.text(("set",))
    try:
        cells = [row.cell.id for row in matrix.chosen(name)]
    except BadInput as error:
        raise file.refused(("set",), error.what, error.mend) from None
    rules = tuple(_rule(file, number, cells) for number in file.rows("must"))
    for cell in cells:
        if not any(rule.every and rule.of_cell(cell) for rule in rules):
            raise file.refused(("must",), f"no rule with `every` looks at cell {cell}", "write a [[must]] for it")
    return Required(matrix, name, rules)


def _rule(file: TomlFile, number: int, cells: Sequence[str]) -> Rule:
    keys = ("must", number)
    table = file.has_only(keys, ("cells", "cases", "every", "some", "reason"))
    if ("every" in table) == ("some" in table):
        raise file.refused(keys, "must has either every or some", 'write every = ["pass"]')
    outcomes = {key: file.texts((*keys, key)) if key in table else () for key in ("every", "some")}
    for key, values in outcomes.items():
        for value in values:
            if value not in ALLOWED:
                raise file.refused((*keys, key), f"{value!r} cannot be allowed", f"one of: {', '.join(ALLOWED)}", value)
    texts = {key: file.texts((*keys, key)) for key in ("cells", "cases")}
    for pattern in texts["cells"]:
        if not any(fnmatch.fnmatchcase(cell, pattern) for cell in cells):
            raise file.refused((*keys, "cells"), f"{pattern!r} matches no cell of the set", ", ".join(cells), pattern)
    return Rule(**texts, **outcomes, reason=" ".join(file.text((*keys, "reason")).split()))


def unmet(required: Required, cells: Sequence[CellOutcome]) -> list[Unmet]:
    """What stands against shipping, in the order of the matrix; `cells` are gathered for the cells of `required`."""
    there = {one.cell: one for one in cells}
    found: list[Unmet] = []
    for cell in required.cells:
        one = there.get(cell)
        if one is None or one.run is None:
            found.append(Unmet(cell, "the whole cell", "not-run", "no run has it"))
            continue
        rules = [rule for rule in required.rules if rule.of_cell(cell)]
        for result in one.results:
            if why := _every(rules, result):
                found.append(Unmet(cell, result.case, result.outcome, why))
        found += [missing for rule in rules if (missing := _found(rule, one))]
    return found


def _every(rules: Sequence[Rule], result: CaseResult) -> str:
    """Why the case's outcome is not allowed; one that came before the last counts too, unless it told nothing."""
    rule = next((rule for rule in rules if rule.every and rule.of_case(result.case)), None)
    outcomes = {result.outcome, *(outcome for outcome in result.earlier if outcome not in NO_VERDICT)}
    if result.outcome in NO_VERDICT:
        return "has not run to its end"
    if rule is None:
        return "no rule looks at it"
    return "" if outcomes <= set(rule.every) else f"must be {' or '.join(rule.every)}: {rule.reason}"


def _found(rule: Rule, one: CellOutcome) -> Unmet | None:
    results = [result for result in one.results if rule.of_case(result.case)]
    cases = ", ".join(rule.cases)
    if not results:
        return Unmet(one.cell, cases, "not-run", "there is no such case")
    if rule.some and not any(result.outcome in rule.some for result in results):
        outcome = worst([result.outcome for result in results])
        return Unmet(one.cell, cases, outcome, f"one must be {' or '.join(rule.some)}: {rule.reason}")
    return None
