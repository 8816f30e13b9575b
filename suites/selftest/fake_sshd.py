"""An SSH server on 127.0.0.1, as a guest's sshd behaves: well, late, broken or dead."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

import paramiko
from paramiko.common import cMSG_CHANNEL_SUCCESS


class _Server(paramiko.ServerInterface):
    def __init__(self, sshd: FakeSshd) -> None:
        self.sshd = sshd

    def get_allowed_auths(self, username: str) -> str:
        return "publickey"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        right = username == "root" and key.get_base64() in self.sshd.accepted
        return paramiko.AUTH_SUCCESSFUL if right else paramiko.AUTH_FAILED

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return paramiko.OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        time.sleep(self.sshd.slowness)
        replied = _after_reply(channel.get_transport())
        threading.Thread(target=self.sshd.execute, args=(channel, command.decode(), replied), daemon=True).start()
        return True


def _after_reply(transport: paramiko.Transport) -> threading.Event:
    """Set once the answer to a request is on its way: a command that ends before it would close the channel unheard,
    which no real server does."""
    replied, send = threading.Event(), transport._send_user_message  # type: ignore[attr-defined]

    def told(message: paramiko.Message) -> None:
        send(message)
        if message.asbytes()[:1] == cMSG_CHANNEL_SUCCESS:
            replied.set()

    transport._send_user_message = told  # type: ignore[attr-defined]
    return replied


class FakeSshd:
    """Serves each connection with the next of `manners`, the well-behaved one when none is left."""

    def __init__(self, keys: Path, manners: list[Callable[[socket.socket], None]] | None = None) -> None:
        self.host_key = paramiko.Ed25519Key.from_private_key_file(str(keys / "host"))
        self.accepted = (keys / "client.pub").read_text()
        self.manners = list(manners or [])
        self.connections = 0
        self.slowness = 0.0  # seconds from the request to run a command to the answer
        self.links: list[socket.socket] = []
        self.children: list[subprocess.Popen[bytes]] = []
        self.listener = socket.socket()
        self.listener.bind(("127.0.0.1", 0))
        self.address: tuple[str, int] = self.listener.getsockname()

    def open(self) -> None:
        """Begin to listen; before, connections are refused."""
        self.listener.listen(20)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                link, _ = self.listener.accept()
                self.connections += 1
                link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self.links.append(link)
                manner = self.manners.pop(0) if self.manners else self.serve
                threading.Thread(target=manner, args=(link,), daemon=True).start()

    def serve(self, link: socket.socket) -> None:
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            transport = paramiko.Transport(link)
            transport.add_server_key(self.host_key)
            transport.start_server(server=_Server(self))

    def serve_late(self, link: socket.socket) -> None:
        time.sleep(0.6)
        self.serve(link)

    def execute(self, channel: paramiko.Channel, command: str, replied: threading.Event) -> None:
        replied.wait(5)
        pipe = subprocess.PIPE
        child = subprocess.Popen(["sh", "-c", command], stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True)
        self.children.append(child)
        assert child.stdin and child.stdout and child.stderr
        pumps = [
            threading.Thread(target=_pump, args=(child.stdout, channel.sendall), daemon=True),
            threading.Thread(target=_pump, args=(child.stderr, channel.sendall_stderr), daemon=True),
        ]
        for pump in pumps:
            pump.start()
        threading.Thread(target=_feed, args=(channel, child.stdin), daemon=True).start()
        for pump in pumps:
            pump.join()
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            channel.send_exit_status(child.wait() & 0xFF)
            channel.close()

    def cut(self) -> None:
        """Break every connection, as when the guest is killed."""
        for link in self.links:
            with contextlib.suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.cut()
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for child in self.children:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()


def _pump(stream: IO[bytes], send: Callable[[bytes], object]) -> None:
    with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
        while data := os.read(stream.fileno(), 1 << 15):
            send(data)


def _feed(channel: paramiko.Channel, stdin: IO[bytes]) -> None:
    with contextlib.suppress(OSError, EOFError, paramiko.SSHException), stdin:
        while data := channel.recv(1 << 15):
            stdin.write(data)


def reset(link: socket.socket) -> None:
    """Accept and reset, as slirp does while nobody listens in the guest."""
    link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    link.close()


def silent(link: socket.socket) -> None:
    """Accept and say nothing."""


class Gate:
    """A relay to a server that can stop to pass bytes, as a paused guest does."""

    def __init__(self, target: tuple[str, int]) -> None:
        self.target = target
        self.open = threading.Event()
        self.open.set()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self.listener.getsockname()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self.listener.accept()
                far = socket.create_connection(self.target)
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=self._pass, args=(source, sink), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while self.open.wait() and (data := source.recv(1 << 14)):
                self.open.wait()
                sink.sendall(data)

    def close(self) -> None:
        self.open.set()
        self.listener.close()
