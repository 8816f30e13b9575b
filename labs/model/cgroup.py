"""The model: a tree of groups, and what each act does to it. Pure: apply(state, act, kernel) -> state, what is seen.

Sources: kernel/cgroup/cgroup.c (cgroup_mkdir, cgroup_rmdir, cgroup_subtree_control_write, cgroup_migrate_vet_dst,
cgroup_vet_subtree_control_enable, cgroup_css_set_fork), kernel/cgroup/pids.c, Documentation/admin-guide/cgroup-v2.rst.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from labs.model.act import Act, Seen
from labs.model.files import FILES, Limits, forget
from labs.model.numbers import Refused
from labs.model.versions import CONTROLLERS, THREADED, Kernel


@dataclass(frozen=True)
class Group:
    """`on`: the controllers in its subtree_control; `members`: numbers of the processes in it.

    `leaving`: processes that are dead and reaped, and still make the group populated, for a while.
    """

    on: frozenset[str] = frozenset()
    limits: Limits = field(default_factory=Limits)
    members: frozenset[int] = frozenset()
    leaving: frozenset[int] = frozenset()

    @property
    def populated(self) -> bool:
        return bool(self.members or self.leaving)


State = Mapping[str, Group]  # by path; never changed in place
START: State = {"": Group()}


def apply(state: State, act: Act, kernel: Kernel) -> tuple[State, Seen]:
    """What the kernel must do: the state after the act, and the error or text that it gives."""
    try:
        after, text = ACTS[act.name](state, act, kernel)
    except Refused as refused:
        return state, Seen(str(refused))
    return after, Seen("", text)


def settled(state: State) -> Iterator[State]:
    """The state, and all that it may become by itself: any of the dead may be gone at any time."""
    yield state
    for path, group in state.items():
        for process in sorted(group.leaving):
            yield from settled({**state, path: replace(group, leaving=group.leaving - {process})})


def parent(path: str) -> str:
    return path.rpartition("/")[0]


def upwards(path: str) -> Iterator[str]:
    """The path and all above it, down to the sequence's own group ''."""
    yield path
    while path:
        path = parent(path)
        yield path


def children(state: State, path: str) -> list[str]:
    return [other for other in state if other and other != path and parent(other) == path]


def below(state: State, path: str) -> list[str]:
    """The group and all its descendants."""
    return [other for other in state if not path or other == path or other.startswith(f"{path}/")]


def processes(state: State, path: str) -> frozenset[int]:
    """Processes in the group and below."""
    return frozenset(p for other in below(state, path) for p in state[other].members)


def populated(state: State, path: str) -> bool:
    return any(state[other].populated for other in below(state, path))


def controllers(state: State, path: str, kernel: Kernel) -> frozenset[str]:
    """What the group's parent gives it."""
    return state[parent(path)].on if path else kernel.offered


def thread_root(group: Group) -> bool:
    """cgroup_is_thread_root(), without groups of type `threaded`, which the model does not make."""
    return bool(group.populated and group.on & THREADED)


def valid_domain(state: State, path: str) -> bool:
    return not any(thread_root(state[above]) for above in upwards(path) if above != path)


def can_be_thread_root(state: State, path: str) -> bool:
    return not (state[path].on - THREADED or any(populated(state, child) for child in children(state, path)))


def _group(state: State, path: str) -> Group:
    if path not in state:
        raise Refused("ENOENT")
    return state[path]


def _mkdir(state: State, act: Act, kernel: Kernel) -> tuple[State, str | None]:
    _group(state, parent(act.group))
    if act.group in state:
        raise Refused("EEXIST")
    for level, above in enumerate(upwards(parent(act.group)), 1):
        limits = state[above].limits
        if len(below(state, above)) - 1 >= limits.descendants or level > limits.depth:
            raise Refused("EAGAIN")
    return {**state, act.group: Group()}, None


def _rmdir(state: State, act: Act, kernel: Kernel) -> tuple[State, str | None]:
    group = _group(state, act.group)
    busy = group.members or (group.leaving and not kernel.has("rmdir waits for the dead"))
    if busy or children(state, act.group):
        raise Refused("EBUSY")
    return {path: group for path, group in state.items() if path != act.group}, None


def _write(state: State, act: Act, kernel: Kernel) -> tuple[State, str | None]:
    group = _group(state, act.group)
    if act.file == "cgroup.subtree_control":
        return _subtree_control(state, act.group, act.value, kernel), None
    if not _present(state, act, kernel):
        raise Refused("ENOENT")
    return {**state, act.group: replace(group, limits=FILES[act.file].write(group.limits, act.value))}, None


def _present(state: State, act: Act, kernel: Kernel) -> bool:
    controller = act.file.split(".")[0]
    return controller == "cgroup" or controller in controllers(state, act.group, kernel)


def _subtree_control(state: State, path: str, text: str, kernel: Kernel) -> State:
    """cgroup_subtree_control_write(): all or nothing; the last word on a controller counts."""
    wanted: dict[str, str] = {}
    for word in text.split():
        if word[1:] not in kernel.known or word[0] not in "+-":
            raise Refused("EINVAL")
        wanted[word[1:]] = word[0]
    on = state[path].on
    enable = {name for name, sign in wanted.items() if sign == "+" and name not in on}
    disable = {name for name, sign in wanted.items() if sign == "-" and name in on}
    for name in CONTROLLERS:
        if name in enable and name not in controllers(state, path, kernel):
            raise Refused("ENOENT")
        if name in disable and any(name in state[child].on for child in children(state, path)):
            raise Refused("EBUSY")
    if enable:
        _vet_enable(state, path, enable)
    changed = {path: replace(state[path], on=(on | enable) - disable)}
    for child in children(state, path):
        limits = state[child].limits
        for name in disable:
            limits = forget(limits, name)
        changed[child] = replace(state[child], limits=limits)
    return {**state, **changed}


def _vet_enable(state: State, path: str, enable: set[str]) -> None:
    if not valid_domain(state, path):
        raise Refused("EOPNOTSUPP")
    if enable - THREADED:
        if thread_root(state[path]):
            raise Refused("EOPNOTSUPP")
    elif can_be_thread_root(state, path):
        return
    if state[path].populated:
        raise Refused("EBUSY")


def _vet_process(state: State, path: str) -> Group:
    """Whether the group can take a process: no internal processes, no domain below a thread root."""
    group = _group(state, path)
    if not valid_domain(state, path):
        raise Refused("EOPNOTSUPP")
    if group.on and not can_be_thread_root(state, path):
        raise Refused("EBUSY")
    return group


def _spawn(state: State, act: Act, kernel: Kernel) -> tuple[State, str | None]:
    group = _vet_process(state, act.group)
    for above in upwards(act.group):
        limited = "pids" in controllers(state, above, kernel)
        if limited and len(processes(state, above)) >= state[above].limits.pids_max:
            raise Refused("EAGAIN")
    return {**state, act.group: replace(group, members=group.members | {act.process})}, None


def _leave(state: State, process: int) -> State:
    return {path: replace(group, members=group.members - {process}) for path, group in state.items()}


def _attach(state: State, act: Act, kernel: Kernel) -> tuple[State, str | None]:
    if act.process not in processes(state, ""):
        raise Refused("ESRCH")
    _vet_process(state, act.group)
    left = _leave(state, act.process)
    group = left[act.group]
    return {**left, act.group: replace(group, members=group.members | {act.process})}, None


def _end(state: State, act: Act, kernel: Kernel) -> tuple[State, str | None]:
    if act.process not in processes(state, ""):
        raise Refused("ESRCH")
    return _die(state, frozenset({act.process}), kernel), "signal 9"


def _kill(state: State, act: Act, kernel: Kernel) -> tuple[State, str | None]:
    """cgroup.kill, and then every process that was there is reaped."""
    _group(state, act.group)
    return _die(state, processes(state, act.group), kernel), None


def _die(state: State, dead: frozenset[int], kernel: Kernel) -> State:
    late = dead if kernel.has("dead processes leave late") else frozenset()
    return {
        path: replace(group, members=group.members - dead, leaving=group.leaving | (group.members & late))
        for path, group in state.items()
    }


def _members(state: State, act: Act, kernel: Kernel) -> tuple[State, str | None]:
    return state, " ".join(str(p) for p in sorted(_group(state, act.group).members))


def _read(state: State, act: Act, kernel: Kernel) -> tuple[State, str | None]:
    group = _group(state, act.group)
    if not _present(state, act, kernel):
        raise Refused("ENOENT")
    if act.file in SHOWN:
        return state, SHOWN[act.file](state, act.group, kernel)
    return state, FILES[act.file].read(group.limits, kernel)


def _names(names: frozenset[str]) -> str:
    return " ".join(name for name in CONTROLLERS if name in names)


def _type(state: State, path: str, kernel: Kernel) -> str:
    if not valid_domain(state, path):
        return "domain invalid"
    return "domain threaded" if thread_root(state[path]) else "domain"


SHOWN: dict[str, Callable[[State, str, Kernel], str]] = {
    "cgroup.controllers": lambda state, path, kernel: _names(controllers(state, path, kernel)),
    "cgroup.subtree_control": lambda state, path, kernel: _names(state[path].on),
    "cgroup.type": _type,
    "cgroup.events": lambda state, path, kernel: f"populated {int(populated(state, path))}",
    "cgroup.stat": lambda state, path, kernel: f"nr_descendants {len(below(state, path)) - 1}",
    "pids.current": lambda state, path, kernel: str(len(processes(state, path))),
}

ACTS: dict[str, Callable[[State, Act, Kernel], tuple[State, str | None]]] = {
    "mkdir": _mkdir,
    "rmdir": _rmdir,
    "write": _write,
    "read": _read,
    "spawn": _spawn,
    "attach": _attach,
    "end": _end,
    "kill": _kill,
    "members": _members,
}
