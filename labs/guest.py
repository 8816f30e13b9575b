"""Guest: a running machine. run, put, get, facts; and the honest reason when it no longer answers."""

from __future__ import annotations

import contextlib
import hashlib
import io
import re
import shlex
import tarfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

from testinfra.backend.base import BaseBackend, CommandResult
from testinfra.host import Host

from labs.console import ConsoleWatch, Event, known_emulator_fault
from labs.deadline import Deadline
from labs.errors import DeadlineExpired, GuestLost, KernelFailed, LabError
from labs.session import Result, Session

PING_SECONDS = 5.0  # how long a guest with a healthy kernel may take to answer `true`, before scaling
SETTLE_SECONDS = 1.0  # from a first sign of the end (a panic's first line, a broken connection) to the rest of it
_INIT_FAILED = re.compile(r"cgroup-lab: (init failed: .*)")  # labs/build/guest/init


class Machine(Protocol):
    """What a provider must know of the machine under a guest."""

    accelerator: str

    def gone(self) -> str:
        """Why the machine has ended, or '' while it exists; cheap, asked all the time."""

    def standing_still(self) -> str:
        """Why the machine exists but does not run (paused, stuck), or ''."""

    def dump(self) -> None:
        """Make the kernel tell what it does (sysrq), on its console; does nothing where that is not possible."""


@dataclass(frozen=True)
class Asked:
    """What the running guest must turn out to be; empty fields are not compared."""

    release: str = ""
    build_id: str = ""
    parameters: tuple[str, ...] = ()


class Vitals:
    """Whether a machine and its kernel still live, asked from every wait."""

    def __init__(self, machine: Machine, console: ConsoleWatch) -> None:
        self.machine = machine
        self.console = console

    def check(self) -> None:
        """Raise KernelFailed or GuestLost when the machine has met its end; again at each later call.

        Several threads may ask at once, each for a command of its own.
        """
        ended = self.machine.gone()  # asked first: what a dead machine had to say is in the file by now
        self.console.poll()
        if self.console.fatal or (ended and self._fatal()):
            self._kernel_failed()
        if ended:
            told = _INIT_FAILED.search(self.console.text)
            raise GuestLost(f"guest lost: {told[1] if told else ended}", evidence=self.console.tail(40))

    def explain_loss(self, error: GuestLost) -> NoReturn:
        """The connection broke: a moment before the end of kernel or machine shows, if that was the cause."""
        self._settle(self.check)
        raise GuestLost(f"guest lost: {error}", evidence=f"{error.evidence}\n{self.console.tail(40)}") from error

    def explain_silence(self, error: LabError) -> NoReturn:
        """The guest answers nothing: blame the machine if it stands still, else the kernel, after a sysrq dump."""
        self.check()
        reason = self.machine.standing_still()
        if reason:
            raise GuestLost(f"guest lost: {reason}; {error}", evidence=self.console.tail(40)) from error
        self.machine.dump()
        self.check()
        raise KernelFailed(f"kernel hangs: {error}", evidence=self.console.tail(200)) from error

    def _settle(self, check: Callable[[], None]) -> None:
        deadline = Deadline(SETTLE_SECONDS, "settling")
        while not self.machine.gone() and not deadline.expired:
            time.sleep(0.02)
            check()
        check()

    def _fatal(self) -> list[Event]:
        return [event for event in self.console.events() if event.fatal]

    def _kernel_failed(self) -> None:
        if not self.machine.gone():
            self._settle(lambda: None)  # the first line is seen as it is written; its trace follows
            self.console.poll()
        first = self._fatal()[0]
        raise failure("kernel failed", first, self.console.events())


def failure(how: str, first: Event, events: Iterable[Event]) -> LabError:
    """What a complaint says of the kernel, unless one of `events` is known to be the emulator's doing."""
    if any(known_emulator_fault(event) for event in events):
        return GuestLost(f"fault of the emulator, not of the kernel: {first.text}", evidence=first.context)
    return KernelFailed(f"{how}: {first.text}", evidence=first.context)


class Guest:
    """A machine that runs, reached over SSH."""

    def __init__(self, session: Session, vitals: Vitals) -> None:
        self.session = session
        self.vitals = vitals

    @property
    def accelerator(self) -> str:
        return self.vitals.machine.accelerator

    @property
    def console(self) -> ConsoleWatch:
        return self.vitals.console

    def run(self, command: str, seconds: float = 60, *, stdin: bytes = b"") -> Result:
        """Run a shell command; any exit code is a result. `seconds` is for hardware, stretched under emulation.

        Raises KernelFailed when the kernel panicked, oopsed or hangs, GuestLost when the machine went away without a
        word from its kernel, DeadlineExpired when only the command was too slow.
        """
        deadline = Deadline.scaled(seconds, command[:60], self.accelerator)
        try:
            return self.session.run(command, deadline, stdin=stdin, watch=self.vitals.check)
        except DeadlineExpired as error:
            self._ping(error)
            raise
        except GuestLost as error:
            self.vitals.explain_loss(error)

    def _ping(self, error: DeadlineExpired) -> None:
        """Tell a slow command from a guest that answers nothing any more."""
        deadline = Deadline.scaled(PING_SECONDS, "ping", self.accelerator)
        try:
            self.session.run("true", deadline, watch=self.vitals.check)
        except DeadlineExpired:
            self.vitals.explain_silence(error)
        except GuestLost as lost:
            self.vitals.explain_loss(lost)

    def must(self, command: str, seconds: float = 60, *, stdin: bytes = b"") -> str:
        """Run a command of the lab's own that has to succeed; its output, or LabError with what it said."""
        result = self.run(command, seconds, stdin=stdin)
        if result.code != 0:
            said = (result.err or result.out).strip().splitlines()[-1:] or ["(no message)"]
            raise LabError(f"in the guest, {command[:60]!r} ended with {result.code}: {said[0]}", evidence=result.err)
        return result.out

    def put(self, data: bytes, path: str, mode: int = 0o644) -> None:
        """Write a file in the guest; its sha256 is compared."""
        quoted = shlex.quote(path)
        told = self.must(f"cat > {quoted} && chmod {mode:o} {quoted} && sha256sum < {quoted}", 120, stdin=data)
        if told.split()[0] != hashlib.sha256(data).hexdigest():
            raise LabError(f"{path} did not arrive whole in the guest")

    def put_files(self, files: Mapping[str, bytes], folder: str) -> None:
        """Write several files below one folder of the guest, in one go."""
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            for name, data in files.items():
                entry = tarfile.TarInfo(name)
                entry.size = len(data)
                tar.addfile(entry, io.BytesIO(data))
        quoted = shlex.quote(folder)
        self.must(f"mkdir -p {quoted} && tar -x -C {quoted}", 120, stdin=archive.getvalue())

    def get(self, path: str) -> bytes:
        """Contents of a file in the guest."""
        result = self.run(f"cat {shlex.quote(path)}", 120)
        if result.code != 0:
            raise LabError(f"{path} cannot be read from the guest: {result.err.strip()}")
        return result.stdout

    @contextlib.contextmanager
    def marked(self, case: str) -> Iterator[None]:
        """Mark a case's begin and end in the kernel log, so that the console can be cut per case."""
        self._mark(f"begin {case}")
        try:
            yield
        finally:
            with contextlib.suppress(LabError):
                self._mark(f"end {case}")

    def _mark(self, text: str) -> None:
        self.run(f"echo {shlex.quote(f'<2>cgroup-lab: {text}')} > /dev/kmsg", 10)

    def sections(self, script: str, seconds: float = 60) -> dict[str, str]:
        """Run lines of `show NAME COMMAND...`; each command's output by its name, '' where it failed."""
        show = 'show() { printf \'\\036%s\\n\' "$1"; shift; "$@" 2> /dev/null; }\n'
        blocks = self.must(f"{show}{script}\ntrue", seconds).split("\x1e")[1:]
        return {name: text.strip() for name, _, text in (block.partition("\n") for block in blocks)}

    def facts(self) -> dict[str, Any]:
        """What really runs: kernel release and build-id, boot parameters, mounts, clock. Read back, never assumed."""
        facts: dict[str, Any] = dict(self.sections(FACTS))
        facts["parameters"] = facts["parameters"].split()
        facts["mounts"] = [line for line in facts["mounts"].splitlines() if "cgroup" in line]
        notes = facts.pop("notes").replace("\n", "")
        facts["build_id"] = build_id(bytes.fromhex(notes)) if re.fullmatch(r"([0-9a-f]{2})*", notes) else ""
        facts["accelerator"] = self.accelerator
        return facts

    def verify(self, asked: Asked, facts: dict[str, Any]) -> None:
        """LabError when what runs is not what was asked for."""
        pairs = [("kernel release", asked.release, facts["release"]), ("build-id", asked.build_id, facts["build_id"])]
        for what, wanted, got in pairs:
            if wanted and wanted != got:
                raise LabError(f"the guest runs another kernel: {what} is {got}, asked was {wanted}")
        absent = [word for word in asked.parameters if word not in facts["parameters"]]
        if absent:
            raise LabError(f"boot parameters did not reach the guest: {' '.join(absent)}")

    def testinfra(self) -> Host:
        """A testinfra host whose commands run in this guest."""
        return Host(GuestBackend(self))


FACTS = r"""
show release uname -r
show version cat /proc/version
show parameters cat /proc/cmdline
show notes sh -c 'xxd -p < /sys/kernel/notes || busybox xxd -p < /sys/kernel/notes'
show mounts cat /proc/mounts
show clocksource cat /sys/devices/system/clocksource/clocksource0/current_clocksource
show cpus nproc
show memory_kb sh -c 'grep -o "MemTotal.*" /proc/meminfo | tr -dc 0-9'
show boot_id cat /proc/sys/kernel/random/boot_id
show taint cat /proc/sys/kernel/tainted
"""


def build_id(notes: bytes) -> str:
    """The GNU build-id among ELF notes as /sys/kernel/notes gives them: name size, value size, type, name, value."""
    at = 0
    while at + 12 <= len(notes):
        name_size, size, kind = (int.from_bytes(notes[at + i : at + i + 4], "little") for i in (0, 4, 8))
        name_at = at + 12
        value_at = name_at + (name_size + 3) // 4 * 4
        if kind == 3 and notes[name_at : name_at + name_size] == b"GNU\0":
            return notes[value_at : value_at + size].hex() if value_at + size <= len(notes) else ""
        at = value_at + (size + 3) // 4 * 4
    return ""


class GuestBackend(BaseBackend):  # type: ignore[misc]  # testinfra ships no types
    """testinfra's way into a Guest."""

    NAME = "lab"

    def __init__(self, guest: Guest) -> None:
        super().__init__("guest")
        self._guest = guest

    def run(self, command: str, *args: str, **kwargs: Any) -> CommandResult:
        line = self.get_command(command, *args)
        result = self._guest.run(line)
        return self.result(result.code, line.encode(), result.stdout, result.stderr)
