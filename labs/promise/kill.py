"""Promises of cgroup.kill: everything in the subtree dies, nothing else does, and the group is as good as before.

Read in kernel/cgroup/cgroup.c (cgroup_kill_write, __cgroup_kill, cgroup_post_fork) of 6.1.192, 6.12.117 and 7.2.13,
and in Documentation/admin-guide/cgroup-v2.rst, cgroup.kill; numbers are those of the lab's list of promises.
"""

from __future__ import annotations

from labs.promise import Promise, Row, does, first, within
from labs.promise.scene import (
    NOT_SUPPORTED,
    PATIENCE_MS,
    A,
    B,
    awaited,
    ended,
    home,
    one_of,
    procs,
    race,
    started,
    unchecked,
)

AB = f"{A}/b"
DEAD = "signal 9"
HEIR_MS = 1_000  # many kernels never do what is waited for here
DOCS = "cgroup-v2.rst, cgroup.kill: 'Killing a cgroup tree will deal with concurrent forks appropriately'"
# what a process does when the kill comes, by the orders of the agent (labs/probe/agent/orders.c)
KINDS = (
    (),  # sleeps
    ("threads 8",),
    ("spin 2",),
    ("threads 2", "yield 2"),
    ("passing 2",),  # its threads start and end
    ("alloc 4", "fork"),
    ("fork", "fork", "threads 2", "fork"),
    ("storm 2",),
    ("chain 2",),
    ("vfork",),
    ("traced",),
)


def killed(group: str, *numbers: int, ms: int = PATIENCE_MS) -> tuple[Row, ...]:
    """The group is killed: its processes end by SIGKILL, it becomes empty."""
    return (
        does("write", f"{group}/cgroup.kill", 1),
        *(does("reap", number, ms, text=DEAD) for number in numbers),
        does("await", f"{group}/cgroup.events", "populated 0", ms),
    )


def lives(number: int, group: str) -> tuple[Row, ...]:
    """The process answers, from there, and ends as it is told."""
    return (
        does("tell", number, "where", text=home(group)),
        does("tell", number, "exit 7"),
        does("reap", number, PATIENCE_MS, text="exit 7"),
    )


def _every_kind() -> tuple[Row, ...]:
    return tuple(row for kind in KINDS for row in (*started(1, A, *kind), *killed(A, 1)))


def _stopped() -> tuple[Row, ...]:
    return (
        *started(1, A, "threads 2"),
        first("kill", 1, 19),  # SIGSTOP
        first("state", 1, "T", PATIENCE_MS),
        *killed(A, 1),
        first("spawn", 2, "", "new"),
        first("spawn", 3, "", 2),
        *(first("attach", n, procs(A)) for n in (2, 3)),
        *killed(A, 3, 2),  # the first process of a pid namespace ends when all others there were reaped
    )


def _throttled() -> tuple[Row, ...]:
    """The quota is small beside what three spinning threads want, and large beside what it takes them to end: with
    2 ms of 100 they once took longer than anybody waits, on a host that had other things to do."""
    return (
        *started(1, A, "spin 3"),
        first("write", f"{A}/cpu.max", "20000 100000"),
        first("sleep", 200),
        *killed(A, 1),
        first("write", f"{A}/cpu.max", "max"),
    )


def _subtree() -> tuple[Row, ...]:
    """All below `a` dies, also in groups whose own file was not written; `b` beside it lives on."""
    groups = [A, AB, f"{AB}/x", f"{A}/c", f"{A}/c/y/z"]
    made = [f"{AB}", f"{AB}/x", f"{A}/c", f"{A}/c/y", f"{A}/c/y/z"]
    return (
        *(first("mkdir", group) for group in made),
        *(row for n, group in enumerate(groups) for row in started(n, group, "threads 1", "fork")),
        *started(9, B),
        *killed(A, *range(len(groups))),
        *(awaited(group, "populated 0") for group in groups),
        *lives(9, B),
        *(does("rmdir", group) for group in reversed(made)),
    )


def _storms() -> tuple[Row, ...]:
    groups = [f"{A}/{name}" for name in "xyz"]
    kinds = ("storm 3",), ("chain 4",), ("passing 2", "storm 1", "chain 1")
    return (
        *(first("mkdir", group) for group in groups),
        *(row for n, group in enumerate(groups) for row in started(n, group, *kinds[n])),
        first("sleep", 20),
        *killed(A, *range(len(groups))),
        *(does("members", procs(group), text="") for group in groups),
        *(does("rmdir", group) for group in groups),
    )


def _storms_by_lanes() -> tuple[Row, ...]:
    """Four groups of fork storms, each killed by a lane of its own at the same time, one of them twice."""
    groups = [f"{A}/{n}" for n in range(4)]
    return (
        *(first("mkdir", group) for group in groups),
        *(row for n, group in enumerate(groups) for row in started(n, group, "storm 1", "chain 1")),
        *race(
            *(does("write", f"{group}/cgroup.kill", 1, lane=n) for n, group in enumerate(groups)),
            does("write", f"{groups[0]}/cgroup.kill", 1, lane=5),
        ),
        *(does("reap", n, PATIENCE_MS, text=DEAD) for n in range(4)),
        *(awaited(group, "populated 0") for group in groups),
        *(does("rmdir", group) for group in groups),
    )


def _ending(turns: int) -> tuple[Row, ...]:
    """The kill meets a process that ends by itself, with many threads."""
    rows: list[Row] = []
    for _ in range(turns):
        rows += [
            *started(1, A, "threads 10"),
            *race(does("tell", 1, "exit 7", errno=" ESRCH", lane=1), does("write", f"{A}/cgroup.kill", 1, lane=2)),
            does("reap", 1, PATIENCE_MS, text=one_of("exit 7", DEAD)),
            awaited(A, "populated 0"),
        ]
    return tuple(rows)


def _refused() -> tuple[Row, ...]:
    values = ("0", "ERANGE"), ("2", "ERANGE"), ("-1", "ERANGE"), ("foo", "EINVAL"), ("1 1", "EINVAL")
    return (
        *started(1, A),
        *(row for value, errno in values for row in (does("write", f"{A}/cgroup.kill", value, errno=errno),)),
        *within(
            "a/b",
            first("write", f"{AB}/cgroup.type", "threaded"),
            does("write", f"{AB}/cgroup.kill", 1, errno=NOT_SUPPORTED),
        ),
        *lives(1, A),
    )


def _used_again() -> tuple[Row, ...]:
    """After a kill, of an empty group and of a full one, those who start or come here live."""
    return (
        does("write", f"{A}/cgroup.kill", 1),
        does("spawn", 1, A),
        *lives(1, A),
        *started(2, A),
        *killed(A, 2),
        does("write", f"{A}/cgroup.kill", 1),
        does("spawn", 3, A),
        does("tell", 3, "fork", text=home(A)),
        *lives(3, A),
        awaited(A, "populated 0"),
        first("spawn", 4),
        does("attach", 4, procs(A)),
        does("tell", 4, "fork", text=home(A)),
        *lives(4, A),
        awaited(A, "populated 0"),
        does("spawn", 5, A),
        *killed(A, 5),
    )


def _parent_was_killed_over() -> tuple[Row, ...]:
    """Groups that were killed a different number of times: births from one into the other live, both ways."""
    return (
        *(does("write", f"{A}/cgroup.kill", 1) for _ in range(3)),
        does("write", f"{B}/cgroup.kill", 1),
        *started(1, A),
        *started(2, B),
        does("tell", 1, f"fork {B}", text=home(B)),
        does("tell", 2, f"fork {A}", text=home(A)),
        does("attach", 1, procs(B)),
        does("tell", 1, "fork", text=home(B)),
        does("tell", 1, f"fork {A}", text=home(A)),
        does("attach", 2, procs(A)),
        does("tell", 2, "fork", text=home(A)),
        *lives(1, B),
        *lives(2, A),
        awaited(A, "populated 0"),
        awaited(B, "populated 0"),
    )


def _ancestor_was_killed() -> tuple[Row, ...]:
    return (
        does("write", f"{A}/cgroup.kill", 1),
        does("spawn", 1, AB),
        *lives(1, AB),
        does("write", f"{AB}/cgroup.kill", 1),
        does("spawn", 2, A),
        *lives(2, A),
        does("spawn", 3, AB),
        *killed(A, 3),
    )


def _sibling_is_killed(turns: int) -> tuple[Row, ...]:
    """Births into `a` live while `b` is killed all the time."""
    return (
        *race(
            *(
                row
                for n in range(turns)
                for row in (
                    does("spawn", n, A, lane=1),
                    does("tell", n, "exit 7", lane=1),
                    does("reap", n, PATIENCE_MS, text="exit 7", lane=1),
                )
            ),
            *(does("write", f"{B}/cgroup.kill", 1, lane=2) for _ in range(turns * 5)),
        ),
        awaited(A, "populated 0"),
    )


def _born_into_a_kill(turns: int) -> tuple[Row, ...]:
    """Births into `a` while it is killed: each lives or dies, and none escapes the next kill."""
    rows: list[Row] = []
    for _ in range(turns):
        rows += [
            *race(
                *(does("spawn", n, A, lane=1) for n in range(3)),
                does("write", f"{A}/cgroup.kill", 1, lane=2),
                does("write", f"{A}/cgroup.kill", 1, lane=2),
            ),
            *killed(A, *range(3)),
        ]
    return tuple(rows)


def _migrated(*orders: str, settle: tuple[Row, ...] = ()) -> tuple[Row, ...]:
    """A process leaves `a`, which is then killed: it lives."""
    return (
        *started(1, A, *orders),
        *settle,
        does("attach", 1, procs(B)),
        does("write", f"{A}/cgroup.kill", 1),
        does("tell", 1, "where", text=home(B)),
        does("homes", 1, text=home(B)),
        does("write", f"{A}/cgroup.kill", 1),
        does("sleep", 5),
        does("tell", 1, "where", text=home(B)),
        *ended(1),
        awaited(B, "populated 0"),
    )


def _heir_is_killed() -> tuple[Row, ...]:
    """The first thread ends in `a`, the others move on to `b`: they die with `b`."""
    return (
        *started(1, A, "threads 2", "heir"),
        first("state", 1, "Z", PATIENCE_MS),
        does("attach", 1, procs(B)),
        *killed(B, 1, ms=HEIR_MS),
    )


def _migrating(turns: int) -> tuple[Row, ...]:
    """Moves from `a` race with kills of it: what was moved away before the last kill began lives on after it."""
    rows: list[Row] = []
    for _ in range(turns):
        rows += [
            *started(1, A, "threads 2"),
            *race(
                does("attach", 1, procs(B), errno=" ESRCH", lane=1),
                does("write", f"{A}/cgroup.kill", 1, lane=2),
            ),
            unchecked(does("tell", 1, "where")),
            does("write", f"{B}/cgroup.kill", 1),
            does("reap", 1, PATIENCE_MS, text=DEAD),
            awaited(A, "populated 0"),
            awaited(B, "populated 0"),
        ]
    return tuple(rows)


PROMISES = (
    Promise(
        "a kill ends every kind of process (25)",
        DOCS,
        within("a", *_every_kind()),
        rounds=2,
        needs=("cgroup.kill",),
    ),
    Promise(
        "a kill ends the last of a chain of forks (25)",
        f"{DOCS}; missed in a short window by every kernel that has kill_seq, see patches/kernel/kill-forks",
        within("a", *(row for _ in range(4) for row in (*started(1, A, "chain 1"), *killed(A, 1)))),
        needs=("cgroup.kill",),
    ),
    Promise(
        "a kill ends a process of which a thread replaces the program (25)",
        "cgroup-v2.rst, cgroup.kill; execve(2): the first thread ends when another one calls it, see de_thread",
        within("a", *(row for _ in range(5) for row in (*started(1, A, "exec"), *killed(A, 1, ms=HEIR_MS)))),
        needs=("cgroup.kill",),
        rounds=4,
        full=True,
    ),
    Promise(
        "a kill ends a process that moved here after its first thread had ended (25, 21)",
        DOCS,
        within("b", *within("a", *_heir_is_killed())),
        needs=("cgroup.kill",),
        full=True,
    ),
    Promise(
        "a kill ends stopped processes and pid namespaces (25)",
        DOCS,
        within("a", *_stopped()),
        needs=("cgroup.kill",),
    ),
    Promise(
        "a kill ends throttled processes (25)",
        DOCS,
        within("a", *_throttled()),
        needs=(
            "cgroup.kill",
            "cpu.max",
        ),
    ),
    Promise(
        "a kill ends the whole subtree and nothing beside it (25)",
        "cgroup-v2.rst, cgroup.kill: 'Writing 1 to the file causes the cgroup and all descendant cgroups to be killed'",
        within("b", *within("a", *_subtree())),
        needs=("cgroup.kill",),
    ),
    Promise(
        "a kill ends processes that fork as fast as they can (25)",
        DOCS,
        within("a", *_storms()),
        rounds=4,
        needs=("cgroup.kill",),
        full=True,
    ),
    Promise(
        "kills of several storms at once end them all (25)",
        DOCS,
        within("a", *_storms_by_lanes()),
        rounds=4,
        needs=("cgroup.kill",),
        full=True,
    ),
    Promise(
        "a kill that meets the end of a process leaves nothing (25, 35)",
        DOCS,
        within("a", *_ending(12)),
        needs=("cgroup.kill",),
    ),
    Promise(
        "a kill of another value is refused and ends nobody (25)",
        "cgroup-v2.rst, cgroup.kill: 'The only allowed value is 1', EOPNOTSUPP in a threaded cgroup; cgroup_kill_write",
        within("a", *_refused()),
        needs=(
            "cgroup.kill",
            "cgroup.type",
        ),
    ),
    Promise(
        "a process that starts in a group after a kill lives (26)",
        "clone(2), CLONE_INTO_CGROUP; 'cgroup: fix race between fork and cgroup.kill' kills only what forks during it",
        within("a", *_used_again()),
        needs=("cgroup.kill",),
    ),
    Promise(
        "a process that starts from one killed group in another lives (26)",
        "clone(2), CLONE_INTO_CGROUP; cgroup_css_set_fork",
        within("b", *within("a", *_parent_was_killed_over())),
        needs=("cgroup.kill",),
    ),
    Promise(
        "a process that starts below or above a killed group lives (26)",
        "clone(2), CLONE_INTO_CGROUP; cgroup_css_set_fork",
        within("a", *within("a/b", *_ancestor_was_killed())),
        needs=("cgroup.kill",),
    ),
    Promise(
        "a process that starts while another group is killed lives (26)",
        "cgroup-v2.rst, cgroup.kill; kill_seq is counted for each group",
        within("b", *within("a", *_sibling_is_killed(25))),
        needs=("cgroup.kill",),
    ),
    Promise(
        "no process that starts during a kill escapes the next one (25, 26)",
        DOCS,
        within("a", *_born_into_a_kill(12)),
        needs=("cgroup.kill",),
    ),
    Promise(
        "a process that has left a group outlives its kill (25, 21)",
        "cgroup-v2.rst, cgroup.kill: the processes of the cgroup and its descendants, no others",
        within("b", *within("a", *_migrated("threads 4"))),
        rounds=3,
        needs=("cgroup.kill",),
    ),
    Promise(
        "a process that has left a group with threads that end outlives its kill (25, 21)",
        "'cgroup: don't kill migrated processes through their exiting threads'; cgroup_migrate_add_task leaves an"
        " exiting thread where it was",
        within(
            "b",
            *within("a", *_migrated("threads 2", "heir", settle=(first("state", 1, "Z", PATIENCE_MS),))),
            *within("a", *(row for _ in range(12) for row in _migrated("passing 3"))),
        ),
        needs=("cgroup.kill",),
        full=True,
    ),
    Promise(
        "moves away from a group that is killed end in life or death (25, 21)",
        DOCS,
        within("b", *within("a", *_migrating(12))),
        needs=("cgroup.kill",),
    ),
    # last: a kernel that does not keep it leaves a group behind, which spoils what follows in the same call
    Promise(
        "a kill ends a process whose first thread has ended (25)",
        DOCS,
        within(
            "a",
            *(
                row
                for orders in (("heir",), ("threads 3", "heir"))
                for row in (*started(1, A, *orders), first("state", 1, "Z", PATIENCE_MS), *killed(A, 1, ms=HEIR_MS))
            ),
        ),
        needs=("cgroup.kill",),
        full=True,
    ),
)
