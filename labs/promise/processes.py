"""Promises of processes in groups: whole ones move, all are listed, a child is where it was born.

Read in kernel/cgroup/cgroup.c and kernel/fork.c of 6.1.192, 6.12.117 and 7.2.13, and in
Documentation/admin-guide/cgroup-v2.rst; numbers are those of the lab's list of promises.
"""

from __future__ import annotations

from collections.abc import Mapping

from labs.probe.script import Outcome
from labs.promise import ROOT, Promise, Relation, Row, does, first, within
from labs.promise.scene import (
    NOT_SUPPORTED,
    PATIENCE_MS,
    A,
    B,
    C,
    awaited,
    emptied,
    ended,
    holds,
    home,
    one_of,
    procs,
    race,
    started,
    succeed,
    unchecked,
)

CONTROL = f"{A}/cgroup.subtree_control"
HERE = one_of(home(A), home(B))  # in one of two groups, whole


def _moves(number: int, turns: int, *, lane: int = 0, groups: tuple[str, ...] = (B, A)) -> tuple[Row, ...]:
    return tuple(does("attach", number, procs(group), lane=lane) for group in groups * turns)


def _whole(*orders: str) -> tuple[Row, ...]:
    """A process of several threads moves to and fro; after each move all are there."""
    return (
        *started(1, A, *orders),
        *(
            row
            for group in (B, A) * 4
            for row in (
                does("attach", 1, procs(group)),
                does("homes", 1, text=home(group)),
                does("missing", 1, f"{group}/cgroup.threads", text=""),
                does("members", procs(group), text="1"),
                does("members", procs(A if group == B else B), text=""),
                does("tell", 1, "where", text=home(group)),
            )
        ),
        *ended(1),
    )


def _whole_in_race(turns: int) -> tuple[Row, ...]:
    """Two lanes move a process whose threads come and go; whenever both rest, it is in one group."""
    rows: list[Row] = []
    for _ in range(turns):
        rows += race(*_moves(1, 3, lane=1), *_moves(1, 3, lane=2, groups=(A, B)))
        rows.append(does("homes", 1, text=HERE))
    return (
        *started(1, A, "threads 4", "passing 2"),
        *rows,
        does("attach", 1, procs(B)),
        does("homes", 1, text=home(B)),
        does("members", procs(A), text=""),
        *ended(1),
    )


def _heir_moves() -> tuple[Row, ...]:
    return (
        *started(1, A, "threads 3", "heir"),
        first("state", 1, "Z", PATIENCE_MS),
        does("homes", 1, text=home(A)),
        does("members", procs(A), text="1"),
        does("attach", 1, procs(B)),
        does("homes", 1, text=home(B)),
        does("missing", 1, f"{B}/cgroup.threads", text=""),
        *ended(1),
        awaited(B, "populated 0"),
    )


def _refused_moves() -> tuple[Row, ...]:
    """Each refusal leaves the process where it was, with all its threads."""
    ab, ac, ad = (f"{A}/{name}" for name in "bcd")
    stays = (
        does("homes", 1, text=home(C)),
        does("members", procs(C), text="1"),
        does("missing", 1, f"{C}/cgroup.threads", text=""),
    )
    refusals = (
        does("attach", 1, procs(A), errno="EBUSY"),  # it has domain controllers enabled for its children
        does("attach", 1, procs(f"{ab}/x"), errno=NOT_SUPPORTED),  # 'domain invalid', below a root of threads
        does("attach", 1, procs(ad), errno="ENOENT"),
        does("tell", 1, f"write {procs(ac)} foo", errno="EINVAL"),
        does("tell", 1, f"write {procs(ac)} -1", errno="EINVAL"),
        does("write", procs(ac), 4_194_305, errno="ESRCH"),  # above the largest pid that can be
        does("write", procs(ac), 2, errno="EINVAL"),  # kthreadd
        does("tell", 2, f"attach 1 {procs(ac)}", errno="EACCES"),
        does("write", f"{ac}/cgroup.threads", 4_194_305, errno="ESRCH"),
    )
    return (
        first("write", CONTROL, "+memory"),
        *within(
            "a/b",
            *within(
                "a/b/x",
                *within(
                    "a/b/y",
                    *within(
                        "a/c",
                        first("write", f"{ab}/y/cgroup.type", "threaded"),
                        *started(1, C, "threads 4"),
                        first("spawn", 2),
                        first("tell", 2, "uid 1000"),
                        *(row for refusal in refusals for row in (refusal, *stays)),
                        does("members", procs(ac), text=""),
                        *ended(1, 2),
                        *emptied(C)[:1],
                    ),
                ),
            ),
        ),
    )


STILL = tuple(range(100, 150))


def _listed(turns: int) -> tuple[Row, ...]:
    """Fifty processes rest in `a` while others come and go there."""
    all_still = holds(*map(str, STILL))
    return (
        *(row for n in STILL for row in (first("spawn", n, A),)),
        *started(1, A, "threads 3"),
        *started(2, B),
        *race(
            *(does("members", procs(A), text=all_still, lane=1) for _ in range(turns)),
            *_moves(1, turns // 2, lane=2),
            *_moves(2, turns // 2, lane=2, groups=(A, B)),
            *(
                row
                for n in range(10, 10 + turns // 4)
                for row in (
                    does("spawn", n, A, lane=3),
                    does("tell", n, "exit 0", lane=3),
                    does("reap", n, PATIENCE_MS, text="exit 0", lane=3),
                )
            ),
        ),
        does("members", procs(A), text=all_still),
        *ended(1, 2, *STILL),
        awaited(A, "populated 0"),
    )


def _threads_listed(turns: int) -> tuple[Row, ...]:
    """More threads than fit on a page rest in `a` while others come and go there."""
    return (
        *started(1, A, *["threads 300"] * 3),
        *started(2, B, "threads 4", "passing 1"),
        *race(
            *(does("missing", 1, f"{A}/cgroup.threads", text="", lane=1) for _ in range(turns)),
            *_moves(2, turns * 2, lane=2, groups=(A, B)),
        ),
        *ended(1, 2),
        awaited(A, "populated 0"),
    )


def _read_while_they_end(turns: int) -> tuple[Row, ...]:
    """Both lists are read while processes and threads end in the group as fast as they can."""
    return (
        *started(1, A, "storm 1", "passing 1"),
        *started(2, A, "passing 2"),
        *race(
            *(does("members", procs(A), text=holds("1", "2"), lane=1) for _ in range(turns)),
            *(does("read", f"{A}/cgroup.threads", lane=2) for _ in range(turns)),
            *(
                row
                for n in range(10, 10 + turns // 10)
                for row in (
                    does("spawn", n, A, lane=3),
                    does("tell", n, "threads 5", lane=3),
                    does("kill", n, 9, lane=3),
                    does("reap", n, PATIENCE_MS, text="signal 9", lane=3),
                )
            ),
        ),
        *ended(1, 2),
        awaited(A, "populated 0"),
    )


def _born() -> tuple[Row, ...]:
    return (
        *started(1, A),
        does("tell", 1, "fork", text=home(A)),
        does("tell", 1, f"fork {B}", text=home(B)),
        does("attach", 1, procs(B)),
        does("tell", 1, "fork", text=home(B)),
        does("tell", 1, f"fork {A}", text=home(A)),
        does("spawn", 2, A),
        does("tell", 2, "born", text=home(A)),
        does("homes", 2, text=home(A)),
        does("members", procs(A), text=holds("2")),
        *ended(1, 2),
        awaited(A, "populated 0"),
        awaited(B, "populated 0"),
    )


def _born_in_race(turns: int) -> tuple[Row, ...]:
    """Parents are moved between a and b while they fork, into c too; c's controllers are switched meanwhile."""
    rows = race(
        *(
            row
            for _ in range(turns)
            for row in (
                does("tell", 1, "fork", text=HERE, lane=1),
                does("tell", 2, f"fork {C}", text=home(C), lane=2),
            )
        ),
        *_moves(1, turns, lane=3),
        *_moves(2, turns, lane=3),
        *(does("write", f"{ROOT}/c/pids.max", n, lane=4) for n in range(1_000, 1_000 + turns)),
    )
    return (
        *started(1, A),
        *started(2, A),
        *rows,
        *_moves(1, 1, groups=(B,)),
        *_moves(2, 1, groups=(B,)),
        does("read", procs(A), key="in a"),
        does("read", procs(B), key="in b"),
        does("read", procs(C), key="in c"),
        *ended(1, 2),
        *(awaited(group, "populated 0") for group in (A, B, C)),
    )


def _all_there(turns: int) -> Relation:
    def relation(seen: Mapping[str, Outcome]) -> str:
        a, b, c = (len(set(seen[f"in {name}"].text.split())) for name in "abc")
        if a + b == turns + 2 and c == turns:
            return ""
        return f"{a} and {b} processes in a and b, {c} in c; born were {turns + 2} and {turns}"

    return relation


def _evacuated(turns: int) -> tuple[Row, ...]:
    """What is listed is moved away, again and again, while it forks; at rest everything is in one place."""
    return (
        *started(1, A, "storm 2"),
        *started(2, A, "chain 2"),
        *race(
            *(does("evacuate", procs(A), procs(B), lane=1) for _ in range(turns)),
            *(does("evacuate", procs(B), procs(A), lane=2) for _ in range(turns)),
        ),
        does("homes", 1, text=HERE),
        does("write", f"{A}/cgroup.kill", 1),
        does("write", f"{B}/cgroup.kill", 1),
        awaited(A, "populated 0"),
        awaited(B, "populated 0"),
        *ended(1, 2),
    )


def _not_born() -> tuple[Row, ...]:
    """A refused birth leaves nothing behind."""
    ab, ac = f"{A}/b", f"{A}/c"
    return (
        first("write", CONTROL, "+memory +pids"),
        *within(
            "a/b",
            *within(
                "a/c",
                does("spawn", 1, A, errno="EBUSY"),
                does("spawn", 1, f"{A}/nowhere", errno="ENOENT"),
                does("write", f"{ab}/pids.max", 0),
                does("spawn", 1, ab, errno="EAGAIN"),
                does("read", f"{ab}/pids.current", text="0"),
                does("members", procs(ab), text=""),
                does("write", f"{ab}/pids.max", "max"),
                does("spawn", 1, ab),
                does("tell", 1, "born", text=home(ab)),
                does("read", f"{ab}/pids.current", text="1"),
                first("spawn", 2),
                first("tell", 2, "uid 1000"),
                does("tell", 2, f"fork {ac}", errno="EACCES"),
                does("members", procs(ac), text=""),
                *ended(1, 2),
                awaited(A, "populated 0"),
            ),
        ),
    )


def _no_internal(turns: int) -> tuple[tuple[Row, ...], tuple[Relation, ...]]:
    """memory is enabled over `a` while processes start in it, by clone3() and by a move: never both."""
    rows: list[Row] = []
    for n in range(turns):
        rows += [
            first("spawn", 1),
            *race(
                does("spawn", 2, A, errno=" EBUSY", lane=1, key=f"born {n}"),
                does("attach", 1, procs(A), errno=" EBUSY", lane=2, key=f"moved {n}"),
                does("write", CONTROL, "+memory", errno=" EBUSY", lane=3, key=f"enabled {n}"),
            ),
            does("read", CONTROL, key=f"control {n}"),
            does("members", procs(A), key=f"members {n}"),
            *(unchecked(row) for row in ended(1, 2)),
            awaited(A, "populated 0"),
            does("write", CONTROL, "-memory"),
        ]
    return tuple(rows), tuple(_never_both(n) for n in range(turns))


def _never_both(turn: int) -> Relation:
    def relation(seen: Mapping[str, Outcome]) -> str:
        control, members = (seen[f"{what} {turn}"].text.split() for what in ("control", "members"))
        born, moved, enabled = (not seen[f"{what} {turn}"].errno for what in ("born", "moved", "enabled"))
        if control and members:
            return f"{' '.join(control)} is enabled over processes {' '.join(members)}"
        if (control == ["memory"]) != enabled or set(members) != {
            n for n, there in (("2", born), ("1", moved)) if there
        }:
            return f"told: born {born}, moved {moved}, enabled {enabled}; there: {control}, {members}"
        return ""

    return relation


def _pids(limit: int, lanes: int) -> tuple[Row, ...]:
    return (
        first("write", f"{A}/pids.max", limit),
        *race(*(does("spawn", n, A, errno=" EAGAIN", lane=n, key=f"born {n}") for n in range(lanes))),
        does("members", procs(A), key="members"),
        does("read", f"{A}/pids.current", key="current"),
        *(unchecked(row) for row in ended(*range(lanes))),
        awaited(A, "populated 0"),
        first("write", f"{A}/pids.max", "max"),
    )


def _counted(lanes: int) -> Relation:
    def relation(seen: Mapping[str, Outcome]) -> str:
        born = {str(n) for n in range(lanes) if not seen[f"born {n}"].errno}
        members, current = set(seen["members"].text.split()), seen["current"].text.strip()
        if members == born and current == str(len(born)):
            return ""
        return f"born: {sorted(born)}, listed: {sorted(members)}, pids.current: {current}"

    return relation


_BOTH = _no_internal(12)

PROMISES = (
    Promise(
        "a process moves with all its threads (21)",
        "cgroup-v2.rst: 'When a PID is written, all threads of the process are migrated'; cgroup_attach_task",
        within("a", *within("b", *_whole("threads 6", "spin 1"))),
    ),
    Promise(
        "a process whose threads come and go moves whole, whoever moves it (21)",
        "cgroup-v2.rst, Processes; cgroup_threadgroup_rwsem keeps threads from starting and ending during a move",
        within("a", *within("b", *_whole_in_race(15))),
        full=True,
    ),
    Promise(
        "a process is listed and moves after its first thread has ended (21, 23)",
        "css_task_iter_advance: 'dying leaders with live member threads' are listed",
        within("a", *within("b", *_heir_moves())),
    ),
    Promise(
        "a refused move leaves every thread where it was (22)",
        "cgroup-v2.rst, No Internal Process Constraint, Threads, Delegation Containment; cgroup_procs_write_start;"
        " __cgroup_procs_write returns before cgroup_attach_task",
        within("c", *within("a", *_refused_moves())),
        needs=("memory.max", "cgroup.type"),
    ),
    Promise(
        "a process that rests is listed while others come and go (23)",
        "cgroup-v2.rst, cgroup.procs: 'lists the PIDs of all processes which belong to the cgroup one-per-line'",
        within("a", *within("b", *_listed(80))),
        full=True,
    ),
    Promise(
        "a thread that rests is listed while others come and go (23)",
        "cgroup-v2.rst, cgroup.threads; css_task_iter_advance over more than one page of output",
        within("a", *within("b", *_threads_listed(5))),
        full=True,
    ),
    Promise(
        "lists can be read while their processes and threads end (23)",
        "cgroup-v2.rst, cgroup.procs and cgroup.threads; css_task_iter_advance skips those that are gone",
        within("a", *_read_while_they_end(100)),
        full=True,
    ),
    Promise(
        "a child starts in its parent's group, or in the one that clone3 names (24)",
        "cgroup-v2.rst: 'a child process is born into the cgroup which the forking process belongs to at the time of"
        " the operation'; clone(2), CLONE_INTO_CGROUP",
        within("a", *within("b", *_born())),
    ),
    Promise(
        "a child starts in one of its parent's groups while that is moved, and is counted there (24)",
        "cgroup_css_set_fork holds cgroup_threadgroup_rwsem until cgroup_post_fork",
        within("a", *within("b", *within("c", *_born_in_race(20)))),
        needs=("pids.max",),
        relations=(_all_there(20),),
        full=True,
    ),
    Promise(
        "groups that are emptied while their processes fork lose nobody (21, 24)",
        "cgroup-v2.rst, Processes; cgroup_attach_task on newly forked processes",
        within("a", *within("b", *_evacuated(15))),
    ),
    Promise(
        "a refused birth leaves nothing behind (24, 28)",
        "clone(2), CLONE_INTO_CGROUP: EBUSY, EACCES; pids_can_fork: EAGAIN",
        within("a", *_not_born()),
        needs=("pids.max", "pids.current", "memory.max"),
    ),
    Promise(
        "no process gets below an enabled controller, and none is enabled over one (16, 22, 24)",
        "cgroup-v2.rst, No Internal Process Constraint; cgroup_migrate_vet_dst and cgroup_vet_subtree_control_enable"
        " under cgroup_mutex",
        within("a", *_BOTH[0]),
        needs=("memory.max",),
        relations=_BOTH[1],
        full=True,
    ),
    Promise(
        "of all who fork at once no more succeed than pids.max allows, and each is counted (28)",
        "cgroup-v2.rst, pids.max: 'Hard limit of number of processes'; pids_can_fork",
        within("a", *_pids(3, 8)),
        needs=("pids.max", "pids.current"),
        relations=(_counted(8), succeed(0, 3, [f"born {n}" for n in range(8)])),
        rounds=3,
    ),
)
