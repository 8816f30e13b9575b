"""What the kernel promises of each file, group and process operation: one case a promise (labs/promise)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from labs import promise as promises
from labs.casebook import Bench
from labs.invariant.verdict import Verdict
from labs.probe.promises import absent, clean, root_group, run_promises
from labs.probe.register import Absent
from labs.probe.script import Outcome
from labs.promise.families import FAMILIES

FULL_TIMES = 3  # the rounds of the default size, that many times
FAMILY = {promise.name: family for family, members in FAMILIES.items() for promise in members}
CASES = [pytest.param(promise, id=promise.id) for members in FAMILIES.values() for promise in members]


@pytest.fixture(scope="session")
def files(bench: Bench) -> Iterator[frozenset[str]]:
    """The files that a group has in this kernel, below a root group with every controller enabled."""
    with root_group(bench.guest) as listed:
        yield listed


@pytest.fixture(scope="session")
def done(bench: Bench, files: frozenset[str]) -> dict[str, dict[str, list[list[Outcome]]]]:
    """Outcomes by family, filled as families are run."""
    return {}


def outcomes(bench: Bench, request: pytest.FixtureRequest, promise: promises.Promise) -> list[list[Outcome]]:
    """Those of the promise; run together with all of its family that this session asks for: a call costs a while."""
    files, done = (request.getfixturevalue(name) for name in ("files", "done"))
    family = FAMILY[promise.name]
    if family not in done:
        asked = {item.callspec.params.get("promise") for item in request.session.items if hasattr(item, "callspec")}
        members = [one for one in FAMILIES[family] if one in asked and runs(bench, one) and not absent(one, files)]
        with bench.watching():
            done[family] = run_promises(bench.guest, members, times=FULL_TIMES if bench.full else 1)
            clean(bench.guest)
    return done[family][promise.name]


def runs(bench: Bench, promise: promises.Promise) -> bool:
    return bench.full or not promise.full


def again(bench: Bench, promise: promises.Promise) -> Verdict:
    """By itself, on a clean slate: what went before had spoiled its preparation."""
    with bench.watching():
        clean(bench.guest)
        found = run_promises(bench.guest, [promise], times=FULL_TIMES if bench.full else 1)
        clean(bench.guest)
    return promises.judge(promise, found[promise.name])


@pytest.mark.parametrize("promise", CASES)
def test_promise(bench: Bench, judge, files, done, request: pytest.FixtureRequest, promise: promises.Promise):
    missing = absent(promise, files)
    if missing:
        raise Absent(f"{missing} does not exist in this guest")
    if not runs(bench, promise):
        pytest.skip("part of --full")
    verdict = promises.judge(promise, outcomes(bench, request, promise))
    if verdict.outcome == "error":
        verdict = again(bench, promise)
    judge(verdict, promise.needs)
