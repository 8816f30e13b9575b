"""The limits probe: what a container sees of its own limits first of all, and what the runtime writes for them.

A round has two creates. The runtime of the first is held just before it writes one of its limits (agent/trace.c): all
that may run without that limit has its chance. Meanwhile the second is created, with a limit that the kernel refuses.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from labs.errors import LabError
from labs.guest import Guest
from labs.prepare import AGENT
from labs.probe.containers import ROOTFS, STATE, configuration, rootfs
from labs.probe.register import FOLDER, ROOT

HOME = f"{FOLDER}/bundles"  # made and removed with the rootfs
OWN = "/sys/fs/cgroup"  # where a container sees its own group
# No default of any kernel or runtime, so that a limit that was never set shows.
LIMITS = {"cpu.max": "30000 50000", "cpu.weight": "321", "memory.max": str(96 << 20), "pids.max": "77"}
TAKEN, REFUSED = 20000, 10  # quotas in us; below 1 ms: EINVAL of tg_set_cfs_bandwidth() (kernel/sched/core.c)
PATIENCE_MS = 10_000  # for a create beside one that is held; six times what that one took so far, if that is more

LINGER_MS = 1000  # of a container that should never have started: a limit that comes late is still refused to someone


@dataclass(frozen=True)
class Start:
    """A container's start. `held`: the file that its runtime was about to write when it was held, or ''.

    `seen` is the first line of each file, as the container's first instructions read it; `code` is the runtime's.
    """

    container: str
    held: str
    seen: Mapping[str, str]
    code: int
    said: str


@dataclass(frozen=True)
class Meeting:
    """A create while that of another container was held at a write to `held`.

    Times in ms: how long it ran while the other was held, and from the release to its end. `waited`: it had not ended
    by the release.
    """

    held: str
    waited: bool
    before: int
    after: int


@dataclass(frozen=True)
class Write:
    """A write(2) of the runtime to a cgroup file; times in ns."""

    file: str
    text: str
    errno: int
    start: int
    end: int


@dataclass(frozen=True)
class Setting:
    """A `run` or `update` with a quota that the kernel takes or refuses, and the writes that the runtime made for it;
    `end` is when the runtime had ended, in ns."""

    step: str
    refused: bool
    writes: tuple[Write, ...]
    code: int
    end: int
    said: str


@dataclass(frozen=True)
class Limits:
    """All that one run of the probe saw."""

    starts: tuple[Start, ...]
    meetings: tuple[Meeting, ...]
    settings: tuple[Setting, ...]


def bundle(cgroup: str, *, stay_ms: int = 0, quota: int | None = None) -> bytes:
    """config.json of a container, @ID@, that tells its limits as its first act, and then stays for a while.

    Limits are given as crun and runc have them in common; cpu.weight by its file's name, since not all versions make
    the same of shares (OCI runtime-spec 1.0, config-linux.md, "unified").
    """
    config = configuration(cgroup)
    config["process"]["args"] = ["/bin/agent", "tell", str(stay_ms), *(f"{OWN}/{file}" for file in LIMITS)]
    config["mounts"].append({"destination": OWN, "type": "cgroup", "source": "cgroup", "options": ["ro", "nosuid"]})
    config["linux"]["namespaces"].append({"type": "cgroup"})
    usual, period = (int(word) for word in LIMITS["cpu.max"].split())
    config["linux"]["resources"] = {
        "cpu": {"quota": usual if quota is None else quota, "period": period},
        "memory": {"limit": int(LIMITS["memory.max"])},
        "pids": {"limit": int(LIMITS["pids.max"])},
        "unified": {"cpu.weight": LIMITS["cpu.weight"]},
    }
    return json.dumps(config).encode()


SCRIPT = r"""
ms() { date +%s%3N; }
come() { until [ -e $1 ] || [ -e $2 ]; do [ $(ms) -lt $3 ] || return 1; sleep 0.05; done; [ -e $1 ]; }
start() { # NAME COMMAND...
  name=$1; shift
  "$@" --root $STATE run $MORE --bundle $name.bundle $name < /dev/null > $name/told 2> $name/said
  echo $? > $name/new; mv $name/new $name/code
}
round() { # NUMBER FILE
  h=h$1 r=r$1; mkdir $h $r
  t0=$(ms); start $h $AGENT trace $TOP $2 $h $RUNC & one=$!
  come $h/held $h/code $((t0 + 30000)) && held=1 || held=0
  t1=$(ms); patience=$((6 * (t1 - t0))); [ $patience -gt $PATIENCE ] || patience=$PATIENCE
  start $r $AGENT trace $TOP - $r $RUNC & two=$!
  come $r/code $r/code $((t1 + patience)) && waited=0 || waited=1
  t2=$(ms); touch $h/release
  # One that waits for CPU time, with a quota that should have been refused, would take minutes: it is given some, once
  # it has had as long as it had beside the other.
  come $r/code $r/code $((2 * t2 - t1)) || echo max > $PARENT/$r/cpu.max
  wait $two; t3=$(ms); wait $one
  [ $held = 0 ] || echo $2 $waited $((t2 - t1)) $((t3 - t2)) > $h/met
}
plain() { mkdir $1; start $1 $RUNC; }
update() { # NAME QUOTA CONTAINER
  mkdir $1
  $AGENT trace $TOP - $1 $RUNC --root $STATE update --cpu-quota $2 $3 < /dev/null > $1/said 2>&1
}
"""


def run_limits(
    guest: Guest, runtime: str, parent: str, *, held: Sequence[str], plain: int = 0, updates: int = 0
) -> Limits:
    """A round for each file of `held`; `plain` containers that nothing is done to, one after the other; and `updates`
    of one container with each of the two quotas, in turns."""
    cgroup = parent.removeprefix("/sys/fs/cgroup")
    usual, lines = bundle(cgroup), []
    bundles: dict[str, bytes] = {}
    for number, file in enumerate(held):
        bundles |= {f"h{number}": usual, f"r{number}": bundle(cgroup, quota=REFUSED, stay_ms=LINGER_MS)}
        lines.append(f"round {number} {file}")
    for number in range(plain):
        bundles[f"p{number}"] = usual
        lines.append(f"plain p{number}")
    if updates:
        bundles["u"] = bundle(cgroup, stay_ms=1_000_000)
        quotas = [REFUSED, TAKEN] * updates
        calls = [f"update {'ut'[quota == TAKEN]}{number} {quota} u" for number, quota in enumerate(quotas)]
        lines += ["MORE=-d plain u", *calls, f"{runtime} --root {STATE} delete -f u"]
    names = f"RUNC={runtime} STATE={STATE} AGENT={AGENT} TOP={ROOT} PARENT={parent} PATIENCE={PATIENCE_MS} MORE="
    body = "\n".join([f"cp {AGENT} {ROOTFS}/bin/; cd {HOME}", names, SCRIPT, *lines, COLLECT])
    files = {f"{name}.bundle/config.json": text.replace(b"@ID@", name.encode()) for name, text in bundles.items()}
    with rootfs(guest):
        guest.put_files(files, HOME)
        told = guest.sections(body, 60 + 10 * len(held) + 2 * plain + 4 * updates)
    try:
        return read_limits(told)
    except (ValueError, IndexError, KeyError) as error:
        raise LabError(f"what the limits probe left is malformed: {error}", evidence=str(told)[:4000]) from None


COLLECT = "for f in */told */said */code */met */trace; do show $f cat $f; done"


def read_limits(told: Mapping[str, str]) -> Limits:
    """What the script left, by file; ValueError, IndexError or KeyError where it is malformed."""
    names = list(dict.fromkeys(path.split("/")[0] for path in told if not path.startswith("*")))
    meetings = {name: _meeting(told[f"{name}/met"]) for name in names if f"{name}/met" in told}
    starts = [name for name in names if name[0] in "hp"]
    settings = [name for name in names if name[0] in "rut" and f"{name}/trace" in told]
    return Limits(
        tuple(_start(name, meetings[name].held if name in meetings else "", told) for name in starts),
        tuple(meetings.values()),
        tuple(_setting(name, told) for name in settings),
    )


def _start(name: str, held: str, told: Mapping[str, str]) -> Start:
    lines = [line.split("\t") for line in told[f"{name}/told"].splitlines()]
    seen = {path.rsplit("/", 1)[-1]: text for path, text in lines}
    said = told[f"{name}/said"]
    if trouble := next((line for line in said.splitlines() if line.startswith("agent: ")), ""):
        raise ValueError(f"the lab's own program did not run in {name}: {trouble}")
    return Start(name, held, seen, int(told[f"{name}/code"]), said)


def _meeting(line: str) -> Meeting:
    held, waited, before, after = line.split()
    return Meeting(held, waited != "0", int(before), int(after))


def _setting(name: str, told: Mapping[str, str]) -> Setting:
    writes, end, code = read_trace(told[f"{name}/trace"])
    step = "run" if name[0] == "r" else "update"
    return Setting(step, name[0] in "ru", writes, code, end, told[f"{name}/said"])


def read_trace(text: str) -> tuple[tuple[Write, ...], int, int]:
    """The writes that agent/trace.c told of, when the program ended, and its code; ValueError where cut short."""
    *lines, last = [line.split() for line in text.splitlines()] or [[]]
    if any(len(words) != 6 or words[0] != "write" for words in lines) or len(last) != 3 or last[0] != "end":
        raise ValueError("a trace is cut short")
    return tuple(_write(*words[1:]) for words in lines), int(last[1]), int(last[2])


def _write(start: str, end: str, errno: str, path: str, text: str) -> Write:
    file, said = (bytes.fromhex(word[1:]).decode(errors="replace") for word in (path, text))
    return Write(file.rsplit("/", 1)[-1], said.strip(), int(errno), int(start), int(end))
