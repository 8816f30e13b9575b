"""What the kernel promises of each file, group and process operation: one case a promise (labs/promise)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from labs import promise as promises
from labs.casebook import Bench
from labs.probe.promises import clean, root_group, run_promise
from labs.promise.families import FAMILIES

FULL_ROUNDS = 10  # times the rounds of the default size
CASES = [pytest.param(promise, id=promise.id) for family in FAMILIES.values() for promise in family]


@pytest.fixture(scope="session")
def files(bench: Bench) -> Iterator[frozenset[str]]:
    """The files that a group has in this kernel, below a root group with every controller enabled."""
    with root_group(bench.guest) as listed:
        yield listed


@pytest.mark.parametrize("promise", CASES)
def test_promise(bench: Bench, judge, files: frozenset[str], promise: promises.Promise):
    if promise.full and not bench.full:
        pytest.skip("takes seconds by its nature; part of --full")
    rounds = promise.rounds * (FULL_ROUNDS if bench.full else 1)
    with bench.watching():
        outcomes = run_promise(bench.guest, promise, files, rounds)
        verdict = promises.judge(promise, outcomes)
        if verdict.outcome != "pass":  # a script that went another way than planned did not clean up after itself
            clean(bench.guest)
    judge(verdict, promise.needs)
