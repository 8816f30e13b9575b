"""Promises of the end: a group whose last process was reaped can be removed, and rmdir never waits for its caller.

Read in kernel/cgroup/cgroup.c (cgroup_rmdir, cgroup_destroy_locked, cgroup_task_dead) of 6.1.192, 6.12.117 and 7.2.13,
and in Documentation/admin-guide/cgroup-v2.rst; numbers are those of the lab's list of promises.
"""

from __future__ import annotations

from labs.promise import ROOT, Promise, Row, does, first, within
from labs.promise.scene import (
    PATIENCE_MS,
    A,
    Predicate,
    awaited,
    either,
    ended,
    holds,
    lacks,
    procs,
    race,
    started,
    unchecked,
)

RMDIR_MS = 3_000  # an rmdir that has not returned by then waits for something that will not come
KINDS = (
    (),
    ("threads 12",),
    ("spin 2",),
    ("passing 3",),
    ("alloc 16",),
    ("heir",),
    ("threads 4", "heir"),
)


def removed(group: str = A) -> tuple[Row, ...]:
    return does("rmdir", group), does("list", ROOT, text=lacks(group.rsplit("/", 1)[-1] + "/"))


def _reaped(how: str, turns: int) -> tuple[Row, ...]:
    """Processes of every kind end, by themselves or by a signal; once reaped, the group can go."""
    rows: list[Row] = []
    for kind in KINDS * turns:
        end = does("tell", 1, "exit 0") if how == "exit 0" else does("kill", 1, 9)
        rows += [first("mkdir", A), *started(1, A, *kind), end, does("reap", 1, PATIENCE_MS, text=how), *removed()]
    return tuple(rows)


def _unpopulated(turns: int) -> tuple[Row, ...]:
    """What the files say right after the last process was reaped."""
    rows: list[Row] = []
    for kind in KINDS[:4] * turns:
        rows += [
            *started(1, A, *kind),
            does("kill", 1, 9),
            does("reap", 1, PATIENCE_MS, text="signal 9"),
            does("members", procs(A), text=""),
            does("read", f"{A}/cgroup.events", text=holds("populated 0")),
        ]
    return tuple(rows)


def _many(turns: int) -> tuple[Row, ...]:
    """Many processes are killed at once and reaped; their groups go, deepest first."""
    below = [f"{A}/{name}" for name in "xyz"]
    rows: list[Row] = []
    for _ in range(turns):
        rows += [
            first("mkdir", A),
            *(first("mkdir", group) for group in below),
            *(first("spawn", n, below[n % 3]) for n in range(9)),
            does("write", f"{A}/cgroup.kill", 1),
            *(does("reap", n, PATIENCE_MS, text="signal 9") for n in range(9)),
            *(does("rmdir", group) for group in below),
            *removed(),
        ]
    return tuple(rows)


def _unreaped(*orders: str) -> tuple[Row, ...]:
    """The caller's own child has ended and is not reaped: the group is removed without waiting for that."""
    return (
        first("mkdir", A),
        *started(1, A, *orders),
        does("kill", 1, 9),
        first("state", 1, "Z", PATIENCE_MS),
        awaited(A, "populated 0"),
        *removed(),
        does("reap", 1, PATIENCE_MS, text="signal 9"),
    )


def _dying(turns: int) -> tuple[Row, ...]:
    """rmdir right after the kill, before its end: it says EBUSY or removes the group, and returns."""
    rows: list[Row] = []
    for n in range(turns):
        rows += [
            first("mkdir", A),
            *started(1, A, *KINDS[n % len(KINDS)]),
            *started(2, A),
            does("kill", 1, 9),
            does("kill", 2, 9),
            *(unchecked(does("rmdir", A)) for _ in range(3)),
            does("reap", 1, PATIENCE_MS, text="signal 9"),
            does("reap", 2, PATIENCE_MS, text="signal 9"),
            does("rmdir", A, errno=" ENOENT"),
            does("list", ROOT, text=lacks("a/")),
        ]
    return tuple(rows)


def _namespace() -> tuple[Row, ...]:
    """Process 1 is the first of a pid namespace, process 2 a child of the caller in there. Both are killed. The end of
    process 1 has to wait until process 2 was reaped, which is up to the caller of rmdir."""
    return (
        first("mkdir", A),
        first("spawn", 1, A, "new"),
        first("spawn", 2, A, 1),
        does("kill", 1, 9),
        first("state", 2, "Z", PATIENCE_MS),
        does("rmdir", A, errno=" EBUSY"),
        does("reap", 2, PATIENCE_MS, text="signal 9"),
        does("reap", 1, PATIENCE_MS, text="signal 9"),
        does("rmdir", A, errno=" ENOENT"),
        does("list", ROOT, text=lacks("a/")),
    )


def _beside(turns: int) -> tuple[Row, ...]:
    """Removal while the caller's other children live, freeze, stop or wait to be reaped, elsewhere."""
    return (
        *started(1, f"{ROOT}/b"),
        *started(2, f"{ROOT}/b"),
        *started(3, f"{ROOT}/b"),
        does("kill", 2, 9),
        first("state", 2, "Z", PATIENCE_MS),
        does("kill", 3, 19),
        *(
            row
            for _ in range(turns)
            for row in (
                first("mkdir", A),
                does("spawn", 4, A),
                does("tell", 4, "exit 0"),
                does("reap", 4, PATIENCE_MS, text="exit 0"),
                *removed(),
            )
        ),
        *ended(1, 2, 3),
        awaited(f"{ROOT}/b", "populated 0"),
    )


def _or_there(turns: int, name: str) -> tuple[Row, ...]:
    """A process comes into a group while that is removed: one of both is refused."""
    rows: list[Row] = []
    for n in range(turns):
        group = f"{ROOT}/p{n}"
        comes = does("spawn", 1, group, errno=" ENOENT ENODEV", lane=1, key=f"come {n}")
        if name == "attach":
            comes = does("attach", 1, procs(group), errno=" ENOENT ENODEV", lane=1, key=f"come {n}")
            rows.append(first("spawn", 1))
        rows += [
            first("mkdir", group),
            *race(comes, does("rmdir", group, errno=" EBUSY", lane=2, key=f"go {n}")),
            *(unchecked(row) for row in ended(1)),
            does("rmdir", group, errno=" ENOENT"),
        ]
    return tuple(rows)


def _at_once(lanes: int, turns: int) -> tuple[Row, ...]:
    """Each lane makes a group, runs a process in it, reaps it and removes the group, all at the same time."""
    return race(
        *(
            row
            for n in range(lanes)
            for _ in range(turns)
            for row in (
                does("mkdir", f"{ROOT}/l{n}", lane=n),
                does("spawn", n, f"{ROOT}/l{n}", lane=n),
                does("kill", n, 9, lane=n),
                does("reap", n, PATIENCE_MS, text="signal 9", lane=n),
                does("rmdir", f"{ROOT}/l{n}", lane=n),
            )
        )
    )


def _counts(**wanted: int) -> Predicate:
    """Counters of cgroup.stat have these values, as far as this kernel has them (nr_subsys_*: from 6.12 on)."""

    def predicate(text: str) -> bool:
        told = dict(line.split(" ", 1) for line in text.split("\n") if " " in line)
        return "nr_descendants" in told and all(
            told.get(name, str(value)) == str(value) for name, value in wanted.items()
        )

    predicate.__doc__ = ", ".join(f"{name} {value}" for name, value in wanted.items())
    return predicate


def _still_dying() -> tuple[Row, ...]:
    """A zombie holds on to the controllers of a removed group: they are counted as dying from the moment of rmdir."""
    return (
        first("write", f"{A}/cgroup.subtree_control", "+pids"),
        first("mkdir", f"{A}/b"),
        *started(1, f"{A}/b"),
        does("kill", 1, 9),
        first("state", 1, "Z", PATIENCE_MS),
        awaited(f"{A}/b", "populated 0"),
        does("read", f"{A}/cgroup.stat", text=_counts(nr_descendants=1, nr_subsys_pids=2, nr_dying_subsys_pids=0)),
        does("rmdir", f"{A}/b"),
        does("read", f"{A}/cgroup.stat", text=_counts(nr_descendants=0, nr_subsys_pids=1, nr_dying_subsys_pids=1)),
        does("reap", 1, PATIENCE_MS, text="signal 9"),
    )


LAST = "cgroup-v2.rst: 'A cgroup which doesn't have any children or live processes can be destroyed by removing the"
LAST += " directory. Note that a cgroup which doesn't have any children and is associated only with zombie processes is"
LAST += " considered empty and can be removed'"
PROMISES = (
    Promise("a group can be removed once its last process was reaped (35)", LAST, _reaped("exit 0", 3)),
    Promise("a group can go once its last process was killed and reaped (35)", LAST, _reaped("signal 9", 3), full=True),
    Promise("groups can be removed once the processes of a tree were killed and reaped (35)", LAST, _many(6)),
    Promise(
        "a group is told to be empty once its last process was reaped (35)",
        "cgroup-v2.rst, cgroup.events: 'populated: 1 if the cgroup or its descendants contains any live processes;"
        " otherwise, 0'",
        within("a", *_unpopulated(4)),
        needs=("cgroup.events",),
        full=True,
    ),
    Promise("processes that end in many groups at once leave them all removable (35)", LAST, _at_once(6, 5), full=True),
    Promise(
        "a group whose processes the caller has not reaped can be removed (36)",
        LAST,
        tuple(row for kind in KINDS[:5] for row in _unreaped(*kind)),
        phase_ms=RMDIR_MS * 2,
    ),
    Promise(
        "rmdir returns while the processes of the group end (36)", LAST, _dying(14), phase_ms=RMDIR_MS * 2, full=True
    ),
    Promise(
        "rmdir returns when an end in the group has to wait for the caller (36)",
        "cgroup_rmdir must not wait for tasks whose end waits for its caller: 'cgroup: Defer css percpu_ref kill on"
        " rmdir until cgroup is depopulated' took the wait of 'cgroup: Wait for dying tasks to leave on rmdir' back",
        _namespace(),
        phase_ms=RMDIR_MS,
    ),
    Promise(
        "groups are removed while other children of the caller live, stop or are not reaped (36)",
        LAST,
        within("b", *_beside(10)),
    ),
    Promise(
        "a process moves into a group or the group is removed, not both (19, 20)",
        "cgroup_procs_write and cgroup_rmdir hold cgroup_mutex; kernfs_get_active gives ENODEV",
        _or_there(20, "attach"),
        relations=tuple(either(f"come {n}", f"go {n}") for n in range(20)),
        full=True,
    ),
    Promise(
        "a process starts in a group or the group is removed, not both (19, 20)",
        "cgroup_css_set_fork holds cgroup_mutex and gives ENODEV for a dead cgroup",
        _or_there(20, "spawn"),
        relations=tuple(either(f"come {n}", f"go {n}") for n in range(20)),
        full=True,
    ),
    Promise(
        "controllers of a removed group are counted as dying at once (20)",
        "'cgroup: Increment nr_dying_subsys_* from rmdir context': a user who reads cgroup.stat after rmdir must not"
        " take what the removed group holds for free",
        within("a", *_still_dying()),
        needs=("pids.max",),
    ),
)
