"""Acts and cases: what a random sequence is made of, and what a run of it told."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

NEVER_RETURNED, NOT_RUN = "never returned", "not run"  # told in place of an error's name
NO_EFFECT = ("read", "members")
TREE = ("mkdir", "rmdir", "spawn", "attach", "end", "kill")  # change the tree or who is in it
TREE_FILES = ("cgroup.subtree_control", "cgroup.max.descendants", "cgroup.max.depth", "pids.max")


@dataclass(frozen=True)
class Act:
    """One operation. `group` is a path below the sequence's own group, '' that group itself.

    mkdir, rmdir, kill: a group. write: file and value. read: file. members: a group's processes.
    spawn, attach: a process's number and the group that it comes to. end: a process's number.
    """

    name: str
    group: str = ""
    file: str = ""
    value: str = ""
    process: int = -1

    @property
    def reads(self) -> bool:
        return self.name in NO_EFFECT

    @property
    def shapes_tree(self) -> bool:
        """Whether other operations succeed or fail by what this one does."""
        return self.name in TREE or (self.name == "write" and self.file in TREE_FILES)

    def __str__(self) -> str:
        where = self.group or "."
        if self.name in ("spawn", "attach"):
            return f"{self.name} process {self.process} into {where}"
        if self.name == "end":
            return f"end process {self.process}"
        told = {"write": f"write {where}/{self.file} {self.value!r}", "read": f"read {where}/{self.file}"}
        return told.get(self.name, f"{self.name} {where}")


@dataclass(frozen=True)
class Case:
    """A sequence in a group of its own: `before`, then `lanes` at the same time, then `after`."""

    before: tuple[Act, ...] = ()
    lanes: tuple[tuple[Act, ...], ...] = ()
    after: tuple[Act, ...] = ()

    @property
    def acts(self) -> tuple[Act, ...]:
        return (*self.before, *(act for lane in self.lanes for act in lane), *self.after)

    @property
    def groups(self) -> tuple[str, ...]:
        """Groups that may be there in the end, deepest first."""
        made = {act.group for act in self.acts if act.name == "mkdir"}
        return tuple(sorted(made, key=lambda group: (-group.count("/"), group)))

    @property
    def processes(self) -> tuple[int, ...]:
        return tuple(sorted({act.process for act in self.acts if act.name == "spawn"}))

    def __str__(self) -> str:
        lines = [f"  {act}" for act in self.before]
        lines += [f"  lane {number}: {act}" for number, lane in enumerate(self.lanes) for act in lane]
        return "\n".join([*lines, *(f"  {act}" for act in self.after)])


@dataclass(frozen=True)
class Seen:
    """What came of an act: '' or the error's name, what it told (None: nothing), start and end in guest ns."""

    error: str = ""
    text: str | None = None
    start: int = 0
    end: int = 0

    def same(self, other: Seen) -> bool:
        """Whether both say the same, whenever they were seen."""
        return self.error == other.error and (bool(self.error) or self.text == other.text)

    def __str__(self) -> str:
        return self.error or (repr(self.text) if self.text is not None else "ok")


Told = tuple[Act, Seen]


@dataclass(frozen=True)
class Ran:
    """A case with what came of each of its acts, in the case's own shape."""

    before: tuple[Told, ...] = ()
    lanes: tuple[tuple[Told, ...], ...] = ()
    after: tuple[Told, ...] = ()

    def __iter__(self) -> Iterator[Told]:
        yield from self.before
        for lane in self.lanes:
            yield from lane
        yield from self.after

    @property
    def case(self) -> Case:
        return Case(_acts(self.before), tuple(_acts(lane) for lane in self.lanes), _acts(self.after))


def _acts(told: Iterable[Told]) -> tuple[Act, ...]:
    return tuple(act for act, _ in told)
