"""A kernel without a machine: the model, each act at one random moment of its time; and kernels with a defect."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from labs.model.act import Act, Case, Ran, Seen, Told
from labs.model.cgroup import START, State, apply, processes
from labs.model.files import FILES
from labs.model.versions import Kernel

KERNEL = Kernel.of(
    (6, 1, 192),
    ("cpu", "cpuset", "io", "memory", "pids"),
    ("cpu", "cpuset", "hugetlb", "io", "memory", "misc", "perf_event", "pids", "rdma"),
    FILES,
)
# What a kernel makes of an act: the state when it began, the state when it takes effect.
Behaviour = Callable[[State, State, Act], tuple[State, Seen]]


@dataclass(frozen=True)
class Moment:
    """When an act of a lane starts, reads what it will not read again, takes effect and ends."""

    lane: int
    act: Act
    start: int
    first: int
    effect: int
    end: int


class Simulated:
    """Runs cases as a guest would; the same seed gives the same times."""

    def __init__(self, seed: int, behaviour: Behaviour | None = None) -> None:
        self.rng = random.Random(seed)
        self.behaviour = behaviour or atomic
        self.runs = 0

    def __call__(self, cases: Sequence[Case]) -> list[Ran]:
        self.runs += len(cases)
        return [self.run(case) for case in cases]

    def run(self, case: Case) -> Ran:
        state, before, now = self._one_by_one(START, case.before, 1)
        moments = [moment for number, lane in enumerate(case.lanes) for moment in self._moments(number, lane, now)]
        points = sorted(
            (time, what, at) for at, m in enumerate(moments) for what, time in enumerate((m.first, m.effect))
        )
        began: dict[int, State] = {}
        seen: dict[int, Seen] = {}
        for _, what, at in points:
            if what == 0:
                began[at] = state
                continue
            moment = moments[at]
            state, told = self.behaviour(began[at], state, moment.act)
            seen[at] = replace(told, start=moment.start, end=moment.end)
        lanes = tuple(
            tuple((m.act, seen[at]) for at, m in enumerate(moments) if m.lane == number)
            for number in range(len(case.lanes))
        )
        now = max((moment.end for moment in moments), default=now)
        _, after, _ = self._one_by_one(state, case.after, now + 1)
        return Ran(before, lanes, after)

    def _one_by_one(self, state: State, acts: Sequence[Act], now: int) -> tuple[State, tuple[Told, ...], int]:
        told: list[Told] = []
        for act in acts:
            state, seen = self.behaviour(state, state, act)
            told.append((act, replace(seen, start=now, end=now + 10)))
            now += 20
        return state, tuple(told), now

    def _moments(self, lane: int, acts: Sequence[Act], now: int) -> list[Moment]:
        moments = []
        now += self.rng.randrange(60)
        for act in acts:
            times = sorted(self.rng.sample(range(now, now + 200), 4))
            moments.append(Moment(lane, act, *times))
            now = times[3] + 1 + self.rng.randrange(40)
        return moments


def atomic(began: State, state: State, act: Act) -> tuple[State, Seen]:
    return apply(state, act, KERNEL)


def lost_update(began: State, state: State, act: Act) -> tuple[State, Seen]:
    """cpu.max and cpu.max.burst as kernels have them: what the write does not name is taken from before the lock."""
    if act.name != "write" or act.file not in ("cpu.max", "cpu.max.burst") or act.group not in began:
        return atomic(began, state, act)
    after, seen = apply(began, act, KERNEL)
    if seen.error or act.group not in state:
        return atomic(began, state, act)
    limits, new = state[act.group].limits, after[act.group].limits
    merged = replace(limits, quota=new.quota, period=new.period, burst=new.burst)
    return {**state, act.group: replace(state[act.group], limits=merged)}, seen


def wrong_weight(began: State, state: State, act: Act) -> tuple[State, Seen]:
    """A weight of 777 is stored as 776."""
    spoiled = replace(act, value="776") if (act.file, act.value) == ("cpu.weight", "777") else act
    return apply(state, spoiled, KERNEL)


def partial_subtree(began: State, state: State, act: Act) -> tuple[State, Seen]:
    """subtree_control enables what comes before a word that it refuses."""
    after, seen = apply(state, act, KERNEL)
    if seen.error == "EINVAL" and act.file == "cgroup.subtree_control":
        after, _ = apply(state, replace(act, value=act.value.split()[0]), KERNEL)
    return after, seen


def stillborn(began: State, state: State, act: Act) -> tuple[State, Seen]:
    """What starts in a group that was killed once dies at once (the mark of a kill is a number that nobody has)."""
    if act.name == "kill" and act.group in state:
        after, seen = apply(state, act, KERNEL)
        return {**after, act.group: replace(after[act.group], members=frozenset({-1}))}, seen
    if act.name == "spawn" and -1 in state.get(act.group, state[""]).members:
        return state, Seen("", None)
    if act.name in ("members", "read", "write", "rmdir", "attach", "end") and -1 in processes(state, ""):
        clean = {path: replace(group, members=group.members - {-1}) for path, group in state.items()}
        after, seen = apply(clean, act, KERNEL)
        marked = {path for path in after if path in state and -1 in state[path].members}
        return {
            path: replace(group, members=group.members | {-1}) if path in marked else group
            for path, group in after.items()
        }, seen
    return apply(state, act, KERNEL)


def frozen_write(began: State, state: State, act: Act) -> tuple[State, Seen]:
    """A write of pids.max is forgotten when another act has changed the group meanwhile."""
    if act.file == "pids.max" and act.name == "write" and began.get(act.group) != state.get(act.group):
        return state, apply(state, act, KERNEL)[1]
    return apply(state, act, KERNEL)
