"""One SSH connection into a guest: commands in, results out, a deadline always.

The wrapper around each command writes an end marker of its own, so `exit 255` and a lost connection are different
things: no marker, no result.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import re
import secrets
import select
import shlex
import shutil
import socket
import sys
import termios
import threading
import time
import tty
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from dataclasses import dataclass
from pathlib import Path

import paramiko

from labs.deadline import Deadline
from labs.errors import DeadlineExpired, GuestLost, LabError

LEAST_ATTEMPT = 2.0  # seconds that one try to connect gets at least; a handshake under emulation takes about one
MAX_OUTPUT = 512 * 2**20  # bytes of both streams; a guest is not trusted to stop
logging.getLogger("paramiko").setLevel(logging.CRITICAL)  # its causes are kept and told in one line instead


@dataclass(frozen=True)
class Result:
    """What a command in the guest left. Streams are bytes; `out`/`err` decode them, bad bytes replaced."""

    command: str
    code: int
    stdout: bytes
    stderr: bytes
    seconds: float

    @property
    def out(self) -> str:
        return self.stdout.decode(errors="replace")

    @property
    def err(self) -> str:
        return self.stderr.decode(errors="replace")


class HostKeyChanged(LabError):
    """The guest shows another key than the pinned one: never retried, never accepted."""


def _nothing() -> None:
    pass


Address = tuple[str, int] | Path  # host and port, or a Unix socket


def _told(address: Address) -> str:
    return str(address) if isinstance(address, Path) else f"{address[0]}:{address[1]}"


def _open(address: Address, seconds: float) -> socket.socket:
    if isinstance(address, Path):
        link = socket.socket(socket.AF_UNIX)
        link.settimeout(seconds)
        link.connect(str(address))
        return link
    link = socket.create_connection(address, timeout=seconds)
    # a command is several small messages: without it each waits for the acknowledgement of the one before, 40 ms
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return link


def connect(
    address: Address,
    client_key: Path,
    host_key: Path,
    deadline: Deadline,
    watch: Callable[[], None] = _nothing,
) -> Session:
    """Connect as root, trying again until the deadline; the last cause is kept. `watch` may raise to end the wait.

    Raises HostKeyChanged at once for a wrong host key, DeadlineExpired when nobody answered.
    """
    key = paramiko.Ed25519Key.from_private_key_file(str(client_key))
    pinned = host_key.read_text().split()[1]
    cause = "no attempt was made"
    while not deadline.expired:
        watch()
        try:
            return Session(_handshake(address, key, pinned, _attempt(deadline), watch))
        except HostKeyChanged:
            raise
        except (OSError, EOFError, paramiko.SSHException) as error:
            cause = str(error) or "it closed the connection"
        time.sleep(min(0.05, deadline.remaining()))
    raise DeadlineExpired(f"no SSH at {_told(address)} after {deadline.seconds:.0f} s: {cause}")


def _attempt(whole: Deadline) -> Deadline:
    """The part of the wait that one attempt may take: a silent peer must not use up the whole."""
    return Deadline(min(whole.remaining(), max(LEAST_ATTEMPT, whole.remaining() / 3), 15.0), whole.what)


def _handshake(
    address: Address, key: paramiko.PKey, pinned: str, attempt: Deadline, watch: Callable[[], None]
) -> paramiko.Transport:
    link = _open(address, max(0.1, attempt.remaining()))
    try:
        transport = paramiko.Transport(link)
        # later than the attempt's own end, which tells the cause better
        transport.banner_timeout = transport.handshake_timeout = transport.auth_timeout = attempt.seconds + 5
        transport.get_security_options().ciphers = ("aes128-ctr",)  # measured fastest under emulation
        _negotiate(transport, transport.start_client, attempt, watch)
        if transport.get_remote_server_key().get_base64() != pinned:
            raise HostKeyChanged(f"the guest at {_told(address)} shows another host key than the lab's")
        _negotiate(transport, functools.partial(transport.auth_publickey, "root", key), attempt, watch)
        if not transport.is_authenticated():
            raise paramiko.AuthenticationException("the guest does not accept the lab's key")
        return transport
    except BaseException:
        link.close()
        raise


def _negotiate(
    transport: paramiko.Transport, begin: Callable[..., object], attempt: Deadline, watch: Callable[[], None]
) -> None:
    """One step of the handshake; it goes on in paramiko's thread, while this one looks after the guest."""
    done = threading.Event()
    begin(event=done)
    while not done.wait(0.05):
        watch()
        if attempt.expired:
            raise paramiko.SSHException("it accepts connections and stays silent")
    if not transport.is_active():
        raise transport.get_exception() or paramiko.SSHException("it closed the connection")


@contextlib.contextmanager
def _raw_terminal() -> Iterator[None]:
    """Keys go to the guest as they are typed; does nothing when standard input is no terminal."""
    if not sys.stdin.isatty():
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setraw(sys.stdin)
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


class _Arrival(threading.Event):
    """Set when either stream of a channel gets data or ends; only its reader, who looks at both, sets it back.

    select() would need the channel's pipe, which paramiko closes while its own thread may still write to it: that ends
    the whole connection (Bad file descriptor), or puts a byte into whatever the descriptor has become.
    """

    def begin(self) -> None:
        super().clear()

    def clear(self) -> None:
        """What paramiko calls when one of the two streams is empty."""


def _pump(channel: paramiko.Channel, write: Callable[[bytes], object]) -> threading.Thread:
    """Hand on what a channel says, from a thread, until it or the connection ends."""

    def work() -> None:
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            while data := channel.recv(1 << 16):
                write(data)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


class Session:
    """An open connection. Several commands may run at once, each on a channel of its own."""

    def __init__(self, transport: paramiko.Transport) -> None:
        self._transport = transport

    def run(
        self, command: str, deadline: Deadline, *, stdin: bytes = b"", watch: Callable[[], None] = _nothing
    ) -> Result:
        """Run a shell command to its end. `watch` is called about 20 times a second and may raise.

        Raises GuestLost when the connection ends without the end marker, DeadlineExpired at the deadline; both keep
        the output seen so far as evidence.
        """
        marker = f"end-{secrets.token_hex(8)}"
        wrapped = f"sh -c {shlex.quote(command)}; printf '\\n%s %d\\n' {marker} $? >&2"
        began = time.monotonic()
        out, err = bytearray(), bytearray()
        channel = None
        try:
            channel = self._start(wrapped, deadline, watch)
            self._exchange(channel, memoryview(stdin), out, err, deadline, watch)
        except (DeadlineExpired, GuestLost, paramiko.SSHException, OSError, EOFError) as error:
            seen = (bytes(out[-2000:]) + b"\n" + bytes(err[-2000:])).decode(errors="replace").strip()
            if isinstance(error, DeadlineExpired):
                raise DeadlineExpired(
                    f"{command[:60]!r}: not done after {deadline.seconds:.0f} s", evidence=seen
                ) from None
            watch()
            cause = str(error) or type(error).__name__
            raise GuestLost(f"connection lost in {command[:60]!r}: {cause}", evidence=seen) from None
        finally:
            if channel is not None:
                channel.close()
        return _finish(command, marker, bytes(out), bytes(err), time.monotonic() - began, watch)

    def _start(self, wrapped: str, deadline: Deadline, watch: Callable[[], None]) -> paramiko.Channel:
        """A channel that runs the command. paramiko waits for the far side without an end, so a thread does that."""
        opened: Future[paramiko.Channel] = Future()

        def work() -> None:
            try:
                channel = self._transport.open_session(timeout=max(0.1, deadline.remaining()))
                channel.exec_command(wrapped)
                opened.set_result(channel)
            except BaseException as error:
                opened.set_exception(error)

        threading.Thread(target=work, daemon=True).start()
        while not wait([opened], min(0.05, deadline.remaining())).done:
            watch()
            deadline.check()
        if opened.exception() and self._transport.is_active():
            deadline.check()  # a silent guest, not a lost one
        return opened.result()

    def _exchange(
        self,
        channel: paramiko.Channel,
        pending: memoryview,
        out: bytearray,
        err: bytearray,
        deadline: Deadline,
        watch: Callable[[], None],
    ) -> None:
        """Move all three streams until the far side has closed its two."""
        channel.setblocking(False)
        arrived = _Arrival()
        channel.in_buffer.set_event(arrived)
        channel.in_stderr_buffer.set_event(arrived)
        while True:
            moved = False
            arrived.begin()
            while channel.recv_ready():
                out += channel.recv(1 << 18)
                moved = True
            while channel.recv_stderr_ready():
                err += channel.recv_stderr(1 << 18)
                moved = True
            if len(out) + len(err) > MAX_OUTPUT:
                raise GuestLost(f"the guest sent more than {MAX_OUTPUT >> 20} MiB")
            if pending and channel.send_ready():
                try:
                    pending = pending[channel.send(bytes(pending[: 1 << 16])) :]
                except OSError:  # the command has ended without reading all of its input, as commands may
                    pending = pending[:0]
                moved = True
            elif not pending and not channel.closed and not channel.eof_sent:
                channel.shutdown_write()
            if moved:
                deadline.check()
                continue
            if channel.eof_received or channel.closed or not self._transport.is_active():
                if not (channel.recv_ready() or channel.recv_stderr_ready()):
                    return
                continue
            watch()
            deadline.check()
            arrived.wait(min(0.05, deadline.remaining()))

    def follow(self, command: str, path: Path) -> None:
        """Append what a command says to a file, from a thread, until the command or the connection ends."""
        channel = self._transport.open_session(timeout=30)
        channel.exec_command(command)
        _pump(channel, path.open("ab", buffering=0).write)

    def login(self, keys: Path) -> str:
        """The ssh command that a person types to reach the same guest."""
        peer = self._transport.getpeername()
        options = f"-i {keys / 'client'} -o IdentitiesOnly=yes -o HostKeyAlias=cgroup-lab"
        options += f" -o UserKnownHostsFile={keys / 'known_hosts'}"
        if isinstance(peer, str):  # a Unix socket
            return f"ssh {options} -o ProxyCommand='nc -U {peer}' root@guest"
        return f"ssh {options} -p {peer[1]} root@{peer[0]}"

    def shell(self) -> int:
        """An interactive shell on this terminal; its exit code. Ends with the guest or the person."""
        size = shutil.get_terminal_size()
        channel = self._transport.open_session(timeout=30)
        channel.get_pty(os.environ.get("TERM", "dumb"), size.columns, size.lines)
        channel.invoke_shell()
        said = _pump(channel, functools.partial(os.write, sys.stdout.fileno()))
        with _raw_terminal():
            while said.is_alive():
                if not select.select([sys.stdin], [], [], 0.2)[0]:
                    continue
                typed = os.read(sys.stdin.fileno(), 1 << 12)
                if not typed:
                    channel.shutdown_write()
                    break
                channel.sendall(typed)
            said.join()
        return channel.recv_exit_status() if channel.exit_status_ready() else 0

    def close(self) -> None:
        self._transport.close()


def _finish(command: str, marker: str, out: bytes, err: bytes, seconds: float, watch: Callable[[], None]) -> Result:
    head, _, tail = err.rpartition(f"\n{marker} ".encode())
    code = re.match(rb"(\d+)\n", tail)  # without its line end the number may be cut; what follows is a late child's
    if not code:
        watch()
        raise GuestLost(
            f"connection lost in {command[:60]!r}", evidence=(out[-2000:] + err[-2000:]).decode(errors="replace")
        )
    return Result(command, int(code[1]), out, head + tail[code.end() :], seconds)
