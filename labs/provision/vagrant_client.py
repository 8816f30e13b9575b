"""Vagrant through python-vagrant, whose commands run inside an enclosure, with a deadline, and tell what they do.

python-vagrant reads Vagrant's machine-readable stream as if every line were one of it. It is not: warnings of Ruby and
whole back traces come between. Here such lines are kept as they are, and the reason of a failure is looked for in both.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import vagrant
from paramiko import SSHConfig
from paramiko.ssh_exception import ConfigParseError

from labs.command import end_group, spawn
from labs.deadline import Deadline
from labs.errors import LabError, NoSpace

log = logging.getLogger("labs")

MACHINE_READABLE = ("up", "destroy", "halt", "reload", "snapshot")  # python-vagrant asks for it where it reads it
ESCAPES = {"%!(VAGRANT_COMMA)": ",", "\\n": "\n", "\\r": "\r"}

# Words of a failure -> what mends it
MENDS = {
    r"provider 'libvirt' could not be found": "apt-get install vagrant-libvirt",
    r"[Bb]ox '.*' could not be found": "labs clean makes the next run build the box anew",
    r"wait_for timeout|Timed out while waiting for the machine": "the guest got no address, or its sshd is silent",
    r"Cannot allocate memory": "end other guests",
}
NO_SPACE = re.compile(r"No space left on device|Disk quota exceeded")


@dataclass(frozen=True)
class Message:
    """One line of the machine-readable stream: of which machine, its kind, its data with the escapes undone."""

    target: str
    kind: str
    data: tuple[str, ...]

    @classmethod
    def read(cls, line: str) -> Message | None:
        """None for a line that is none, as a warning or a line of a back trace."""
        parts = line.rstrip("\n").split(",", 3)
        if len(parts) < 3 or not parts[0].isdigit():
            return None
        return cls(parts[1], parts[2], tuple(_plain(word) for word in parts[3].split(",")) if len(parts) > 3 else ())


def _plain(text: str) -> str:
    for escape, character in ESCAPES.items():
        text = text.replace(escape, character)
    return text


def progress(line: str) -> str:
    """What a person is told of a line; '' for most."""
    message = Message.read(line)
    if message is None or message.kind != "ui" or message.data[:1] in [("error",), ("warn",)] or len(message.data) < 2:
        return ""
    text = re.sub(rf"^(==> |    ){re.escape(message.target)}: ", "", message.data[1])
    return "" if text.startswith((" ", "SSH ")) else text.splitlines()[0]


def failure(command: str, code: int, text: str) -> LabError:
    """The error for a Vagrant that ended with `code` after it had said `text`."""
    messages = [message for line in text.splitlines() if (message := Message.read(line))]
    told = [m.data[-1] for m in messages if m.kind == "error-exit" and m.data]
    told += [m.data[1] for m in messages if m.kind == "ui" and m.data[:1] == ("error",) and len(m.data) > 1]
    raw = [line for line in text.splitlines() if line.strip() and Message.read(line) is None]
    # of a back trace the first line has the cause: "file.rb:7:in `create': what happened (Its::Class)"
    traced = [re.sub(r"^\S+?:\d+:in [`'].*?': ", "", line) for line in raw if not re.match(r"\s+from ", line)]
    reason = " ".join((told or traced[-1:] or ["without a word"])[0].split())
    for pattern, mend in MENDS.items():
        if re.search(pattern, text):
            return LabError(f"vagrant {command}: {reason}", mend=mend, evidence=text[-8000:])
    kind = NoSpace if NO_SPACE.search(text) else LabError
    return kind(f"vagrant {command} ended with {code}: {reason}", evidence=text[-8000:])


@dataclass(frozen=True)
class Reached:
    """How `vagrant ssh-config` says that a machine is reached."""

    host: str
    port: int
    user: str
    keys: tuple[str, ...]


def ssh_config(text: str, name: str) -> Reached:
    """The section of machine `name` in what `vagrant ssh-config` prints; other lines (warnings) are passed over."""
    lines = [line for line in text.splitlines() if re.match(r"Host |\s+\w|\s*$", line)]
    try:
        config = SSHConfig.from_text("\n".join(lines))
    except ConfigParseError as error:
        raise LabError(f"vagrant ssh-config cannot be read: {error}", evidence=text) from None
    if name not in config.get_hostnames():
        raise LabError(f"vagrant ssh-config does not name {name}", evidence=text)
    found = config.lookup(name)
    port = str(found.get("port", 22))
    if found["hostname"] == name or not port.isdigit():  # paramiko fills in the name for what is not told
        raise LabError(f"vagrant ssh-config gives {name} no address", evidence=text)
    return Reached(found["hostname"], int(port), found.get("user", "root"), tuple(found.get("identityfile", ())))


class Client(vagrant.Vagrant):
    """python-vagrant's commands for the Vagrantfile in `folder`.

    `inside` wraps an argv so that it runs where libvirt is; `watch` is called all the while and may raise.
    """

    def __init__(
        self, folder: Path, inside: Callable[[Sequence[str]], list[str]], watch: Callable[[], None], deadline: Deadline
    ) -> None:
        super().__init__(root=str(folder))
        self.folder = folder
        self.inside = inside
        self.watch = watch
        self.deadline = deadline
        self.env = {
            "VAGRANT_CWD": str(folder),
            "VAGRANT_HOME": str(folder / "home"),
            "VAGRANT_CHECKPOINT_DISABLE": "1",  # it would ask the world for news
            "VAGRANT_DEFAULT_PROVIDER": "libvirt",
        }

    def _make_vagrant_command(self, args: Sequence[str | None]) -> list[str]:
        words = [word for word in args if word is not None]
        return self.inside(["vagrant", *words, *(["--machine-readable"] if words[0] in MACHINE_READABLE else [])])

    def _stream_vagrant_command(self, args: Sequence[str | None]) -> Iterator[str]:
        """Each line of its two streams, as they come; LabError with the reason when it fails."""
        path = self.folder / "vagrant.log"
        at = path.stat().st_size if path.exists() else 0
        process = spawn(self._make_vagrant_command(args), log=path, env=self.env)
        with path.open("rb") as told:
            told.seek(at)
            seen, partial, ended = "", "", False
            try:
                while not ended:
                    ended = process.poll() is not None
                    new = told.read().decode(errors="replace")
                    seen += new
                    *whole, partial = (partial + new).split("\n")
                    yield from (f"{line}\n" for line in whole)
                    if not ended and not new:
                        self.watch()
                        self.deadline.check(seen[-8000:])
                        time.sleep(0.05)
            finally:
                end_group(process)
        if process.returncode:
            raise failure(str(args[0]), process.returncode, seen)
        if partial:
            yield partial

    def _run_vagrant_command(self, args: Sequence[str | None]) -> str:
        return "".join(self._stream_vagrant_command(args))

    def _call_vagrant_command(self, args: Sequence[str | None]) -> None:
        self._run_vagrant_command(args)

    def _parse_machine_readable_output(self, output: str) -> list[tuple[str, ...]]:
        """python-vagrant's four columns, for its own readers of status and boxes."""
        messages = [message for line in output.splitlines() if (message := Message.read(line))]
        kept = [m for m in messages if m.kind not in ("metadata", "ui", "action")]
        return [("", m.target, m.kind, m.data[0] if m.data else "") for m in kept]

    def told_up(self, **options: Any) -> None:
        """`up`, with its progress told as it comes."""
        for line in self.up(provider="libvirt", stream_output=True, **options):
            if text := progress(line):
                log.info("vagrant: %s", text)
