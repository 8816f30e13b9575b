"""Make drawn cases fit to run: nothing senseless, nothing that nobody promises, known defects masked where asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from labs.model.act import Act, Case
from labs.model.cgroup import START, State, apply, processes
from labs.model.files import FILES
from labs.model.pool import PROCESSES
from labs.model.versions import Kernel


def fit(case: Case, kernel: Kernel) -> Case:
    """The case with what makes no sense left out, and each lane with a process of its own."""
    state: State = START
    before = []
    for drawn in case.before:
        act = _meant(drawn, range(PROCESSES), processes(state, ""))
        if act is None:
            continue
        if act.name == "kill":  # all that die are reaped
            dead = processes(state, act.group) if act.group in state else ()
            act = Act("kill", act.group, value=" ".join(str(process) for process in sorted(dead)))
        before.append(act)
        state, _ = apply(state, act, kernel)
    if not any(case.lanes):
        return Case((*before, *case.after))
    lanes = tuple(_fit_lane(i, lane, i in processes(state, "")) for i, lane in enumerate(case.lanes))
    return Case(tuple(before), tuple(lane for lane in lanes if lane), case.after)


def look(case: Case) -> Case:
    """The case with reads in the end of all that it has touched; with lanes, of all that these have touched."""
    if case.lanes:
        return replace(case, after=_look(case.before, [act for lane in case.lanes for act in lane]))
    return Case((*case.before, *_look((), case.before)))


def _meant(act: Act, own: Sequence[int], alive: frozenset[int]) -> Act | None:
    """The act on one of its `own` processes that it can be about: not alive for a spawn, alive for all else."""
    if act.process < 0:
        return act
    possible = [number for number in own if (number in alive) == (act.name != "spawn")]
    if act.process in possible:
        return act
    return replace(act, process=possible[act.process % len(possible)]) if possible else None


def _fit_lane(number: int, lane: Sequence[Act], alive: bool) -> tuple[Act, ...]:
    """Left out: lists of processes that others move, which nobody promises to be whole, and kills, which last."""
    kept = []
    for drawn in lane:
        act = _meant(drawn, [number], frozenset({number} if alive else ()))
        if act is None or act.name in ("members", "kill") or act.file == "pids.current":
            continue
        if act.process >= 0:
            alive = act.name != "end"
        kept.append(act)
    return tuple(kept)


def _look(before: Sequence[Act], acts: Sequence[Act]) -> tuple[Act, ...]:
    """Reads of what `acts` have touched: the files of each family, who is where, what groups there are."""
    acts = [act for act in acts if not act.reads]
    groups = dict.fromkeys(["", *(act.group for act in (*before, *acts))])
    looks: dict[Act, None] = {}
    for act in acts:
        if act.file in FILES:
            family = FILES[act.file].family
            looks.update((Act("read", act.group, name), None) for name, f in FILES.items() if f.family == family)
    if any(act.file == "cgroup.subtree_control" or act.name in ("mkdir", "rmdir") for act in acts):
        looks.update((Act("read", group, "cgroup.subtree_control"), None) for group in groups)
    if any(act.name in ("spawn", "attach", "end", "kill") for act in acts):
        for group in groups:
            looks.update(((Act("members", group), None), (Act("read", group, "cgroup.events"), None)))
    return tuple(looks)


def mask_bandwidth(case: Case) -> Case:
    """Without the lost updates of cpu.max and cpu.max.burst: each group's bandwidth is the matter of one lane."""
    owner: dict[str, int] = {}
    lanes = []
    for number, lane in enumerate(case.lanes):
        kept = []
        for act in lane:
            bandwidth = act.file in FILES and FILES[act.file].family == "cpu.max"
            if not bandwidth or owner.setdefault(act.group, number) == number:
                kept.append(act)
        lanes.append(tuple(kept))
    return Case(case.before, tuple(lanes), case.after)


def mask_kill(case: Case) -> Case:
    """Without the spurious deaths after cgroup.kill: no case has both a kill and a process born into a group later."""
    before, killed = [], False
    for act in case.before:
        killed = killed or act.name == "kill"
        if not (killed and act.name == "spawn"):
            before.append(act)
    lanes = tuple(tuple(act for act in lane if not (killed and act.name == "spawn")) for lane in case.lanes)
    return Case(tuple(before), lanes, case.after)


def mask(case: Case) -> Case:
    return mask_kill(mask_bandwidth(case))
