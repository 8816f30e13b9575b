"""Whether what was seen of a case can be explained by the model.

One after the other, every act must give what the model gives. At the same time, there must be an order of the acts,
each somewhere between its start and its end, in which the model gives all that was seen (linearizability: Herlihy and
Wing 1990; the search follows Wing and Gong 1993, with Lowe's memory of the (done, state) pairs that were tried).

Promised is the order for each file, and for files that set the same value, not for several at once: a history that
has no order as a whole is looked at again file by file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from labs.model.act import NEVER_RETURNED, NOT_RUN, Act, Ran, Seen, Told
from labs.model.cgroup import START, State, apply, settled
from labs.model.files import FILES
from labs.model.versions import Kernel

FILE_OF = {"spawn": "cgroup.procs", "attach": "cgroup.procs", "members": "cgroup.procs", "kill": "cgroup.kill"}
MOST_NODES = 20_000  # of one search; 3 lanes of 4 acts have 125 sets of done acts, and few states each


class Undecided(Exception):
    """Nothing can be said of a run: the search was given up at its bound, or the run was cut short."""


@dataclass(frozen=True)
class Wrong:
    """What cannot be explained: the act in question, what was seen, what the model allows, and all that matters."""

    act: Act
    seen: Seen
    allowed: tuple[str, ...]
    ran: Ran

    @property
    def kind(self) -> tuple[str, str]:
        """What a smaller case must share, to be an example of the same."""
        return self.act.name, family(self.act)

    @property
    def files(self) -> frozenset[str]:
        """Files that it is about; what came before acts at the same time only prepared them."""
        rows = (*self.ran.lanes, self.ran.after) if self.ran.lanes else (self.ran.before, self.ran.after)
        acts = [act for row in rows for act, _ in row]
        return frozenset(filter(None, (act.file or FILE_OF.get(act.name) for act in acts)))

    def __str__(self) -> str:
        if self.seen.error == NEVER_RETURNED:
            return f"{self.act} {NEVER_RETURNED}"
        return f"{self.act} gave {self.seen}, not {' or '.join(self.allowed)}"


def family(act: Act) -> str:
    return FILES[act.file].family if act.file in FILES else act.file


def wrong(ran: Ran, kernel: Kernel) -> Wrong | None:
    """The first thing about the run that the model does not explain; raises Undecided."""
    for act, seen in ran:
        if seen.error == NEVER_RETURNED:
            return Wrong(act, seen, (), ran)
    if any(seen.error == NOT_RUN for _, seen in ran):
        raise Undecided
    return _unexplained(ran, kernel)


def _unexplained(ran: Ran, kernel: Kernel) -> Wrong | None:
    states: list[State] = [START]
    for number, (act, seen) in enumerate(ran.before):
        states, allowed = _follow(states, act, seen, kernel)
        if not states:
            return Wrong(act, seen, allowed, Ran(ran.before[: number + 1]))
    found = _search(states, ran, kernel)
    if not found or not ran.lanes:
        return found
    for keep in _views(ran):
        view = Ran(ran.before, tuple(_only(lane, keep) for lane in ran.lanes), _only(ran.after, keep))
        found = _search(states, view, kernel)
        if found:
            return found
    return None


def _follow(states: Sequence[State], act: Act, seen: Seen, kernel: Kernel) -> tuple[list[State], tuple[str, ...]]:
    """States in which an act may leave those before it, given what was seen of it; and all that they allow to see."""
    after: dict[frozenset[object], State] = {}
    allowed: dict[str, None] = {}
    for state in states:
        for before in settled(state):
            now, expected = apply(before, act, kernel)
            allowed[str(expected)] = None
            if seen.same(expected):
                after[frozenset(now.items())] = now
    return list(after.values()), tuple(allowed)


def _only(told: Sequence[Told], keep: Callable[[Act], bool]) -> tuple[Told, ...]:
    return tuple(pair for pair in told if keep(pair[0]))


def _views(ran: Ran) -> Iterator[Callable[[Act], bool]]:
    """For each file that was read: its reads, the writes of its family, and all that shapes the tree."""
    rest = [act for act, _ in ran if not act.shapes_tree]
    written = {(act.group, family(act)) for act in rest if not act.reads}
    read = dict.fromkeys((act.name, act.group, act.file, family(act)) for act in rest if act.reads)
    unread = written - {(group, name) for _, group, _, name in read}
    for name, group, file, of in [*read, *(("", group, "", of) for group, of in sorted(unread))]:
        yield lambda act, name=name, group=group, file=file, of=of: (  # type: ignore[misc]
            act.shapes_tree
            or (act.group == group and family(act) == of and (not act.reads or (act.name == name and act.file == file)))
        )
    yield lambda act: act.shapes_tree


@dataclass
class _Trail:
    """How far a search came, and what the model would have had there."""

    depth: int = -1
    told: Told | None = None
    allowed: dict[str, None] = field(default_factory=dict)

    def note(self, depth: int, told: Told, allowed: Sequence[str]) -> None:
        if depth > self.depth:
            self.depth, self.told, self.allowed = depth, told, {}
        if depth == self.depth and self.told == told:
            self.allowed |= dict.fromkeys(allowed)


def _search(states: Sequence[State], ran: Ran, kernel: Kernel) -> Wrong | None:
    """None when some order of the lanes' acts explains the run, from one of the states."""
    lanes = ran.lanes
    stack: list[tuple[tuple[int, ...], State]] = [((0,) * len(lanes), state) for state in states]
    tried: set[tuple[tuple[int, ...], frozenset[object]]] = set()
    trail = _Trail()
    while stack:
        done, state = stack.pop()
        key = (done, frozenset(state.items()))
        if key in tried:
            continue
        tried.add(key)
        if len(tried) > MOST_NODES:
            raise Undecided
        depth = sum(done)
        if depth == sum(map(len, lanes)):
            if _ends(state, ran.after, kernel, depth, trail):
                return None
            continue
        for lane in _next(lanes, done):
            act, seen = lanes[lane][done[lane]]
            after, allowed = _follow([state], act, seen, kernel)
            if not after:
                trail.note(depth, (act, seen), allowed)
            stack += [(tuple(n + (i == lane) for i, n in enumerate(done)), now) for now in after]
    assert trail.told is not None
    return Wrong(*trail.told, tuple(trail.allowed), ran)


def _ends(state: State, after: Sequence[Told], kernel: Kernel, depth: int, trail: _Trail) -> bool:
    """Whether what came after the lanes follows from their last state."""
    states = [state]
    for number, (act, seen) in enumerate(after):
        states, allowed = _follow(states, act, seen, kernel)
        if not states:
            trail.note(depth + number, (act, seen), allowed)
            return False
    return True


def _next(lanes: Sequence[Sequence[Told]], done: Sequence[int]) -> list[int]:
    """Lanes whose next act may come first: no other act that is still to come had ended before it started."""
    pending = [
        (number, lane[at][1]) for number, (lane, at) in enumerate(zip(lanes, done, strict=True)) if at < len(lane)
    ]
    earliest = min(seen.end for _, seen in pending)
    return [number for number, seen in pending if seen.start <= earliest]


def without(found: Wrong, kernel: Kernel, spare: Callable[[Told], bool]) -> Wrong:
    """The same without the acts that may be spared and that it does not need."""
    for told in list(found.ran):
        if spare(told):
            still = wrong(_drop(found.ran, told), kernel)
            found = still if still and still.kind == found.kind else found
    return found


def reads(told: Told) -> bool:
    """Reads: without them the finding is as true as with them."""
    return told[0].reads


def refusals(told: Told) -> bool:
    """Reads, and what was refused and should have changed nothing."""
    return told[0].reads or bool(told[1].error)


def _drop(ran: Ran, told: Told) -> Ran:
    def drop(row: Sequence[Told]) -> tuple[Told, ...]:
        return tuple(pair for pair in row if pair is not told)

    return replace(ran, before=drop(ran.before), lanes=tuple(map(drop, ran.lanes)), after=drop(ran.after))
