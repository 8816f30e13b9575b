"""Promises of cgroup.freeze: in the end nothing runs, whoever comes; what is killed dies, what is thawed runs.

Read in kernel/cgroup/freezer.c and kernel/signal.c of 6.1.192, 6.12.117 and 7.2.13, and in
Documentation/admin-guide/cgroup-v2.rst, cgroup.freeze: "Freezing of the cgroup may take some time; when this action
is completed, the "frozen" value in the cgroup.events control file will be updated to "1"". That it is reached soon
is not promised; waits are bounded, and far longer than it takes.
"""

from __future__ import annotations

from labs.promise import Promise, Row, does, first, within
from labs.promise.kill import killed
from labs.promise.scene import PATIENCE_MS, A, B, awaited, ended, holds, home, one_of, procs, race, started

AB, AC = f"{A}/b", f"{A}/c"
# cgroup_propagate_frozen calls a group frozen when all below it are, before it has looked at the group's own processes:
# one that runs at that moment goes on until the interrupt that stops it (seen once: 1.7 ms, 6.1.187)
GRACE_MS = 40
WATCH_MS = 60  # how long a process is watched for that must not run; one that may run moves within a fraction of that
DOCS = "cgroup-v2.rst, cgroup.freeze: 'Writing 1 to the file causes freezing of the cgroup and all descendant cgroups'"


def freeze(group: str, value: int = 1, lane: int = 0) -> Row:
    return does("write", f"{group}/cgroup.freeze", value, lane=lane)


def frozen(group: str, *numbers: int) -> tuple[Row, ...]:
    """The group says that it is frozen; a moment later none of the processes runs."""
    watched = tuple(does("moves", number, WATCH_MS, text="no") for number in numbers)
    return (awaited(group, "frozen 1"), *((does("sleep", GRACE_MS), *watched) if watched else ()))


def runs(*numbers: int) -> tuple[Row, ...]:
    return tuple(does("moves", number, PATIENCE_MS, text="yes") for number in numbers)


def thawed(group: str, *numbers: int) -> tuple[Row, ...]:
    return (freeze(group, 0), awaited(group, "frozen 0"), *runs(*numbers))


KINDS = ("spin 2",), ("passing 2",), ("storm 2",), ("chain 2",), ("spin 1", "vfork"), ("spin 1", "threads 4", "heir")


def _every_kind() -> tuple[Row, ...]:
    return tuple(
        row
        for kind in KINDS
        for row in (
            *started(1, A, *kind),
            *runs(1),
            freeze(A),
            *frozen(A, 1),
            does("read", f"{A}/cgroup.freeze", text="1"),
            *thawed(A, 1),
            *killed(A, 1)[:1],
            first("kill", 1, 9),  # cgroup.kill leaves a process whose first thread has ended, see the kill family
            first("reap", 1, PATIENCE_MS),
            awaited(A, "populated 0"),
        )
    )


def _stopped() -> tuple[Row, ...]:
    """A stopped process counts as frozen; SIGCONT does not let it run before the thaw."""
    return (
        *started(1, A, "spin 1"),
        first("kill", 1, 19),
        first("state", 1, "T", PATIENCE_MS),
        freeze(A),
        *frozen(A, 1),
        does("kill", 1, 18),
        does("moves", 1, WATCH_MS, text="no"),
        *frozen(A, 1),
        *thawed(A, 1),
        freeze(A),
        *frozen(A, 1),
        does("kill", 1, 19),
        *frozen(A, 1),
        freeze(A, 0),
        first("state", 1, "T", PATIENCE_MS),
        does("moves", 1, WATCH_MS, text="no"),
        does("kill", 1, 18),
        *runs(1),
        *ended(1),
        awaited(A, "populated 0"),
    )


def _moved() -> tuple[Row, ...]:
    """Who comes freezes, who leaves runs, who is born there freezes."""
    return (
        *started(1, B, "spin 1"),
        *started(2, A, "spin 1"),
        freeze(A),
        *frozen(A, 2),
        does("attach", 1, procs(A)),
        *frozen(A, 1, 2),
        does("attach", 2, procs(B)),
        *runs(2),
        *frozen(A, 1),
        does("tell", 2, "fork", text=home(B)),
        does("spawn", 3, A),
        *frozen(A, 1),
        does("read", f"{A}/cgroup.freeze", text="1"),
        *thawed(A, 1),
        does("tell", 3, "where", text=home(A)),
        *ended(1, 2, 3),
        awaited(A, "populated 0"),
        awaited(B, "populated 0"),
    )


def _levels() -> tuple[Row, ...]:
    """`a` and its child b are frozen one by one; b runs when neither is, c beside it when `a` is not."""
    return (
        *started(1, AC, "spin 1"),
        *started(2, AB, "spin 1"),
        freeze(A),
        *frozen(A, 1, 2),
        *(row for group in (AB, AC) for row in frozen(group)),
        *(does("read", f"{group}/cgroup.freeze", text="0") for group in (AB, AC)),
        freeze(AB),
        freeze(A, 0),
        awaited(A, "frozen 0"),
        awaited(AC, "frozen 0"),
        *runs(1),
        *frozen(AB, 2),
        freeze(A),
        freeze(AB, 0),
        *frozen(A, 1, 2),
        *frozen(AB),
        *thawed(A, 1, 2),
        awaited(AB, "frozen 0"),
        *ended(1, 2),
        awaited(A, "populated 0"),
    )


def _own_and_below() -> tuple[Row, ...]:
    """`a` has busy processes of its own and an idle one in its child, which freezes first."""
    return (
        *started(1, A, "spin 8"),
        *started(2, AB),
        freeze(A),
        *frozen(A, 1),
        *thawed(A, 1),
        *ended(1, 2),
        awaited(A, "populated 0"),
    )


def _made_below() -> tuple[Row, ...]:
    """A child made in a frozen group is frozen with it, and no longer than it."""
    return (
        *started(1, A, "spin 1"),
        freeze(A),
        *frozen(A, 1),
        does("mkdir", AB),
        *frozen(AB),
        does("spawn", 2, AB),
        *frozen(AB),
        *frozen(A, 1),
        *thawed(A, 1),
        awaited(AB, "frozen 0"),
        does("tell", 2, "where", text=home(AB)),
        *ended(1, 2),
        awaited(A, "populated 0"),
        does("rmdir", AB),
    )


def _made_in_race(turns: int) -> tuple[Row, ...]:
    """Children are made and removed while their parent freezes and thaws; at rest they are as it is."""
    rows: list[Row] = []
    for n in range(turns):
        child = f"{A}/n{n}"
        rows += [
            *race(
                does("mkdir", child, lane=1),
                does("mkdir", f"{child}/x", lane=1),
                freeze(A, 1, lane=2),
                freeze(A, 0, lane=2),
                freeze(A, n % 2, lane=2),
            ),
            *(awaited(group, f"frozen {n % 2}") for group in (A, child, f"{child}/x")),
            *race(does("rmdir", f"{child}/x", lane=1), does("rmdir", child, lane=1), freeze(A, 1 - n % 2, lane=2)),
            awaited(A, f"frozen {1 - n % 2}"),
        ]
    return (*started(1, A, "spin 1"), *rows, *thawed(A, 1), *ended(1), awaited(A, "populated 0"))


def _empty() -> tuple[Row, ...]:
    """Groups without processes freeze at once, and can be removed."""
    return (
        freeze(A),
        *frozen(A),
        *within("a/b", *frozen(AB), freeze(AB), *frozen(AB)),
        *frozen(A),
        *(row for text in ("2", "-1") for row in (does("write", f"{A}/cgroup.freeze", text, errno="ERANGE"),)),
        does("write", f"{A}/cgroup.freeze", "foo", errno="EINVAL"),
        does("read", f"{A}/cgroup.freeze", text="1"),
        freeze(A, 0),
        awaited(A, "frozen 0"),
    )


def _killed() -> tuple[Row, ...]:
    """SIGKILL and cgroup.kill end what is frozen, and leave the group frozen."""
    return (
        *started(1, A, "spin 2"),
        *started(2, A, "storm 1"),
        *started(3, A, "spin 1", "vfork"),
        freeze(A),
        *frozen(A, 1, 2),
        does("kill", 1, 9),
        does("reap", 1, PATIENCE_MS, text="signal 9"),
        *frozen(A, 2),
        *killed(A, 2, 3),
        does("read", f"{A}/cgroup.freeze", text="1"),
        *frozen(A),
        does("spawn", 4, A),
        *frozen(A),
        *killed(A, 4),
        freeze(A, 0),
        awaited(A, "frozen 0"),
    )


def _kill_in_race(turns: int) -> tuple[Row, ...]:
    rows: list[Row] = []
    for n in range(turns):
        rows += [
            *started(1, A, "storm 1", "threads 2"),
            *started(2, A, "passing 1"),
            *race(
                *(freeze(A, value, lane=1) for value in (1, 0, 1, n % 2)),
                does("write", f"{A}/cgroup.kill", 1, lane=2),
            ),
            does("reap", 1, PATIENCE_MS, text="signal 9"),
            does("reap", 2, PATIENCE_MS, text="signal 9"),
            awaited(A, "populated 0"),
            awaited(A, f"frozen {n % 2}"),
            freeze(A, 0),
        ]
    return tuple(rows)


def _moved_in_race(turns: int) -> tuple[Row, ...]:
    """Processes move between a frozen group and one that runs; at rest each is as its group is, and both tell so."""
    rows: list[Row] = []
    for _ in range(turns):
        rows += [
            *race(
                *(does("attach", 1, procs(group), lane=1) for group in (A, B) * 3),
                *(does("attach", 2, procs(group), lane=2) for group in (B, A) * 3),
                *(freeze(A, value, lane=3) for value in (0, 1) * 3),
            ),
            *frozen(A, 2),
            does("homes", 2, text=home(A)),
            awaited(B, "frozen 0"),
            *runs(1),
        ]
    return (
        *started(1, B, "spin 1"),
        *started(2, A, "passing 1"),
        freeze(A),
        *rows,
        *thawed(A, 2),
        *ended(1, 2),
        awaited(A, "populated 0"),
        awaited(B, "populated 0"),
    )


def _storm(turns: int) -> tuple[Row, ...]:
    rows = [row for _ in range(turns) for row in (freeze(A), *frozen(A, 1, 2), *thawed(A, 1))]
    return (*started(1, A, "storm 2"), *started(2, A, "chain 2"), *rows, *killed(A, 1, 2))


def _kept() -> tuple[Row, ...]:
    """Writes to other files and moves leave the state of freezing as it was."""
    other = ("cpu.weight", 300), ("pids.max", 50), ("memory.high", "max"), ("cpu.max", "50000 100000")
    return (
        *started(1, A, "spin 1"),
        first("spawn", 2),
        freeze(A),
        *frozen(A, 1),
        *race(
            *(does("write", f"{A}/{file}", value, lane=1) for file, value in other * 5),
            *(row for _ in range(10) for row in (does("attach", 2, procs(g), lane=2) for g in (A, B))),
            *(does("read", f"{A}/cgroup.freeze", text="1", lane=3) for _ in range(30)),
            *(does("read", f"{A}/cgroup.events", text=holds("populated 1"), lane=3) for _ in range(30)),
        ),
        does("read", f"{A}/cgroup.freeze", text="1"),
        *frozen(A, 1),
        does("tell", 2, "where", text=one_of(home(B))),
        *ended(1, 2),
        awaited(A, "populated 0"),
        freeze(A, 0),
    )


def _flips() -> tuple[Row, ...]:
    return (
        *started(1, A, "spin 1"),
        first("watch", 1, f"{A}/cgroup.events"),
        does("notices", 1, WATCH_MS, text="0"),
        freeze(A),
        awaited(A, "frozen 1"),
        does("notices", 1, WATCH_MS, text="1"),
        freeze(A),
        does("notices", 1, WATCH_MS, text="0"),
        freeze(A, 0),
        awaited(A, "frozen 0"),
        does("notices", 1, WATCH_MS, text="1"),
        *ended(1),
        awaited(A, "populated 0"),
    )


PROMISES = (
    Promise(
        "nothing of a frozen group runs, and all of a thawed one (27)",
        DOCS,
        within("a", *_every_kind()),
        needs=("cgroup.freeze",),
    ),
    Promise(
        "a stopped process freezes too, and does not run before the thaw (27)",
        "cgroup_enter_frozen in do_signal_stop; cgroup-v2.rst, cgroup.freeze",
        within("a", *_stopped()),
        needs=("cgroup.freeze",),
        full=True,
    ),
    Promise(
        "who comes into a frozen group freezes, who leaves it runs (27)",
        "cgroup-v2.rst, cgroup.freeze: 'They also can enter and leave a frozen cgroup'; cgroup_freezer_migrate_task",
        within("b", *within("a", *_moved())),
        needs=("cgroup.freeze",),
        full=True,
    ),
    Promise(
        "a group is frozen while it or one above it is (27)",
        "cgroup-v2.rst, cgroup.freeze: 'A cgroup can be frozen either by its own settings, or by settings of any"
        " ancestor cgroups'",
        within("a", *within("a/b", *within("a/c", *_levels()))),
        needs=("cgroup.freeze",),
        full=True,
    ),
    Promise(
        "a group with processes of its own freezes with those below (27)",
        DOCS,
        within("a", *within("a/b", *_own_and_below())),
        needs=("cgroup.freeze",),
        rounds=2,
    ),
    Promise(
        "a group that is made below a frozen one is frozen as long as that (27)",
        "cgroup_create copies e_freeze of the parent; cgroup-v2.rst, cgroup.freeze",
        within("a", *_made_below()),
        needs=("cgroup.freeze",),
    ),
    Promise(
        "groups that are made while their parent freezes and thaws are as it is in the end (27)",
        "cgroup_create and cgroup_freeze hold cgroup_mutex",
        within("a", *_made_in_race(10)),
        needs=("cgroup.freeze",),
    ),
    Promise(
        "an empty group freezes and other values are refused (27)",
        "cgroup_do_freeze: empty leaf cgroups are frozen at once; cgroup_freeze_write",
        within("a", *_empty()),
        needs=("cgroup.freeze",),
    ),
    Promise(
        "what is frozen can be killed, and the group stays frozen (25, 27)",
        "cgroup-v2.rst, cgroup.freeze: 'Processes in the frozen cgroup can be killed by a fatal signal'",
        within("a", *_killed()),
        needs=("cgroup.freeze",),
    ),
    Promise(
        "a kill ends processes that freeze and thaw meanwhile (25, 27)",
        "cgroup-v2.rst, cgroup.freeze and cgroup.kill",
        within("a", *_kill_in_race(8)),
        needs=("cgroup.freeze",),
        full=True,
    ),
    Promise(
        "processes that move while groups freeze and thaw are in the end as their group is (27)",
        "cgroup_freezer_migrate_task counts frozen tasks under css_set_lock",
        within("b", *within("a", *_moved_in_race(8))),
        needs=("cgroup.freeze",),
        full=True,
    ),
    Promise(
        "processes that fork as fast as they can freeze and thaw (27)",
        DOCS,
        within("a", *_storm(5)),
        needs=("cgroup.freeze",),
        full=True,
    ),
    Promise(
        "limits that are written and processes that pass leave a group frozen (27)",
        "cgroup-v2.rst, cgroup.freeze: only a write to the file changes it",
        within("b", *within("a", *_kept())),
        needs=("cgroup.freeze", "cpu.weight", "pids.max", "memory.high", "cpu.max"),
        full=True,
    ),
    Promise(
        "frozen is told once for each change (34)",
        "cgroup_update_frozen_flag: cgroup_file_notify when the state changes",
        within("a", *_flips()),
        needs=("cgroup.freeze",),
    ),
)
