"""Promises of the tree of groups: controllers all or nothing, groups complete or absent, delegation, notifications.

Read in kernel/cgroup/cgroup.c of 6.1.192, 6.12.117 and 7.2.13 and in Documentation/admin-guide/cgroup-v2.rst; numbers
are those of the lab's list of promises.
"""

from __future__ import annotations

from collections.abc import Mapping

from labs.probe.script import Outcome
from labs.promise import ROOT, Promise, Relation, Row, does, first, within
from labs.promise.scene import (
    NOT_SUPPORTED,
    A,
    C,
    awaited,
    either,
    ended,
    holds,
    home,
    lacks,
    procs,
    race,
    same,
    started,
    succeed,
    unchecked,
)

AB, AC = f"{A}/b", f"{A}/c"
CONTROL = f"{A}/cgroup.subtree_control"
CORE = tuple(
    f"cgroup.{name}"
    for name in ("controllers", "events", "freeze", "kill", "procs", "stat", "subtree_control", "threads", "type")
)
QUIET_MS = 50  # cgroup_file_notify puts off a notification by 10 ms after the one before
UID = 1000


def control(group: str, change: str, then: str, errno: str = "") -> tuple[Row, ...]:
    """A write to subtree_control, and what it holds afterwards."""
    file = f"{group}/cgroup.subtree_control"
    return does("write", file, change, errno=errno), does("read", file, text=then)


def _refused_by_processes() -> tuple[Row, ...]:
    return (
        *started(1, A),
        *control(A, "+memory", "", errno="EBUSY"),
        *control(A, "+pids +memory", "", errno="EBUSY"),
        does("members", procs(A), text="1"),
        *ended(1),
        awaited(A, "populated 0"),
        *control(A, "+memory", "memory"),
    )


def _complete(turns: int) -> tuple[Row, ...]:
    files = (*CORE, "cpu.weight", "cpu.max", "pids.max", "pids.current")
    turn = (
        does("mkdir", AB),
        does("list", AB, text=holds(*files)),
        does("write", f"{AB}/cpu.weight", 300),
        does("write", f"{AB}/pids.max", 7),
        does("write", f"{AB}/cgroup.freeze", 0),
        does("read", f"{AB}/cpu.weight", text="300"),
        does("read", f"{AB}/pids.max", text="7"),
        does("rmdir", AB),
        does("list", A, text=lacks("b/")),
    )
    return first("write", CONTROL, "+cpu +pids"), *turn * turns


def _complete_while_toggled(turns: int) -> tuple[Row, ...]:
    """Lane 1 makes children, lane 2 switches cpu for them, lane 3 makes others; pids stays."""
    makes = [
        row
        for n in range(turns)
        for row in (
            does("mkdir", f"{A}/m{n}", lane=1),
            does("list", f"{A}/m{n}", text=holds(*CORE, "pids.max"), lane=1),
            does("write", f"{A}/m{n}/pids.max", n, lane=1),
            does("read", f"{A}/m{n}/pids.max", text=str(n), lane=1),
        )
    ]
    toggles = [does("write", CONTROL, change, lane=2) for change in ("+cpu", "-cpu") * (turns // 2)]
    others = [does(name, f"{A}/o", lane=3) for name in ("mkdir", "rmdir") * turns]
    kept = [f"{A}/m{n}" for n in range(turns)]
    return (
        first("write", CONTROL, "+pids"),
        *race(*makes, *toggles, *others),
        *control(A, "+cpu", "cpu pids"),
        *(does("read", f"{group}/cpu.weight", text="100") for group in kept),
        *control(A, "-cpu", "pids"),
        *(does("read", f"{group}/cpu.weight", errno="ENOENT") for group in kept),
        *(does("read", f"{group}/pids.max", text=str(n)) for n, group in enumerate(kept)),
        *(does("rmdir", group) for group in kept),
    )


def _subset(turns: int) -> tuple[tuple[Row, ...], tuple[Relation, ...]]:
    """Parent and child switch cpu on and off at once; whenever both rest, the child has no more than the parent."""
    changes = ("+cpu", "-cpu", "+cpu", "-cpu")
    rows: list[Row] = []
    for n in range(turns):
        rows += race(
            *(does("write", CONTROL, change, errno=" EBUSY" if change[0] == "-" else "", lane=1) for change in changes),
            *(does("write", f"{AB}/cgroup.subtree_control", change, errno=" ENOENT", lane=2) for change in changes[:3]),
        )
        rows.append(does("read", CONTROL, key=f"parent {n}"))
        rows.append(does("read", f"{AB}/cgroup.subtree_control", key=f"child {n}"))
    return (*rows, does("write", f"{AB}/cgroup.subtree_control", "-cpu")), tuple(_no_more(n) for n in range(turns))


def _no_more(turn: int) -> Relation:
    def relation(seen: Mapping[str, Outcome]) -> str:
        parent, child = (seen[f"{who} {turn}"].text.split() for who in ("parent", "child"))
        more = sorted(set(child) - set(parent))
        return f"the child has {' '.join(more)} enabled, its parent does not" if more else ""

    return relation


def _one_maker(turns: int, lanes: int) -> tuple[tuple[Row, ...], tuple[Relation, ...]]:
    """Several lanes make, then remove the same groups."""
    rows: list[Row] = []
    for name, other in (("mkdir", " EEXIST"), ("rmdir", " ENOENT")):
        for n in range(turns):
            rows += race(*(does(name, f"{A}/n{n}", errno=other, lane=i, key=f"{name} {n} {i}") for i in range(lanes)))
    relations = [
        succeed(1, 1, [f"{name} {n} {i}" for i in range(lanes)]) for name in ("mkdir", "rmdir") for n in range(turns)
    ]
    return tuple(rows), tuple(relations)


def _made_or_removed(turns: int) -> tuple[tuple[Row, ...], tuple[Relation, ...]]:
    """A child is made while its parent is removed: one of both is refused."""
    rows: list[Row] = []
    for n in range(turns):
        parent = f"{A}/p{n}"
        rows += [
            first("mkdir", parent),
            *race(
                does("mkdir", f"{parent}/x", errno=" ENOENT ENODEV", lane=1, key=f"make {n}"),
                does("rmdir", parent, errno=" EBUSY", lane=2, key=f"remove {n}"),
            ),
            unchecked(does("rmdir", f"{parent}/x")),
            unchecked(does("rmdir", parent)),
        ]
    return (*rows, does("list", A, text=lacks(*(f"p{n}/" for n in range(turns))))), tuple(
        either(f"make {n}", f"remove {n}") for n in range(turns)
    )


def _limited(lanes: int) -> tuple[Row, ...]:
    return (
        first("write", f"{A}/cgroup.max.descendants", 1),
        *race(*(does("mkdir", f"{A}/n{i}", errno=" EAGAIN", lane=i, key=f"n{i}") for i in range(lanes))),
        *(unchecked(does("rmdir", f"{A}/n{i}")) for i in range(lanes)),
        first("write", f"{A}/cgroup.max.descendants", "max"),
    )


def _deep(levels: int) -> tuple[Row, ...]:
    groups = [A + "/n" * depth for depth in range(levels)]
    return (
        *(row for group in groups for row in (*control(group, "+pids", "pids"), does("mkdir", f"{group}/n"))),
        *started(1, f"{groups[-1]}/n"),
        *(does("await", f"{group}/cgroup.events", "populated 1", 1_000) for group in groups),
        does("tell", 1, "where", text=home(f"{groups[-1]}/n")),
        does("read", f"{A}/pids.current", text="1"),
        *(does("rmdir", group, errno="EBUSY") for group in groups),
        *ended(1),
        awaited(A, "populated 0"),
        *(does("rmdir", f"{group}/n") for group in reversed(groups)),
    )


def _flips() -> tuple[Row, ...]:
    """`a` is watched; processes come and go in its children b and c."""

    def told(count: int, *rows: Row) -> tuple[Row, ...]:
        """These rows make the events file of `a` tell of so many changes."""
        return (*rows, does("notices", 1, QUIET_MS, text=str(count)))

    return (
        first("spawn", 1),
        first("spawn", 2),
        first("watch", 1, f"{A}/cgroup.events"),
        *told(0),
        *told(1, does("attach", 1, procs(AB)), awaited(A, "populated 1"), awaited(AB, "populated 1")),
        *told(0, does("attach", 2, procs(AC)), awaited(A, "populated 1"), awaited(AC, "populated 1")),
        *told(0, does("attach", 2, procs(AB)), awaited(AC, "populated 0"), awaited(A, "populated 1")),
        *told(0, *ended(1), awaited(A, "populated 1"), awaited(AB, "populated 1")),
        *told(1, *ended(2), awaited(A, "populated 0"), awaited(AB, "populated 0")),
    )


def _polled() -> tuple[Row, ...]:
    return (
        first("spawn", 1),
        first("open", 2, f"{A}/cgroup.events"),
        does("read_fd", 2, text=holds("populated 0")),
        does("poll_fd", 2, QUIET_MS, errno="ETIMEDOUT"),
        does("attach", 1, procs(A)),
        does("poll_fd", 2, 1_000),
        does("read_fd", 2, text=holds("populated 1")),
        does("poll_fd", 2, QUIET_MS, errno="ETIMEDOUT"),
        *ended(1),
        does("poll_fd", 2, 1_000),
        does("read_fd", 2, text=holds("populated 0")),
    )


def _namespace() -> tuple[Row, ...]:
    """Process 1 has a cgroup namespace that is rooted at `a`."""
    kept = ("cpu.weight", "300"), ("pids.max", "9"), ("cgroup.freeze", "0"), ("cgroup.max.depth", "5")
    return (
        *(first("write", f"{A}/{file}", value) for file, value in kept),
        *started(1, A, "cgroupns"),
        *(does("tell", 1, f"write {A}/{file} 1", errno="EPERM") for file, _ in kept),
        *(does("read", f"{A}/{file}", text=value) for file, value in kept),
        does("tell", 1, f"mkdir {AB}"),
        does("tell", 1, f"write {procs(AB)} 0"),
        does("tell", 1, f"write {CONTROL} +pids"),
        does("tell", 1, f"write {AB}/pids.max 7"),
        does("read", f"{AB}/pids.max", text="7"),
        does("members", procs(AB), text="1"),
        does("tell", 1, f"write {procs(C)} 0", errno="ENOENT"),
        does("members", procs(AB), text="1"),
        *ended(1),
        awaited(A, "populated 0"),
        does("rmdir", AB),
    )


def _delegated() -> tuple[Row, ...]:
    """Process 1 is a user who owns what of `a` may be delegated, and the list of processes of `c`."""
    owned = (A, procs(A), f"{A}/cgroup.threads", CONTROL, procs(C))
    return (
        *(first("chown", path, UID) for path in owned),
        first("write", f"{A}/pids.max", 9),
        *started(1, A, f"uid {UID}"),
        does("tell", 1, f"write {A}/pids.max 8", errno="EACCES"),
        does("read", f"{A}/pids.max", text="9"),
        does("tell", 1, f"mkdir {AB}"),
        does("tell", 1, f"mkdir {C}/x", errno="EACCES"),
        does("tell", 1, f"write {procs(AB)} 0"),
        does("members", procs(AB), text="1"),
        does("tell", 1, f"write {CONTROL} +pids"),
        does("tell", 1, f"write {AB}/pids.max 7"),
        # the list of c is writable, that of the common ancestor is not
        does("tell", 1, f"write {procs(C)} 0", errno="EACCES"),
        does("members", procs(AB), text="1"),
        does("members", procs(C), text=""),
        *ended(1),
        awaited(A, "populated 0"),
        does("rmdir", AB),
    )


def _threaded() -> tuple[Row, ...]:
    """`a` becomes the root of threads: b is threaded, c can be nothing until it is."""
    return (
        does("read", f"{A}/cgroup.type", text="domain"),
        does("write", f"{AB}/cgroup.type", "domain", errno="EINVAL"),
        does("write", f"{AB}/cgroup.type", "threaded"),
        does("read", f"{AB}/cgroup.type", text="threaded"),
        does("read", f"{A}/cgroup.type", text="domain threaded"),
        does("read", f"{AC}/cgroup.type", text="domain invalid"),
        does("write", f"{AB}/cgroup.type", "domain", errno="EINVAL"),
        first("spawn", 1),
        does("attach", 1, procs(AC), errno=NOT_SUPPORTED),
        does("spawn", 2, AC, errno=NOT_SUPPORTED),
        does("write", CONTROL, "+memory", errno=NOT_SUPPORTED),
        does("attach", 1, procs(AB)),
        does("homes", 1, text=home(AB)),
        does("read", procs(AB), errno=NOT_SUPPORTED),
        does("members", procs(A), text="1"),
        *ended(1),
        awaited(A, "populated 0"),
    )


_SUBSET, _ONE, _MADE = _subset(25), _one_maker(12, 4), _made_or_removed(20)

PROMISES = (
    Promise(
        "subtree_control changes all that it is told, or nothing (16)",
        "cgroup-v2.rst: 'When multiple enable and disable operations are specified, either all succeed or all fail',"
        " 'If a controller appears more than once on the list, the last one is effective'",
        within(
            "a",
            *control(A, "+cpu +bogus", "", errno="EINVAL"),
            *control(A, "+pids", "pids"),
            *control(A, "+cpu +bogus", "pids", errno="EINVAL"),
            *control(A, "-pids +bogus", "pids", errno="EINVAL"),
            *control(A, "+cpu -cpu", "pids"),
            *control(A, "-cpu +cpu", "cpu pids"),
            *within("a/b", *control(AB, "+pids +memory", "", errno="ENOENT"), *control(AB, "+pids", "pids")),
            *control(A, "-cpu -pids", ""),
        ),
        needs=("cpu.weight", "pids.max", "memory.max"),
    ),
    Promise(
        "no controller is enabled over processes (16)",
        "cgroup-v2.rst, No Internal Process Constraint; cgroup_vet_subtree_control_enable gives EBUSY",
        within("a", *_refused_by_processes()),
        needs=("memory.max", "pids.max"),
    ),
    Promise(
        "a controller that a child uses stays enabled (17)",
        "cgroup-v2.rst, Top-down Constraint: 'a controller can't be disabled if one or more children have it enabled'",
        within(
            "a",
            *control(A, "+cpu", "cpu"),
            *within(
                "a/b",
                *control(AB, "+cpu", "cpu"),
                *control(A, "-cpu", "cpu", errno="EBUSY"),
                *control(A, "+pids -cpu", "cpu", errno="EBUSY"),
                *control(AB, "-cpu", ""),
                *control(A, "-cpu", ""),
                *control(AB, "+cpu", "", errno="ENOENT"),
            ),
        ),
        needs=("cpu.weight", "pids.max"),
    ),
    Promise(
        "a child never has a controller that its parent has not, whoever switches (17)",
        "cgroup-v2.rst, Top-down Constraint; cgroup_subtree_control_write checks under cgroup_mutex",
        within("a", *within("a/b", *_SUBSET[0])),
        needs=("cpu.weight",),
        relations=_SUBSET[1],
        full=True,
    ),
    Promise(
        "a group is complete when mkdir returns and gone when rmdir does (18, 20)",
        "cgroup_mkdir: css_populate_dir and cgroup_apply_control_enable before kernfs_activate",
        within("a", *_complete(15)),
        needs=("cpu.weight", "cpu.max", "pids.max"),
    ),
    Promise(
        "groups are complete while controllers are switched (18)",
        "cgroup_mkdir and cgroup_subtree_control_write hold cgroup_mutex",
        within("a", *_complete_while_toggled(20)),
        needs=("cpu.weight", "pids.max"),
    ),
    Promise(
        "a group with processes or children is not removed, nor any part of it (19)",
        "cgroup-v2.rst: 'A cgroup which doesn't have any children or live processes can be destroyed by removing the"
        " directory'; cgroup_destroy_locked gives EBUSY before it changes anything",
        within(
            "a",
            *started(1, A),
            does("list", A, key="before"),
            does("rmdir", A, errno="EBUSY"),
            does("list", A, key="with a process"),
            does("members", procs(A), text="1"),
            does("tell", 1, "where", text=home(A)),
            *ended(1),
            awaited(A, "populated 0"),
            does("mkdir", AB),
            does("rmdir", A, errno="EBUSY"),
            does("list", A, text=holds("b/")),
            does("write", f"{A}/pids.max", 5),
            does("rmdir", AB),
            does("list", A, key="at the end"),
        ),
        needs=("pids.max",),
        relations=(same("before", "with a process", "at the end"),),
    ),
    Promise(
        "a removed group takes nobody, and one of its name starts anew (20)",
        "cgroup_destroy_locked; kernfs_get_active gives ENODEV to those who still hold a file",
        (
            first("mkdir", A),
            first("spawn", 1),
            first("write", f"{A}/cpu.weight", 300),
            *(first("open", slot, f"{A}/{file}") for slot, file in enumerate(("cgroup.procs", "cpu.weight"), 1)),
            does("rmdir", A),
            does("list", ROOT, text=lacks("a/")),
            does("write_fd", 1, "0", errno="ENODEV"),
            does("write_fd", 2, "200", errno="ENODEV"),
            does("read_fd", 2, errno="ENODEV"),
            does("attach", 1, procs(A), errno="ENOENT"),
            does("spawn", 2, A, errno="ENOENT"),
            does("rmdir", A, errno="ENOENT"),
            does("mkdir", A),
            does("read", f"{A}/cpu.weight", text="100"),
            does("members", procs(A), text=""),
            does("write_fd", 1, "0", errno="ENODEV"),
            does("write_fd", 2, "200", errno="ENODEV"),
            does("read", f"{A}/cpu.weight", text="100"),
            # where systemd runs, the probe's own group is not the root
            does("tell", 1, "where", text=lacks(home(A), f"{home(A)} (deleted)")),
            does("rmdir", A),
            *ended(1),
        ),
        needs=("cpu.weight",),
    ),
    Promise(
        "of all who make or remove one name, one succeeds (18, 20)",
        "mkdir(2), rmdir(2) under the lock of the parent directory",
        within("a", *_ONE[0]),
        relations=_ONE[1],
    ),
    Promise(
        "a child is made or its parent removed, not both (19, 20)",
        "cgroup_mkdir and cgroup_rmdir hold cgroup_mutex and look for the end of the parent under it",
        within("a", *_MADE[0]),
        relations=_MADE[1],
    ),
    Promise(
        "limits on descendants and depth hold (nesting)",
        "cgroup-v2.rst, cgroup.max.descendants: 'If the actual number of descendants is equal or larger, an attempt to"
        " create a new cgroup in the hierarchy will fail'; cgroup_mkdir gives EAGAIN",
        within(
            "a",
            does("write", f"{A}/cgroup.max.descendants", 2),
            does("mkdir", AB),
            does("mkdir", f"{AB}/x"),
            does("mkdir", AC, errno="EAGAIN"),
            does("mkdir", f"{AB}/y", errno="EAGAIN"),
            does("write", f"{A}/cgroup.max.descendants", 0),
            does("read", f"{A}/cgroup.stat", text=holds("nr_descendants 2")),
            does("rmdir", f"{AB}/x"),
            does("read", f"{A}/cgroup.stat", text=holds("nr_descendants 1")),
            does("write", f"{A}/cgroup.max.descendants", 2),
            does("mkdir", AC),
            does("rmdir", AC),
            does("write", f"{A}/cgroup.max.descendants", "max"),
            does("write", f"{A}/cgroup.max.depth", 1),
            does("mkdir", f"{AB}/x", errno="EAGAIN"),
            does("mkdir", AC),
            does("write", f"{A}/cgroup.max.depth", "-1", errno="ERANGE EINVAL"),
            does("rmdir", AC),
            does("rmdir", AB),
        ),
        needs=("cgroup.max.depth",),
    ),
    Promise(
        "a limit on descendants holds for all who make them at once (nesting)",
        "cgroup_check_hierarchy_limits under cgroup_mutex",
        within("a", *_limited(6)),
        relations=(succeed(1, 1, [f"n{i}" for i in range(6)]),),
        rounds=8,
    ),
    Promise(
        "deep groups are counted at every level (19, nesting)",
        "cgroup-v2.rst, Organizing Processes and Threads; rmdir takes the deepest first",
        within("a", *_deep(12)),
        needs=("pids.max",),
    ),
    Promise(
        "threaded groups keep to their topology (nesting)",
        "cgroup-v2.rst, Threads: 'Operations which fail due to invalid topology use EOPNOTSUPP as the errno'",
        within("a", *within("a/b", *within("a/c", *_threaded()))),
        needs=("cgroup.type", "memory.max"),
    ),
    Promise(
        "populated is told once for each change, up to the root of the change (34)",
        "cgroup-v2.rst, (Un)populated Notification: 'poll and [id]notify events are triggered when the value changes'",
        within("a", *within("a/b", *within("a/c", *_flips()))),
        full=True,
    ),
    Promise(
        "a poll of cgroup.events ends at a change and not before (34)",
        "cgroup-v2.rst, (Un)populated Notification; kernfs_generic_poll",
        within("a", *_polled()),
    ),
    Promise(
        "a namespace cannot change the limits of its own root (37)",
        "cgroup-v2.rst, nsdelegate and Delegation Containment: EPERM for files that are not delegated, ENOENT for"
        " groups outside of the namespace",
        within("c", *within("a", *_namespace())),
        needs=("cpu.weight", "pids.max"),
    ),
    Promise(
        "a user moves processes only within what was delegated (37)",
        "cgroup-v2.rst, Delegation Containment: write access to the list of processes of the common ancestor",
        within("c", *within("a", *_delegated())),
        needs=("pids.max",),
    ),
)
