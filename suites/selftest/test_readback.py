"""No lost update, and rejected write leaves the old value: what a writer finds when it reads its own file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from histories import EINVAL, ERANGE, NEW, OLD, Op, atomic_register, failing, last_end, register_of, with_tail

from labs.invariant.atomicity import no_lost_update, rejected_write
from labs.invariant.refusal import REFUSAL_KINDS
from labs.probe.history import Register

# A coupled pair in one group: in each, thread 0 is the only writer and reads what it wrote.
BURST = (Op(0, "write", "5000", 15, 60), Op(0, "read", "5000", 65, 70))
FIRST = (Op(0, "write", OLD, 0, 10), Op(0, "read", OLD, 11, 14), Op(0, "write", NEW, 20, 30))


def coupled_pair(maximum: Sequence[Op] = (), burst: Sequence[Op] = (), *, group: str = "/c") -> list[Register]:
    """Two files with a clean past in which each has one writer that reads back, and then these operations."""
    pair = [
        atomic_register(i, path=f"{group}/{name}", writers=1, readers=1, operations=5000)
        for i, name in enumerate(("cpu.max", "cpu.max.burst"))
    ]
    tails = (maximum, burst)
    return [with_tail(register, ops, after=last_end(pair)) for register, ops in zip(pair, tails, strict=True)]


def test_lost_update_is_caught_with_the_write_that_undid_it() -> None:
    verdict = no_lost_update(coupled_pair((*FIRST, Op(0, "read", OLD, 70, 80)), BURST))
    assert verdict.outcome == "fail"
    assert verdict.figures["lost cpu.max"] == 1
    assert verdict.figures["lost cpu.max.burst"] == 0
    assert verdict.figures["writes cpu.max"] > 1000
    assert [(step.operation, step.value, step.start, step.end) for step in verdict.counterexample] == [
        ("write cpu.max.burst", "5000", 0, 45),
        ("write cpu.max", NEW, 5, 15),
        ("read cpu.max", OLD, 55, 65),
    ]


def test_updates_that_are_all_there_pass() -> None:
    verdict = no_lost_update(coupled_pair((*FIRST, Op(0, "read", NEW, 70, 80)), BURST))
    assert verdict.outcome == "pass", verdict.reason
    assert verdict.looked_at["overlaps"] > 1000
    assert verdict.figures["lost cpu.max"] == verdict.figures["torn cpu.max"] == 0


def test_only_the_own_next_read_shows_a_loss() -> None:
    """Another thread's read, and a read after a further write or a failed one, say nothing about this write."""
    other = (*FIRST, Op(3, "read", OLD, 25, 28), Op(0, "write", OLD, 40, 50), Op(0, "read", OLD, 60, 70))
    assert no_lost_update(coupled_pair(other)).outcome == "pass"
    failed = (*FIRST, Op(0, "read", OLD, 40, 50, errno=19))
    assert no_lost_update(coupled_pair(failed)).outcome == "pass"


def test_torn_reads_are_counted_per_file() -> None:
    verdict = no_lost_update(coupled_pair((*FIRST, Op(3, "read", "50000 200000", 25, 28), Op(0, "read", NEW, 40, 50))))
    assert verdict.figures["torn cpu.max"] == 1
    assert verdict.figures["torn cpu.max.burst"] == 0


def test_lost_update_needs_one_writer_and_a_coupled_one() -> None:
    shared = no_lost_update([atomic_register(1, writers=2, operations=8000)])
    assert shared.outcome == "inconclusive"
    assert shared.looked_at["registers of several writers"] == 1
    alone = no_lost_update([coupled_pair()[0], coupled_pair(group="/other")[1]])
    assert alone.outcome == "inconclusive"
    assert alone.looked_at["overlaps"] == 0


def test_a_file_without_updates_is_no_pass_beside_one_with_many() -> None:
    pair = coupled_pair()
    for other in (failing(pair[1]), pair[1].with_operations(pair[1].operations[:0])):
        other = replace(other, path="/other/cpu.max.burst")
        verdict = no_lost_update([*pair, other])
        assert verdict.outcome == "inconclusive"
        assert "/other/cpu.max.burst: 0 writes read back" in verdict.reason


def test_a_file_that_refused_nothing_is_no_pass_beside_one_that_did() -> None:
    clean = atomic_register(3, invalid=2)
    for other in (clean.with_operations(clean.operations[:0]), atomic_register(4)):
        verdict = rejected_write([clean, replace(other, path="/c/io.weight")])
        assert verdict.outcome == "inconclusive"
        assert "io.weight: 0 rejected" in verdict.reason


@pytest.mark.parametrize("seed", range(60))
def test_atomic_register_raises_no_alarm(seed: int) -> None:
    register = atomic_register(seed, writers=1 + seed % 4, readers=1 + seed % 3, cycle=2 + seed % 11, invalid=seed % 3)
    assert rejected_write([register]).outcome == ("pass" if seed % 3 else "inconclusive")
    assert no_lost_update([register]).outcome == "inconclusive"  # nothing coupled was seen


# A writer that writes "7", then an invalid value, then reads.
KEPT = (Op(8, "write", "7", 0, 10), Op(8, "write", "0", 20, 30, ERANGE, ERANGE), Op(8, "read", "7", 40, 50))

REFUSALS = [
    ("accepted", (KEPT[0], Op(8, "write", "0", 20, 30, 0, ERANGE), KEPT[2]), ["0"]),
    ("wrong errno", (KEPT[0], Op(8, "write", "0", 20, 30, EINVAL, ERANGE), KEPT[2]), ["0"]),
    ("refused", (*KEPT, Op(8, "write", "8", 60, 70, EINVAL, 0)), ["8"]),
    ("leaked", (*KEPT, Op(3, "read", "0", 60, 70)), ["0", "0"]),
    ("changed", (*KEPT[:2], Op(8, "read", "100", 40, 50)), ["7", "0", "100"]),
    # What it had read itself is the value before as well.
    ("changed", (Op(8, "read", "7", 0, 10), KEPT[1], Op(8, "read", "100", 40, 50)), ["7", "0", "100"]),
]


@pytest.mark.parametrize(("kind", "ops", "shown"), REFUSALS)
def test_planted_refusal_fault_is_named(kind: str, ops: Sequence[Op], shown: list[str]) -> None:
    clean = atomic_register(3, invalid=2)
    verdict = rejected_write([clean, with_tail(clean, ops)])
    assert verdict.outcome == "fail"
    assert verdict.figures == {**dict.fromkeys(REFUSAL_KINDS, 0), kind: 1}
    assert [step.value for step in verdict.counterexample] == shown
    assert rejected_write([clean, with_tail(clean, KEPT)]).outcome == "pass"


def test_errors_are_named_in_the_counterexample() -> None:
    [step] = rejected_write([register_of(REFUSALS[1][1])]).counterexample
    assert step.note == "gave EINVAL; must give ERANGE"


@pytest.mark.parametrize(
    "ops",
    [
        (*KEPT[:2], Op(9, "write", "9", 32, 36), Op(8, "read", "9", 40, 50)),
        (Op(9, "write", "9", 2, 33), *KEPT[:2], Op(8, "read", "9", 40, 50)),
        (*KEPT[:2], Op(8, "write", "8", 32, 36), Op(8, "read", "8", 40, 50)),
        (*KEPT, Op(8, "write", "8", 60, 70, 19, 0), Op(8, "write", "0", 80, 90, 2, ERANGE)),
    ],
    ids=["other writes later", "other write in flight", "own write", "group removed"],
)
def test_what_others_wrote_is_no_change_by_a_rejected_write(ops: Sequence[Op]) -> None:
    clean = atomic_register(3, invalid=2)
    verdict = rejected_write([with_tail(clean, ops)])
    assert verdict.outcome == "pass", verdict.reason


def test_what_another_thread_saw_is_not_the_value_before() -> None:
    ops = [Op(7, "read", "100", 0, 10), KEPT[1], Op(8, "read", "5", 40, 50)]
    assert rejected_write([register_of(ops)]).looked_at["undisturbed"] == 0


def test_a_coupled_write_is_no_change_by_a_rejected_write() -> None:
    """A lost update of cpu.max must not be blamed on the invalid write that happened to follow it."""
    changed = register_of([*KEPT[:2], Op(8, "read", "100", 40, 50)])
    burst = register_of([Op(9, "write", "5000", 5, 60)], path="/c/cpu.max.burst")
    assert rejected_write([changed]).outcome == "fail"
    assert rejected_write([changed, burst]).outcome == "inconclusive"


def test_a_rejected_text_that_is_valid_elsewhere_is_no_leak() -> None:
    clean = atomic_register(3, invalid=2)
    ops = (*KEPT, Op(9, "write", "100", 60, 70, ERANGE, ERANGE), Op(9, "read", "100", 80, 90))
    initial = with_tail(register_of([Op(3, "read", "100", 0, 10)]), ops[3:])
    assert rejected_write([clean, initial]).figures["leaked"] == 0


def test_few_rejected_writes_are_no_pass() -> None:
    few = rejected_write([register_of(KEPT)])
    assert few.outcome == "inconclusive"
    assert "1 rejected" in few.reason
    assert rejected_write([register_of(KEPT)], minimum_rejected=1).outcome == "pass"


def test_rejected_writes_that_nobody_looked_after_are_no_pass() -> None:
    blind = [Op(8, "write", "0", 20 * i, 20 * i + 10, ERANGE, ERANGE) for i in range(30)]
    verdict = rejected_write([register_of(blind)])
    assert verdict.outcome == "inconclusive"
    assert "undisturbed" in verdict.reason


@pytest.mark.parametrize(("seen", "outcome"), [(0, "inconclusive"), (1, "pass")])
def test_each_file_must_be_looked_after_once(seen: int, outcome: str) -> None:
    """On a busy host somebody nearly always writes meanwhile: once is enough, where others were seen more often."""

    def refused(looked: int) -> list[Op]:
        ops = [Op(8, "write", "7", 0, 10)]
        for i in range(30):
            ops.append(Op(8, "write", "0", 50 * i + 20, 50 * i + 30, ERANGE, ERANGE))
            ops += [Op(8, "read", "7", 50 * i + 40, 50 * i + 50)] if i < looked else []
        return ops

    often = register_of(refused(30), path="/c/cpu.weight")
    seldom = register_of(refused(seen), path="/d/io.weight")
    verdict = rejected_write([often, seldom])
    assert verdict.outcome == outcome, verdict.reason
    assert outcome == "pass" or "io.weight: 0 undisturbed, needs 1" in verdict.reason
