"""Rows, predicates and relations that the promises about groups and processes are told with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from labs.probe.script import BARRIER, Outcome
from labs.promise import ROOT, Relation, Row, does, first

A, B, C = (f"{ROOT}/{name}" for name in "abc")
BARRIER_ROW = Row(BARRIER)
PATIENCE_MS = 5_000  # for what is promised, but not when; far longer than it ever takes under emulation
NOT_SUPPORTED = "ENOTSUP"  # EOPNOTSUPP, as errno.errorcode calls it
Predicate = Callable[[str], bool]


def procs(group: str) -> str:
    return f"{group}/cgroup.procs"


def home(group: str) -> str:
    """The group as /proc/PID/cgroup tells it."""
    return group.replace("/sys/fs/cgroup", "0::", 1)


def started(number: int, group: str, *orders: str) -> tuple[Row, ...]:
    """A process in the group that was told to do `orders`; preparation."""
    return (
        first("spawn", number),
        first("attach", number, procs(group)),
        *(first("tell", number, order) for order in orders),
    )


def ended(*numbers: int) -> tuple[Row, ...]:
    """The processes killed by number, if they still live, and reaped."""
    kills = (Row(first("kill", number, 9).op, None) for number in numbers)
    return (*kills, *(first("reap", number, PATIENCE_MS) for number in numbers))


def awaited(group: str, line: str) -> Row:
    """A line of cgroup.events comes, as 'populated 0'."""
    return does("await", f"{group}/cgroup.events", line, PATIENCE_MS)


def emptied(group: str) -> tuple[Row, ...]:
    """After all in the group was ended: it becomes empty, and goes; preparation."""
    return (
        Row(does("await", f"{group}/cgroup.events", "populated 0", PATIENCE_MS).op, setup=True),
        first("rmdir", group),
    )


def race(*rows: Row) -> tuple[Row, ...]:
    """Rows of several lanes, after all that comes before and before all that comes after."""
    return (BARRIER_ROW, *rows, BARRIER_ROW)


def unchecked(row: Row) -> Row:
    """The row whatever comes of it; relations may still look at it."""
    return Row(row.op, None, key=row.key)


def holds(*lines: str) -> Predicate:
    def predicate(text: str) -> bool:
        return set(lines) <= set(text.split("\n"))

    predicate.__doc__ = f"that it holds {', '.join(lines[:4])}{' ...' if len(lines) > 4 else ''}"
    return predicate


def lacks(*lines: str) -> Predicate:
    def predicate(text: str) -> bool:
        return not set(lines) & set(text.split("\n"))

    predicate.__doc__ = f"that it lacks {', '.join(lines)}"
    return predicate


def one_of(*texts: str) -> Predicate:
    def predicate(text: str) -> bool:
        return text in texts

    predicate.__doc__ = f"one of {', '.join(map(repr, texts))}"
    return predicate


def same(*keys: str) -> Relation:
    """All these outcomes tell the same lines, in any order."""

    def relation(seen: Mapping[str, Outcome]) -> str:
        told = {key: sorted(seen[key].text.split()) for key in keys}
        other = next((key for key in keys if told[key] != told[keys[0]]), "")
        return f"{other} tells {told[other]}, {keys[0]} told {told[keys[0]]}" if other else ""

    return relation


def succeed(least: int, most: int, keys: Iterable[str]) -> Relation:
    """So many of the operations give success."""
    listed = tuple(keys)

    def relation(seen: Mapping[str, Outcome]) -> str:
        well = [key for key in listed if not seen[key].errno]
        wanted = f"{least}" if least == most else f"{least} to {most}"
        if least <= len(well) <= most:
            return ""
        return f"{len(well)} of {seen[listed[0]].op} and its {len(listed) - 1} like succeeded, promised: {wanted}"

    return relation


def either(one: str, other: str) -> Relation:
    """Exactly one of the two operations succeeds."""

    def relation(seen: Mapping[str, Outcome]) -> str:
        first_, second = seen[one], seen[other]
        if bool(first_.errno) != bool(second.errno):
            return ""
        return f"{first_.op} and {second.op} both {'failed' if first_.errno else 'succeeded'}"

    return relation
