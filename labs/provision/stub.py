"""QEMU's gdb stub: whether a running guest has come by certain addresses, without anything in the guest.

Each address has a breakpoint until it is met once; the machine then stands still for a moment, and goes on. Works for
the very binary that is tested: it needs no tracer in the kernel, only its System.map and a kernel that is not moved.
Protocol: "Debugging with GDB", appendix E (Remote Serial Protocol).
"""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from labs.errors import LabError
from labs.provision.monitor import QMP_TROUBLE, Monitor

PATIENCE = 20.0  # seconds for one answer; a machine under load has other things to do
RIP = slice(16 * 16, 17 * 16)  # hex digits of the program counter among gdb's registers for x86-64


class Stub:
    """A connection to the stub. The machine stands still until it is sent on with `c`."""

    def __init__(self, path: Path) -> None:
        self._link = socket.socket(socket.AF_UNIX)
        self._link.connect(str(path))
        self._seen = b""
        self.ask("qAttached")

    def ask(self, words: str) -> str:
        """The answer to a question asked while the machine stands still; late news of why it does is dropped."""
        self.send(words)
        while (said := self.answer()).startswith("T"):
            pass
        return said

    def send(self, words: str) -> None:
        data = words.encode()
        self._link.sendall(b"$%s#%02x" % (data, sum(data) % 256))

    def answer(self, patience: float | None = PATIENCE) -> str:
        """The next packet's words, acknowledged; None waits for as long as it takes."""
        self._link.settimeout(patience)
        while not (found := re.search(rb"\$([^#]*)#..", self._seen)):
            data = self._link.recv(1 << 12)
            if not data:
                raise EOFError("the stub has closed the connection")
            self._seen += data
        self._seen = self._seen[found.end() :]
        self._link.sendall(b"+")
        return found[1].decode(errors="replace")

    def must(self, words: str) -> None:
        if (said := self.ask(words)) != "OK":
            raise LabError(f"the gdb stub refuses {words!r}: {said or 'not known'}")

    def where(self, stopped: str) -> int:
        """The address at which a thread has stopped, from the words that said so."""
        if thread := re.search(r"thread:([^;]+)", stopped):
            self.ask(f"Hg{thread[1]}")
        return int.from_bytes(bytes.fromhex(self.ask("g")[RIP]), "little")

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._link.shutdown(socket.SHUT_RDWR)  # wakes whoever waits for an answer
        self._link.close()


@contextlib.contextmanager
def watch(monitor: Monitor, folder: Path, addresses: Sequence[int], met: Callable[[int], None]) -> Iterator[None]:
    """Watch addresses while the block runs; `met` is called, in a thread, once for each that was come by.

    `folder` is a place for a socket. Whatever happens, the machine goes on without breakpoints afterwards.
    """
    path = folder / "gdb.sock"
    try:
        monitor.typed(f"gdbserver unix:{path},server=on,wait=off")
        stub = Stub(path)
    except (*QMP_TROUBLE, TimeoutError) as error:
        raise LabError(f"QEMU opens no gdb stub: {error or type(error).__name__}") from None
    thread = threading.Thread(target=_follow, args=(stub, set(addresses), met), daemon=True)
    try:
        for address in addresses:
            stub.must(f"Z0,{address:x},1")
        stub.send("c")
        thread.start()
        yield
    finally:
        stub.close()
        with contextlib.suppress(*QMP_TROUBLE):
            monitor.typed("gdbserver none")
            monitor.ask("cont")
        if thread.ident:
            thread.join(PATIENCE)


def _follow(stub: Stub, waiting: set[int], met: Callable[[int], None]) -> None:
    """Let the machine go on from each stop, until the stub is closed."""
    with contextlib.suppress(OSError, EOFError):
        while waiting:
            address = stub.where(stub.answer(patience=None))
            if address in waiting:  # two CPUs may have come by the same one
                stub.must(f"z0,{address:x},1")
                waiting.remove(address)
                met(address)
            stub.send("c")
