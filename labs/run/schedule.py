"""What runs next: longest first, each thing only when what it waits for is done and it fits. Pure; knows no process."""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import astuple, dataclass, field, replace


@dataclass(frozen=True)
class Need:
    """What something takes while it runs, or what a host has to give: MB of memory, cores, MB of disk."""

    memory_mb: float = 0
    cores: float = 0
    disk_mb: float = 0

    def plus(self, other: Need) -> Need:
        return Need(self.memory_mb + other.memory_mb, self.cores + other.cores, self.disk_mb + other.disk_mb)

    def lacks(self, need: Need) -> str:
        """What of this does not suffice for `need`, in words; empty when all does."""
        for what, unit, asked, have in (
            ("memory", " MB", need.memory_mb, self.memory_mb),
            ("cores", "", need.cores, self.cores),
            ("disk", " MB", need.disk_mb, self.disk_mb),
        ):
            if asked > have:
                return f"{what}: needs {asked:g}{unit}, {max(0, have):g}{unit} left"
        return ""


@dataclass(frozen=True)
class Task:
    """`id` is a cell's, or names a build; `after` are ids of what must be done before; `seconds` are expected."""

    id: str
    need: Need
    seconds: float
    after: frozenset[str] = frozenset()
    build: bool = False


@dataclass
class Queue:
    """Tasks that wait. What `capacity` cannot hold, even alone, is given all of it."""

    capacity: Need
    jobs: int
    tasks: Iterable[Task] = ()
    done: set[str] = field(default_factory=set)
    waiting: list[Task] = field(init=False)  # builds first, then the longest

    def __post_init__(self) -> None:
        self.waiting = []
        self._least = Need(math.inf, math.inf, math.inf)
        self.put(*self.tasks)

    def _fitted(self, task: Task) -> Task:
        return replace(task, need=replace(task.need, cores=min(task.need.cores, self.capacity.cores)))

    def put(self, *tasks: Task) -> None:
        """Wait, for the first time or again."""
        more = [self._fitted(task) for task in tasks]
        self.waiting = sorted([*self.waiting, *more], key=_order)
        for need in (task.need for task in more):
            least = self._least
            self._least = Need(*(min(pair) for pair in zip(astuple(least), astuple(need), strict=True)))

    def take(self, running: Collection[Task], room: Need | None = None) -> tuple[Task | None, str]:
        """The next task to start, which then waits no longer; or None, and what the first that is ready waits for.

        `room` is what the host has left now, which others may have taken.
        """
        if len(running) >= self.jobs:
            return None, f"{len(running)} of {self.jobs} jobs run"
        left = self._left(running)
        full = bool(left.lacks(self._least))
        why = ""
        for place, task in enumerate(self.waiting):
            if not task.after <= self.done:
                continue
            lack = left.lacks(task.need) or (room.lacks(task.need) if room else "")
            if not lack:
                return self.waiting.pop(place), ""
            why = why or f"{task.id} waits for {lack}"
            if full:
                break  # nothing else fits either
        return None, why

    def _left(self, running: Collection[Task]) -> Need:
        used = Need()
        for task in running:
            used = used.plus(task.need)
        have = self.capacity
        return Need(have.memory_mb - used.memory_mb, have.cores - used.cores, have.disk_mb - used.disk_mb)


def _order(task: Task) -> tuple[bool, float]:
    return not task.build, -task.seconds


def expected_seconds(capacity: Need, jobs: int, tasks: Sequence[Task]) -> float:
    """How long the tasks will take together, if each takes what is expected of it."""
    queue = Queue(capacity, jobs, tasks)
    running: list[tuple[float, int, Task]] = []
    now, count = 0.0, 0
    while True:
        while (task := queue.take([task for _, _, task in running])[0]) is not None:
            count += 1
            heapq.heappush(running, (now + task.seconds, count, task))
        if not running:
            return now
        now, _, ended = heapq.heappop(running)
        queue.done.add(ended.id)
