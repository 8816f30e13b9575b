"""Cases to the guest's script and its outcomes back: many cases a guest call, each in a group of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence

from labs.errors import LabError
from labs.guest import Guest
from labs.model.act import NEVER_RETURNED, NOT_RUN, Act, Case, Ran, Seen, Told
from labs.model.files import FILES
from labs.model.pool import PROCESSES
from labs.model.versions import IMPLICIT, Kernel
from labs.probe.promises import clean
from labs.probe.script import BARRIER, NEVER, Op, Outcome, op, run_script

ROOT = "/sys/fs/cgroup/lab-model"
TOGETHER = 16  # cases whose lanes run in one phase, one case after the other: a phase costs more than a `meet`
CALL_OPS = 16_000  # a guest call's most; each read keeps a page of the guest's memory
REAP_MS = 2_000
PHASE_MS = 20_000
LINES = {"cgroup.events": "populated ", "cgroup.stat": "nr_descendants "}  # the lines that the model knows
# ENODEV is what a group that goes away gives to whoever has just opened its file; 95 has two names.
ONE = {"ENODEV": "ENOENT", "ENOTSUP": "EOPNOTSUPP"}


def kernel_of(guest: Guest, version: tuple[int, ...], files: Iterable[str]) -> Kernel:
    """The guest's kernel as the model sees it; `files` are those of a group below ROOT."""
    lists = guest.must(f"cat /sys/fs/cgroup/cgroup.controllers {ROOT}/cgroup.subtree_control; cut -f1 /proc/cgroups")
    root, offered, *built = (line.split() for line in lists.split("\n"))
    implicit = [name for row in built for name in row if name in IMPLICIT]
    return Kernel.of(version, offered, [*root, *implicit], FILES.keys() & set(files))


@contextlib.contextmanager
def crowd(guest: Guest, count: int) -> Iterator[None]:
    """Idle groups beside the sequences' own, as a machine at work has: some writes walk through all that there are.

    With 1000 of them 5 to 12 in 100 pairs of writes to cpu.max and cpu.max.burst lost an update, without them 0.3.
    """
    paths = [f"{ROOT}/idle{number}" for number in range(count)]
    run_script(guest, [op("mkdir", path) for path in paths])
    try:
        yield
    finally:
        with contextlib.suppress(LabError):
            run_script(guest, [op("rmdir", path) for path in paths])


def run_cases(guest: Guest, cases: Sequence[Case], seconds: float = 120) -> list[Ran]:
    """Run the cases below ROOT, which exists, in as few guest calls as their size allows; what came of each."""
    ran: dict[int, Ran] = {}
    for numbers in _calls(cases):
        parts = [[cases[number] for number in numbers[at : at + TOGETHER]] for at in range(0, len(numbers), TOGETHER)]
        scripts = [script(part, number * TOGETHER) for number, part in enumerate(parts)]
        outcomes = iter(run_script(guest, [o for ops in scripts for o in ops], phase_ms=PHASE_MS, seconds=seconds))
        rans: list[Ran] = []
        for part, ops in zip(parts, scripts, strict=True):
            rans += told(part, [next(outcomes) for _ in ops])
        if any(act == REMOVED for one in rans for act, _ in one.after):
            clean(guest, ROOT)
        ran.update(zip(numbers, rans, strict=True))
    return [ran[number] for number in range(len(cases))]


def _calls(cases: Sequence[Case]) -> Iterator[list[int]]:
    """Numbers of the cases of each call, those with as many lanes next to each other."""
    part: list[int] = []
    size = 0
    for number in sorted(range(len(cases)), key=lambda number: len(cases[number].lanes)):
        more = len(script([cases[number]]))
        if part and size + more > CALL_OPS:
            yield part
            part, size = [], 0
        part.append(number)
        size += more
    if part:
        yield part


def script(cases: Sequence[Case], number: int = 0) -> list[Op]:
    """The cases' operations: what comes before their lanes, the lanes of one case after the other, what comes after.

    `number` is that of the first case's group.
    """
    carriers = [Carrier(f"{ROOT}/{number + slot}", slot * PROCESSES) for slot in range(len(cases))]
    pairs = list(zip(cases, carriers, strict=True))
    ops = [o for case, carrier in pairs for o in (op("mkdir", carrier.base), *carrier.all(case.before))]
    lanes = max((len(case.lanes) for case in cases), default=0)
    if lanes:
        ops.append(BARRIER)
        for case, carrier in pairs:
            ops += [op("meet", lane=number) for number in range(lanes)]
            ops += [o for number, lane in enumerate(case.lanes) for o in carrier.all(lane, number)]
        ops.append(BARRIER)
    return ops + [o for case, carrier in pairs for o in (*carrier.all(case.after), *carrier.end(case))]


class Carrier:
    """Makes a case's operations: its own group is `base`, the number of its first process `process`."""

    def __init__(self, base: str, process: int) -> None:
        self.base = base
        self.process = process

    def all(self, acts: Sequence[Act], lane: int = 0) -> list[Op]:
        return [o for act in acts for o in self.one(act, lane)]

    def one(self, act: Act, lane: int = 0) -> list[Op]:
        path = f"{self.base}/{act.group}" if act.group else self.base
        process = self.process + act.process
        if act.name == "write":
            return [op("write", f"{path}/{act.file}", act.value, lane=lane)]
        if act.name == "read":
            return [op("read", f"{path}/{act.file}", lane=lane)]
        if act.name == "members":
            return [op("members", f"{path}/cgroup.procs", lane=lane)]
        if act.name == "spawn":
            return [op("spawn", process, path, lane=lane)]
        if act.name == "attach":
            return [op("attach", process, f"{path}/cgroup.procs", lane=lane)]
        if act.name == "end":
            return [op("kill", process, 9, lane=lane), op("reap", process, REAP_MS, lane=lane)]
        if act.name == "kill":
            dead = [self.process + int(number) for number in act.value.split()]
            return [
                op("write", f"{path}/cgroup.kill", 1, lane=lane),
                *(op("reap", n, REAP_MS, lane=lane) for n in dead),
            ]
        return [op(act.name, path, lane=lane)]

    def end(self, case: Case) -> list[Op]:
        """Remove whatever is left of the case."""
        return self.all(remains(case))


REMOVED = Act("rmdir")  # of the case's own group


def remains(case: Case) -> list[Act]:
    """Acts that end and remove all that may be left of the case."""
    ends = [Act("end", process=number) for number in case.processes]
    return [*ends, *(Act("rmdir", group) for group in case.groups), REMOVED]


def told(cases: Sequence[Case], outcomes: Sequence[Outcome]) -> list[Ran]:
    """What the script's outcomes say of each act of the cases.

    When a case's group could not be removed, the acts that remove it are among those that came after.
    """
    rest = iter([outcome for outcome in outcomes if outcome.op.name not in ("-", "meet")])

    def take(acts: Sequence[Act], slot: int) -> tuple[Told, ...]:
        carrier = Carrier("", slot * PROCESSES)
        return tuple((act, seen(act, [next(rest) for _ in carrier.one(act)], carrier.process)) for act in acts)

    befores = []
    for slot, case in enumerate(cases):
        made = next(rest)
        if made.errno not in (0, NEVER):
            raise LabError(f"a group for a sequence could not be made: {made}")
        befores.append(take(case.before, slot))
    lanes = [tuple(take(lane, slot) for lane in case.lanes) for slot, case in enumerate(cases)]
    rans = []
    for slot, case in enumerate(cases):
        after, removal = take(case.after, slot), take(remains(case), slot)
        rans.append(Ran(befores[slot], lanes[slot], (*after, *removal) if removal[-1][1].error else after))
    return rans


def seen(act: Act, outcomes: Sequence[Outcome], process: int = 0) -> Seen:
    """An act's outcome: the first error of its operations, or the last one's words."""
    start, end = outcomes[0].start, outcomes[-1].end
    if any(outcome.errno == NEVER for outcome in outcomes):
        return Seen(NEVER_RETURNED if start else NOT_RUN, None, start, start)
    failed = next((outcome for outcome in outcomes if outcome.errno), None)
    if failed:
        return Seen(ONE.get(failed.error, failed.error), None, start, end)
    return Seen("", words(act, outcomes[-1].text, process), start, end)


def words(act: Act, text: str, process: int = 0) -> str | None:
    """What the model compares of a text; processes by their numbers in the case."""
    if act.name == "members":
        known = sorted(int(word) - process for word in text.split() if word.isdigit())
        return " ".join([*map(str, known), *(word for word in text.split() if not word.isdigit())])
    if act.file in LINES and act.name == "read":
        return next((line for line in text.splitlines() if line.startswith(LINES[act.file])), "")
    return text.strip() if act.name in ("read", "end") else None
