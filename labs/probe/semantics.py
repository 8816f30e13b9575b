"""The semantics probe: what a runtime makes of a configuration; one container each, created, looked at and deleted."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from labs.errors import LabError
from labs.guest import Guest
from labs.probe.containers import STATE, configuration, rootfs
from labs.probe.register import FOLDER

HOME = f"{FOLDER}/bundles"  # made and removed with the rootfs


@dataclass(frozen=True)
class Ask:
    """A configuration, as what it adds to `linux.resources`, and the files of the container's group to look at then.

    `stranger`: a process that is not the container's is put into its group, and stays until the delete has ended.
    `command` is the container's.
    """

    resources: Mapping[str, Any] = field(default_factory=dict)
    files: Sequence[str] = ()
    stranger: bool = False
    command: Sequence[str] = ()


@dataclass(frozen=True)
class Told:
    """What came of one: exit codes of create and delete (with a stranger: before it had gone) and what they said; each
    file's text (None: it could not be read), and whether the group was there after the delete. `ms` is the delete's."""

    code: int
    said: str
    files: Mapping[str, str | None]
    delete: int
    delete_said: str
    left: bool
    ms: int


SCRIPT = r"""
now() { date +%s%3N; }
ask() { # NAME STRANGER FILE...
  name=$1 stranger=$2 group=$TOP/$1; shift 2; mkdir $name
  $RUNC --root $STATE create --bundle $name.bundle $name < /dev/null > $name/said 2>&1; echo $? > $name/code
  for file in "$@"; do cat $group/$file > $name/file.$file 2> /dev/null || rm -f $name/file.$file; done
  if [ $stranger = 1 ]; then sleep 1000 & echo $! > $group/cgroup.procs; fi
  $RUNC --root $STATE kill $name KILL > /dev/null 2>&1
  for i in 1 2 3 4 5 6 7 8 9 10; do
    $RUNC --root $STATE state $name 2> /dev/null | grep -q '"stopped"' && break; sleep 0.1
  done
  t=$(now); $RUNC --root $STATE delete $name > $name/delete_said 2>&1; echo $? > $name/delete
  echo $(($(now) - t)) > $name/ms
  if [ -d $group ]; then echo 1 > $name/left; else echo 0 > $name/left; fi
  [ $stranger = 0 ] || kill -9 $!
  $RUNC --root $STATE delete -f $name > /dev/null 2>&1; rmdir $group 2> /dev/null
}
"""
COLLECT = "for f in */said */code */delete */delete_said */left */ms */file.*; do show $f cat $f; done"


def bundle(cgroup: str, ask: Ask) -> bytes:
    """config.json of a container, @ID@ where its name stands."""
    config = configuration(cgroup)
    config["linux"]["resources"] = ask.resources
    if ask.command:
        config["process"]["args"] = list(ask.command)
    return json.dumps(config).encode()


def run_asks(guest: Guest, runtime: str, parent: str, asks: Mapping[str, Ask]) -> dict[str, Told]:
    """Ask one after the other, below the cgroup `parent`; LabError when what is told is malformed."""
    cgroup = parent.removeprefix("/sys/fs/cgroup")
    names = {name: f"c{number}" for number, name in enumerate(asks)}
    files = {
        f"{names[name]}.bundle/config.json": bundle(cgroup, ask).replace(b"@ID@", names[name].encode())
        for name, ask in asks.items()
    }
    lines = [f"ask {names[name]} {int(ask.stranger)} {' '.join(ask.files)}" for name, ask in asks.items()]
    body = "\n".join([f"cd {HOME}", f"RUNC={runtime} STATE={STATE} TOP={parent}", SCRIPT, *lines, COLLECT])
    with rootfs(guest):
        guest.put_files(files, HOME)
        told = guest.sections(body, 30 + 6 * len(asks))
    return {name: read_told(told, names[name], ask) for name, ask in asks.items()}


def read_told(told: Mapping[str, str], name: str, ask: Ask) -> Told:
    try:
        files = {file: told.get(f"{name}/file.{file}") for file in ask.files}
        numbers = [int(told[f"{name}/{what}"]) for what in ("code", "delete", "ms", "left")]
    except (KeyError, ValueError) as error:
        raise LabError(f"what the semantics probe left is malformed: {error}", evidence=str(told)[:4000]) from None
    code, delete, ms, left = numbers
    said, last = (told.get(f"{name}/{what}", "") for what in ("said", "delete_said"))
    return Told(code, said, files, delete, last, bool(left), ms)
