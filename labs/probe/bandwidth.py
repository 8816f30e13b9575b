"""The bandwidth probe: what busy processes and groups used of the CPUs, window by window."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from labs.errors import LabError
from labs.guest import Guest
from labs.probe.script import BARRIER, Op, Outcome, op, run_script

US = 1e6
TICKS = 100  # a second, of the times in /proc/PID/stat (USER_HZ)
SETTLE_MS = 300  # until what was just started or set shows; not measured
YIELDER, SPINNER = 1, 2  # processes


@dataclass(frozen=True)
class Window:
    """A stretch of guest time, in us, and by how much each counter grew in it; times of CPUs are in us too."""

    wall_us: float
    grew: Mapping[str, float]

    def __getitem__(self, name: str) -> float:
        return self.grew.get(name, 0.0)


def started(number: int, group: str, *orders: str) -> list[Op]:
    """A process in the group that was told to do `orders`."""
    attach = op("attach", number, f"{group}/cgroup.procs")
    return [op("spawn", number), attach, *(op("tell", number, order) for order in orders)]


def ended(*numbers: int) -> list[Op]:
    return [*(op("kill", number, 9) for number in numbers), *(op("reap", number, 10_000) for number in numbers)]


def windows_of(readings: Sequence[Sequence[Outcome]]) -> tuple[Window, ...]:
    """Between each reading and the next; a reading is an outcome for each thing that was looked at.

    LabError where one of them could not be read: what it names was not there.
    """
    told = [_counters(reading) for reading in readings]
    times = [reading[0].start / 1000 for reading in readings]
    return tuple(
        Window(times[at + 1] - times[at], {name: told[at + 1][name] - value for name, value in told[at].items()})
        for at in range(len(told) - 1)
    )


def _counters(reading: Sequence[Outcome]) -> dict[str, float]:
    """What one reading tells: a line of cpu.stat by its name, a process by number: `cpu 1`, `count 1`."""
    made: dict[str, float] = {}
    for outcome in reading:
        name, text = outcome.op.name, outcome.text.strip()
        try:
            if outcome.errno:
                raise ValueError(outcome.error)
            if name == "proc":  # fields 14 and 15, utime and stime (proc(5)); the name before them may hold spaces
                words = text.rpartition(")")[2].split()
                made[f"cpu {outcome.op.args[0]}"] = (int(words[11]) + int(words[12])) * US / TICKS
            elif name == "count":
                made[f"count {outcome.op.args[0]}"] = int(text)
            else:
                made |= {key: float(value) for key, value in re.findall(r"^(\w+) (\d+)$", text, re.M)}
        except (ValueError, IndexError) as error:
            raise LabError(f"the bandwidth probe could not look at {outcome.op}: {error}") from None
    return made


def run_windows(
    guest: Guest, before: Sequence[Op], looks: Sequence[Op], after: Sequence[Op], *, count: int, window_ms: int
) -> tuple[Window, ...]:
    """Do `before`, look at the same things at the ends of `count` windows, do `after`. LabError when one fails."""
    readings = [[*looks, op("sleep", window_ms)] for _ in range(count)]
    measured = [row for reading in readings for row in reading] + list(looks)
    ops = [*before, op("sleep", SETTLE_MS), *measured, *after, BARRIER]
    spent = SETTLE_MS + count * window_ms
    outcomes = run_script(guest, ops, phase_ms=4 * spent + 20_000, seconds=60 + 4 * spent / 1000)
    done = outcomes[len(before) + 1 :]
    size = len(looks) + 1
    taken = [done[at * size : at * size + len(looks)] for at in range(count + 1)]
    wrong = next((outcome for outcome in outcomes if outcome.errno), None)
    if wrong:
        raise LabError(f"the bandwidth probe was stopped: {wrong}", evidence="\n".join(map(str, outcomes)))
    return windows_of(taken)


def run_yield(guest: Guest, group: str, cpu: int, *, count: int, window_ms: int) -> tuple[Window, ...]:
    """Two processes of one group on one CPU: one never ends a loop, the other gives its CPU away in one."""
    before = [*started(YIELDER, group, f"pin {cpu}", "yield 1"), *started(SPINNER, group, f"pin {cpu}", "spin 1")]
    looks = [op("proc", YIELDER, "stat"), op("proc", SPINNER, "stat"), op("count", YIELDER)]
    return run_windows(guest, before, looks, ended(YIELDER, SPINNER), count=count, window_ms=window_ms)


def run_busy(
    guest: Guest,
    group: str,
    order: str,
    writes: Sequence[tuple[str, str]],
    *,
    count: int,
    window_ms: int,
    inner: Sequence[tuple[str, str]] = (),
) -> tuple[Window, ...]:
    """A process that keeps all CPUs busy by `order` in a group of which `writes` set files, as ("cpu.max", "max"); with
    `inner`, in a child of the group of which that sets files."""
    home = f"{group}/inner" if inner else group
    before = [op("write", f"{group}/{file}", text) for file, text in writes]
    if inner:
        before += [op("write", f"{group}/cgroup.subtree_control", "+cpu"), op("mkdir", home)]
        before += [op("write", f"{home}/{file}", text) for file, text in inner]
    before += started(1, home, order)
    after = [*ended(1), *([op("rmdir", home)] if inner else [])]
    looks = [op("read", f"{group}/cpu.stat")]
    return run_windows(guest, before, looks, after, count=count, window_ms=window_ms)


@dataclass(frozen=True)
class Race:
    """What cpu.max said once two writers of it had both ended, and what the group then used in a window."""

    said: str
    window: Window


def run_race(
    guest: Guest, group: str, order: str, texts: Sequence[str], *, writes: int, rounds: int, window_ms: int
) -> tuple[Race, ...]:
    """Rounds of: one writer of cpu.max for each of `texts`, all at one moment and that `writes` times; then a window in
    which nobody writes. The group is busy by `order` all the time."""
    looks = [op("read", f"{group}/cpu.stat"), op("sleep", window_ms), op("read", f"{group}/cpu.stat")]
    writers = [
        (op("meet", lane=lane), op("write", f"{group}/cpu.max", text, lane=lane)) for lane, text in enumerate(texts, 1)
    ]
    racing = [row for rows in zip(*writers, strict=True) for row in rows] * writes
    turn = [BARRIER, *racing, BARRIER, op("read", f"{group}/cpu.max"), *looks]
    before = started(1, group, order)
    spent = rounds * (window_ms + 20 * writes) / 1000
    ops = [*before, *turn * rounds, *ended(1)]
    outcomes = run_script(guest, ops, phase_ms=20_000 + window_ms, seconds=60 + 2 * spent)
    if wrong := next((outcome for outcome in outcomes if outcome.errno), None):
        raise LabError(f"the bandwidth probe was stopped: {wrong}")
    turns = [outcomes[len(before) + at * len(turn) :][: len(turn)][-4:] for at in range(rounds)]
    return tuple(Race(said.text.strip(), windows_of([[one], [two]])[0]) for said, one, _, two in turns)
