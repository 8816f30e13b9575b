"""A QEMU seen from outside: QMP for callers in several threads, and its console on a serial line.

The protocol's event loop lives in a thread of its own: a Ctrl-C in a caller leaves no coroutine half done, and a QEMU
that does not answer is waited for with patience that has an end.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from qemu.qmp import QMPClient, QMPError

from labs.console import ConsoleWatch
from labs.deadline import Deadline
from labs.errors import LabError

PATIENCE = 3.0  # seconds for one question
SNAPSHOT_SECONDS = 60.0  # all of its memory is written, or read, before QEMU answers anything else
DUMP_SECONDS = 10.0  # a CPU that does not answer the others' NMI is waited for that long by the kernel
QMP_TROUBLE = (QMPError, OSError, EOFError)  # a time-out is an OSError
logging.getLogger("qemu.qmp").setLevel(logging.CRITICAL)  # the lab tells causes in one line of its own


class Monitor:
    """A connection to QEMU's monitor; `ask` raises one of QMP_TROUBLE."""

    def __init__(self) -> None:
        self._client = QMPClient("qemu")
        self._loop = asyncio.new_event_loop()
        self._turn = asyncio.Lock()  # nobody disconnects while an interrupted attempt to connect still cleans up
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def connect(self, path: Path) -> None:
        """Connect and negotiate; may be tried again after it has failed."""
        self._wait(lambda: self._client.connect(str(path)))

    def ask(self, command: str, **arguments: object) -> Any:
        """What QEMU returns for one command."""
        return self._wait(lambda: self._client.execute(command, arguments))

    def typed(self, line: str, seconds: float = PATIENCE) -> str:
        """What a person who types a line at QEMU's own prompt is told: for what QMP has no command of its own."""
        arguments: dict[str, object] = {"command-line": line}
        return str(self._wait(lambda: self._client.execute("human-monitor-command", arguments), seconds))

    def close(self) -> None:
        """End the connection and the thread; safe to call twice."""
        if self._loop.is_closed():
            return
        with contextlib.suppress(*QMP_TROUBLE):
            self._wait(self._client.disconnect)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _wait(self, begin: Callable[[], Coroutine[Any, Any, Any]], seconds: float = PATIENCE) -> Any:
        async def patiently() -> Any:
            async with asyncio.timeout(seconds), self._turn:
                return await begin()

        future = asyncio.run_coroutine_threadsafe(patiently(), self._loop)
        try:
            return future.result()
        finally:
            future.cancel()  # of a caller that was interrupted


def escaped(path: Path) -> str:
    return str(path).replace(",", ",,")  # QEMU's option lists end a value at a single comma


def watched(folder: Path, logs: Path) -> list[str]:
    """Arguments that give a QEMU its sockets, in `folder`, and its console, in `logs`, for Monitored to work with."""
    where, console = escaped(folder), f"{escaped(logs)}/console.log"
    serial = f"socket,id=con,path={where}/console.sock,server=on,wait=off,logfile={console}"
    return ["-qmp", f"unix:{where}/qmp.sock,server=on,wait=off", "-chardev", serial, "-serial", "chardev:con"]


class Monitored:
    """A machine under a QEMU that was started with the arguments of `watched`."""

    def __init__(self, accelerator: str, folder: Path, logs: Path) -> None:
        self.accelerator = accelerator
        self.folder = folder
        self.console = ConsoleWatch(logs / "console.log")
        self.monitor = Monitor()

    def check(self) -> None:
        """Raise GuestLost with QEMU's own words when it has ended."""

    def connect_monitor(self, deadline: Deadline) -> None:
        """Open QMP; GuestLost with QEMU's own words when it ended first."""
        while True:
            self.check()
            deadline.check()
            try:
                return self.monitor.connect(self.folder / "qmp.sock")
            except QMP_TROUBLE:
                time.sleep(0.01)

    def standing_still(self) -> str:
        """Why QEMU does not run its guest although the process lives, or ''."""
        try:
            status = self.monitor.ask("query-status")
        except QMP_TROUBLE:
            return "QEMU does not answer its monitor"
        return "" if status.get("running") else f"QEMU is {status.get('status')}"

    def dump(self) -> None:
        """sysrq on the serial line: a break, then l (CPUs), w (blocked tasks); what comes back is on the console."""
        with contextlib.suppress(*QMP_TROUBLE), socket.socket(socket.AF_UNIX) as line:
            line.settimeout(PATIENCE)
            line.connect(str(self.folder / "console.sock"))
            for key in b"lw":
                self.monitor.ask("chardev-send-break", id="con")
                line.sendall(bytes([key]))
                _drain(line)

    def save(self) -> None:
        """Keep what the machine is now, memory and disks (they must be qcow2), for `restore` to go back to."""
        self._snapshot("savevm")

    def restore(self) -> None:
        """Make the machine what it was when `save` was called, and run it, whatever its guest has done since.

        Connections into the guest are lost, its clock stands, and its console begins anew. LabError where QEMU cannot.
        """
        self._snapshot("loadvm")
        self.monitor.ask("cont")
        self.console.forget()

    def _snapshot(self, command: str) -> None:
        self.check()
        try:
            told = self.monitor.typed(f"{command} cgroup-lab", SNAPSHOT_SECONDS).strip()
        except QMP_TROUBLE as error:
            told = str(error) or type(error).__name__
        if told:
            raise LabError(f"{command}: {told.removeprefix('Error: ')}", evidence=self.console.tail(40))

    def end(self) -> None:
        """Close the monitor; safe to call twice."""
        self.monitor.close()


def _drain(line: socket.socket) -> None:
    """Read until a kernel that dumps falls quiet.

    Not to read would stop the guest: QEMU sends its serial line byte by byte, and some 280 of them fill a Unix socket.
    """
    deadline = Deadline(DUMP_SECONDS, "dump")
    line.settimeout(1.0)
    with contextlib.suppress(TimeoutError):
        while not deadline.expired and line.recv(1 << 16):
            pass
