"""The agent's report: what was sent is what is read, and whatever else arrives is refused in one way."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest

from labs.errors import LabError
from labs.probe.history import FAILED, INITIAL, READ, WRITE
from labs.probe.steps import ContainerStep
from labs.probe.stream import WIDE, WIRE, WIRE_WRITE, Report, parse, unpack
from labs.probe.values import Value

TABLES = {
    "cpu.weight": [Value("10", "10"), Value("20", "20"), Value("0", "0", 34)],
    "cpu.max": [Value("1 2", "1 2"), Value("3 4", "3 4")],
}
# One operation of a thread: (start, end, value, errno, kind), times in ns.
Operation = tuple[int, int, int, int, int]
SECOND = 1_000_000_000
PLAIN: list[Operation] = [(5, 9, 0, 0, WRITE), (9, 11, 0, 0, READ), (20, 21, 2, 34, WRITE), (21, 30, INITIAL, 0, READ)]
# Gaps and durations over 2**32 ns, which need a second record each; a clock that began long ago.
LONG: list[Operation] = [
    (10**18, 10**18 + 5, 1, 0, WRITE),
    (10**18 + 9 * SECOND, 10**18 + 17 * SECOND, 1, 0, READ),
    (10**18 + 17 * SECOND, 10**18 + 17 * SECOND + 1, 3, 0, READ),
    (10**18 + 30 * SECOND, 10**18 + 30 * SECOND, FAILED, 19, READ),
]


def wire(operations: Sequence[Operation]) -> bytes:
    """As put() and emit_worker() of agent/main.c write them."""
    rows, before = [], 0
    for start, end, value, errno, kind in operations:
        gap, duration = start - before, end - start
        if (gap | duration) >> 32:
            rows.append((gap >> 32, duration >> 32, 0, WIDE))
        rows.append((gap & 0xFFFFFFFF, duration & 0xFFFFFFFF, value, errno | (WIRE_WRITE if kind == WRITE else 0)))
        before = end
    return np.array(rows, WIRE).tobytes()


def block(target: int, thread: int, operations: Sequence[Operation]) -> bytes:
    data = wire(operations)
    return b"operations %d %d %d\n" % (target, thread, len(data) // WIRE.itemsize) + data + b"\n"


def target(number: int, path: str, initial: str, *foreign: str) -> bytes:
    texts = " ".join(f"x{text.encode().hex()}" for text in (initial, *foreign))
    return f"target {number} {len(foreign)} {path} {texts}\n".encode()


STEP = b"step c000 1 create 100 200 0 x\n"
FAILED_STEP = b"step c001 2 kill 300 400 -9 x" + "cannot kill: ü\n".encode().hex().encode() + b"\n"
RUN = b"run 4000000000 2\n"
WEIGHT = target(0, "/c/cpu.weight", "100", "torn", "")
MAX = target(1, "/c/cpu.max", "max 100000")
WHOLE = STEP + FAILED_STEP + RUN + WEIGHT + MAX + block(0, 0, PLAIN) + block(1, 1, []) + block(0, 2, LONG) + b"end\n"


def read(data: bytes) -> Report:
    return parse(data, TABLES, {"seed": 1})


def refused(data: bytes) -> str:
    with pytest.raises(LabError) as caught:
        read(data)
    assert type(caught.value) is LabError and "\n" not in str(caught.value)
    return str(caught.value)


def rows(operations: np.ndarray) -> list[Operation]:
    return [(int(o["start"]), int(o["end"]), int(o["value"]), int(o["errno"]), int(o["kind"])) for o in operations]


@pytest.mark.parametrize("operations", [PLAIN, LONG, [*PLAIN, *LONG], []], ids=["plain", "wide", "mixed", "none"])
def test_operations_survive_the_wire(operations: list[Operation]) -> None:
    back = unpack(np.frombuffer(wire(operations), WIRE), 7)
    assert rows(back) == operations
    assert set(back["thread"]) <= {7}


def test_random_operations_survive_the_wire() -> None:
    rng = random.Random(1)
    operations: list[Operation] = []
    now = 0
    for _ in range(2000):
        start = now + rng.choice([0, 1, 2**32 - 1, 2**32, rng.randrange(2**40)])
        now = start + rng.choice([0, 1, 2**32 - 1, 2**32, rng.randrange(2**40)])
        operations.append((start, now, rng.randrange(-2, 2256), rng.randrange(127), rng.choice([READ, WRITE])))
    assert rows(unpack(np.frombuffer(wire(operations), WIRE), 0)) == operations


def test_a_whole_report() -> None:
    report = read(WHOLE)
    weight, maximum = report.history.registers
    assert (report.history.seconds, report.history.cpus, report.history.facts) == (4.0, 2, {"seed": 1})
    assert (weight.path, weight.initial, weight.foreign) == ("/c/cpu.weight", "100", ("torn", ""))
    assert weight.values == ("10", "20", "0") and list(weight.expect) == [0, 0, 34]
    assert rows(weight.operations) == [*PLAIN, *LONG] and list(weight.operations["thread"]) == [0] * 4 + [2] * 4
    assert weight.text(3) == "torn" and weight.text(INITIAL) == "100"
    assert maximum.initial == "max 100000" and len(maximum.operations) == 0
    assert report.steps == (
        ContainerStep("c000", 1, "create", 100, 200, 0, ""),
        ContainerStep("c001", 2, "kill", 300, 400, -9, "cannot kill: ü\n"),
    )


def test_threads_are_merged_in_order_of_start() -> None:
    first = [(1, 2, 0, 0, WRITE), (10, 12, 1, 0, WRITE)]
    second = [(0, 5, INITIAL, 0, READ), (6, 7, 0, 0, READ), (11, 13, 1, 0, READ)]
    (register,) = read(RUN + WEIGHT + block(0, 0, first) + block(0, 1, second) + b"end\n").history.registers
    assert list(register.operations["start"]) == [0, 1, 6, 10, 11]
    assert list(register.operations["thread"]) == [1, 0, 1, 0, 1]


def test_texts_that_are_no_utf8_are_kept_readable() -> None:
    data = RUN + b"target 0 1 /c/cpu.weight x31 xff00\nend\n"
    assert read(data).history.registers[0].foreign == ("\ufffd\0",)


def test_cut_short_anywhere() -> None:
    for size in range(len(WHOLE)):
        refused(WHOLE[:size])


def test_a_byte_changed_anywhere_is_read_or_refused() -> None:
    """No change of a byte raises anything but LabError; what is still read obeys the promises of Register."""
    rng = random.Random(2)
    for at in range(len(WHOLE)):
        for new in {WHOLE[at] ^ 1, WHOLE[at] ^ 0x80, 0, 0x0A, 0x20, 0x2D, 0x39, 0xFF, rng.randrange(256)}:
            try:
                report = read(WHOLE[:at] + bytes([new]) + WHOLE[at + 1 :])
            except LabError as error:
                assert "\n" not in str(error)
            else:
                _check(report)


def _check(report: Report) -> None:
    for register in report.history.registers:
        operations = register.operations
        assert (operations["start"] >= 0).all() and (operations["start"] <= operations["end"]).all()
        assert (np.diff(operations["start"]) >= 0).all()
        for value in operations["value"]:
            register.text(int(value))


HUGE = str(10**30).encode()
HOSTILE = {
    "nothing": b"",
    "no end": RUN,
    "no run": WEIGHT + b"end\n",
    "more after the end": WHOLE + b"x",
    "unknown line": b"hello\n" + WHOLE,
    "not ascii": "rün 1 2\n".encode() + WHOLE,
    "an unknown file": RUN + target(0, "/c/memory.max", "max") + b"end\n",
    "a target twice": RUN + WEIGHT + WEIGHT + b"end\n",
    "a target without its initial text": RUN + b"target 0 0 /c/cpu.weight\nend\n",
    "fewer foreign texts than told": RUN + b"target 0 2 /c/cpu.weight x31 x32\nend\n",
    "a text that is no hex": RUN + b"target 0 0 /c/cpu.weight xzz\nend\n",
    "a negative target": RUN + b"target -1 0 /c/cpu.weight x31\nend\n",
    "too many targets": RUN + b"".join(target(n, "/c/cpu.weight", "1") for n in range(5000)) + b"end\n",
    "operations of no target": RUN + WEIGHT + block(5, 0, PLAIN) + b"end\n",
    "a huge count": RUN + WEIGHT + b"operations 0 0 " + HUGE + b"\n\nend\n",
    "a count that wraps": RUN + WEIGHT + b"operations 0 0 1676976733973595602\n\nend\n",
    "a negative count": RUN + WEIGHT + b"operations 0 0 -1\n\nend\n",
    "a count too small": RUN + WEIGHT + block(0, 0, PLAIN).replace(b" 4\n", b" 3\n") + b"end\n",
    "a huge thread": RUN + WEIGHT + b"operations 0 70000 0\n\nend\n",
    "a huge number of seconds": b"run " + HUGE + b" 2\nend\n",
    "a number of 5000 digits": b"run " + b"9" * 5000 + b" 2\nend\n",
    "negative seconds": b"run -1 2\n" + WEIGHT + b"end\n",
    "a value beyond the texts": RUN + WEIGHT + block(0, 0, [(1, 2, 5, 0, READ)]) + b"end\n",
    "a value below all": RUN + WEIGHT + block(0, 0, [(1, 2, -3, 0, READ)]) + b"end\n",
    "halves of nothing": RUN + WEIGHT + b"operations 0 0 1\n"
    + np.array([(1, 1, 0, WIDE)], WIRE).tobytes() + b"\nend\n",
    "halves of halves": RUN + WEIGHT + b"operations 0 0 3\n"
    + np.array([(1, 1, 0, WIDE), (1, 1, 0, WIDE), (1, 1, 0, 0)], WIRE).tobytes() + b"\nend\n",
    "times that overflow": RUN + WEIGHT + b"operations 0 0 4\n"
    + np.array([(2**31 - 1, 2**31 - 1, 0, WIDE), (1, 1, 0, 0)] * 2, WIRE).tobytes() + b"\nend\n",
    "a negative time": RUN + WEIGHT + b"operations 0 0 2\n"
    + np.array([(2**31, 0, 0, WIDE), (1, 1, 0, 0)], WIRE).tobytes() + b"\nend\n",
    "a step with too few words": b"step c000 1 create 100 200 0\n" + RUN + b"end\n",
    "a step of another name": STEP.replace(b"create", b"reboot") + RUN + b"end\n",
    "a step with a huge time": STEP.replace(b"100", HUGE) + RUN + b"end\n",
    "a step with a huge code": STEP.replace(b" 0 x", b" 70000 x") + RUN + b"end\n",
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_reports_are_refused(name: str) -> None:
    assert refused(HOSTILE[name]).startswith("the agent's report is malformed or cut short: ")
