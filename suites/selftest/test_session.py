"""The SSH session against a real server that misbehaves: trials 36 (first connection), 37 (hangs), 38 (exit 255)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fake_lab import FakeMachine
from fake_sshd import FakeSshd, Gate, reset, silent

from labs.build.keys import guest_keys
from labs.console import ConsoleWatch
from labs.deadline import Deadline
from labs.errors import DeadlineExpired, GuestLost, KernelFailed
from labs.guest import Guest, Vitals
from labs.session import HostKeyChanged, Session, connect
from labs.store import Store

MIB = 2**20
MARKER = "$(tr '\\0' '\\n' < /proc/$PPID/cmdline | grep -oE 'end-[0-9a-f]+')"  # as a command can find it


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return guest_keys(Store(tmp_path_factory.mktemp("store")))


@pytest.fixture
def sshd(keys: Path) -> Iterator[FakeSshd]:
    server = FakeSshd(keys)
    yield server
    server.close()


@pytest.fixture
def session(sshd: FakeSshd, keys: Path) -> Iterator[Session]:
    sshd.open()
    opened = reach(sshd.address, keys)
    yield opened
    opened.close()


def reach(address: tuple[str, int], keys: Path, seconds: float = 10, **options: Callable[[], None]) -> Session:
    return connect(address, keys / "client", keys / "host.pub", Deadline(seconds, "boot"), **options)


class PanicsAfter:
    """A watch that sees the kernel's end after a while; `late` says how long it then took to be heard."""

    def __init__(self, seconds: float) -> None:
        self.at = time.monotonic() + seconds

    def __call__(self) -> None:
        if time.monotonic() >= self.at:
            raise KernelFailed("kernel failed: panic")

    @property
    def late(self) -> float:
        return time.monotonic() - self.at


# Commands


@pytest.mark.parametrize("code", [0, 1, 127, 255])
def test_every_exit_code_is_a_result(session: Session, code: int) -> None:
    result = session.run(f"echo out; echo err >&2; exit {code}", Deadline(5, "it"))
    assert (result.code, result.stdout, result.stderr) == (code, b"out\n", b"err\n")


def test_a_signal_is_a_result(session: Session) -> None:
    assert session.run("kill -9 $$", Deadline(5, "it")).code == 137


@pytest.mark.parametrize(
    "text", [b"no newline", b"\xff\x00\xfe\n\n", b"", b"\n", b"end-0123456789abcdef 0\n", b"\nend-0 255"]
)
@pytest.mark.parametrize("stream", [1, 2])
def test_streams_arrive_as_they_were_sent(session: Session, text: bytes, stream: int) -> None:
    result = session.run(f"cat >&{stream}; exit 3", Deadline(5, "it"), stdin=text)
    assert result.code == 3
    assert (result.stdout, result.stderr) == ((text, b"") if stream == 1 else (b"", text))


def test_a_command_that_sees_its_wrapper_cannot_end_it(session: Session) -> None:
    """The marker is in the wrapper's command line; printing it must not end the command or change its code."""
    assert session.run(f"echo {MARKER}", Deadline(5, "it")).out.startswith("end-")
    assert session.run(f"printf '\\n%s 0\\n' {MARKER} >&2; sleep 0.2; exit 9", Deadline(5, "it")).code == 9


def test_late_words_of_a_child_do_not_hide_the_end(session: Session) -> None:
    result = session.run("(sleep 0.2; echo late >&2) & echo first >&2; exit 4", Deadline(5, "it"))
    assert (result.code, sorted(result.err.split())) == (4, ["first", "late"])


def test_both_streams_are_drained_together(session: Session) -> None:
    size = 3 * MIB
    script = f"head -c {size} /dev/zero; head -c {size} /dev/zero >&2; head -c {size} /dev/zero"
    result = session.run(script, Deadline(20, "it"))
    assert (result.code, len(result.stdout), len(result.stderr)) == (0, 2 * size, size)


def test_much_input_arrives_whole(session: Session) -> None:
    data = bytes(range(256)) * (5 * MIB // 256)
    result = session.run("cat", Deadline(20, "it"), stdin=data)
    assert result.stdout == data


def test_input_that_nobody_reads_is_no_trouble(session: Session) -> None:
    assert session.run("exit 6", Deadline(10, "it"), stdin=bytes(5 * MIB)).code == 6


def test_commands_run_at_once(session: Session) -> None:
    codes: list[int] = []
    workers = [
        threading.Thread(target=lambda n=n: codes.append(session.run(f"sleep 0.3; exit {n}", Deadline(5, "it")).code))
        for n in range(4)
    ]
    began = time.monotonic()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sorted(codes) == [0, 1, 2, 3]
    assert time.monotonic() - began < 1.2


# Deadlines and losses


@pytest.mark.parametrize("script", ["echo begun; sleep 30", "echo begun; yes > /dev/null", "echo begun; yes"])
def test_the_deadline_holds_and_keeps_what_was_seen(session: Session, script: str) -> None:
    began = time.monotonic()
    with pytest.raises(DeadlineExpired) as caught:
        session.run(script, Deadline(0.5, "it"))
    assert 0.4 < time.monotonic() - began < 1.5
    assert caught.value.evidence.strip().splitlines()[-1] in ("begun", "y")


@pytest.mark.parametrize("close", ["", "exec >&- 2>&-;"])
def test_a_cut_connection_is_a_lost_guest(session: Session, sshd: FakeSshd, close: str, tmp_path: Path) -> None:
    cut_at: list[float] = []

    def cut_once_it_has_begun() -> None:
        Deadline(8, "it begins").wait_for((tmp_path / "begun").exists)
        time.sleep(0.3)  # what it said is on its way
        cut_at.append(time.monotonic())
        sshd.cut()

    threading.Thread(target=cut_once_it_has_begun).start()
    with pytest.raises(GuestLost) as caught:
        session.run(f"echo begun; touch {tmp_path}/begun; {close} sleep 30", Deadline(10, "it"))
    assert time.monotonic() - cut_at[0] < 1.5
    assert "begun" in caught.value.evidence


def test_a_connection_that_is_gone_is_a_lost_guest(session: Session, sshd: FakeSshd) -> None:
    sshd.cut()
    time.sleep(0.1)
    with pytest.raises(GuestLost, match="connection lost in 'true'"):
        session.run("true", Deadline(5, "it"))


@pytest.mark.parametrize("text", ["%s 25", "OLD 0\\n"])
def test_what_only_looks_like_an_end_is_no_result(session: Session, sshd: FakeSshd, text: str) -> None:
    """255 that lost its last digit is not 25, and the marker of one command does not end another."""
    old = session.run(f"echo {MARKER}", Deadline(5, "it")).out.strip()
    threading.Timer(0.4, sshd.cut).start()
    with pytest.raises(GuestLost, match="connection lost"):
        session.run(f"printf '\\n{text.replace('OLD', old)}' {MARKER} >&2; sleep 9", Deadline(5, "it"))


def test_a_watch_that_raises_ends_the_command(session: Session) -> None:
    watch = PanicsAfter(0.3)
    with pytest.raises(KernelFailed):
        session.run("sleep 30", Deadline(20, "it"), watch=watch)
    assert watch.late < 1


@pytest.fixture
def gate(sshd: FakeSshd) -> Iterator[Gate]:
    sshd.open()
    made = Gate(sshd.address)
    yield made
    made.close()


@pytest.mark.parametrize("stdin", [b"", bytes(5 * MIB)], ids=["no input", "much input"])
def test_a_guest_that_freezes_is_silent_and_not_lost(gate: Gate, keys: Path, stdin: bytes) -> None:
    """A paused guest acknowledges nothing: neither a new channel, nor a command, nor input that fills its window."""
    session = reach(gate.address, keys)
    threading.Timer(0.02 if stdin else 0.0, gate.open.clear).start()
    time.sleep(0.0 if stdin else 0.1)
    began = time.monotonic()
    with pytest.raises(DeadlineExpired):
        session.run("sleep 5; cat", Deadline(0.6, "it"), stdin=stdin)
    assert time.monotonic() - began < 1.6


def test_the_watch_is_asked_while_a_channel_is_opened(gate: Gate, keys: Path) -> None:
    session = reach(gate.address, keys)
    gate.open.clear()
    time.sleep(0.1)
    watch = PanicsAfter(0.3)
    with pytest.raises(KernelFailed):
        session.run("true", Deadline(20, "it"), watch=watch)
    assert watch.late < 1


def test_a_guest_that_freezes_before_it_takes_the_command(session: Session, sshd: FakeSshd) -> None:
    sshd.slowness = 2.0
    began = time.monotonic()
    with pytest.raises(DeadlineExpired):
        session.run("true", Deadline(0.4, "it"))
    assert time.monotonic() - began < 1.2


@pytest.mark.parametrize(
    "still, error, said", [("QEMU is paused", GuestLost, "QEMU is paused"), ("", KernelFailed, "hangs")]
)
def test_a_guest_that_freezes_is_explained(
    gate: Gate,
    keys: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    still: str,
    error: type[Exception],
    said: str,
) -> None:
    """Over a real connection: the command runs out of time, then the ping does, and only then is the machine asked."""
    monkeypatch.setattr("labs.guest.PING_SECONDS", 0.4)
    guest = Guest(reach(gate.address, keys), Vitals(FakeMachine(still=still), ConsoleWatch(tmp_path / "console.log")))
    threading.Timer(0.1, gate.open.clear).start()
    began = time.monotonic()
    with pytest.raises(error, match=said):
        guest.run("sleep 30", 0.4)
    assert time.monotonic() - began < 2


# The first connection


def test_refused_then_well(sshd: FakeSshd, keys: Path) -> None:
    threading.Timer(0.5, sshd.open).start()
    assert reach(sshd.address, keys).run("true", Deadline(5, "it")).code == 0


@pytest.mark.parametrize("manners", [[reset, reset], [silent]], ids=["reset", "silent"])
def test_a_bad_first_connection_is_tried_again(
    sshd: FakeSshd, keys: Path, manners: list[Callable[..., None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("labs.session.LEAST_ATTEMPT", 0.4)
    sshd.manners = [*manners]
    sshd.open()
    assert reach(sshd.address, keys, 1.5).run("true", Deadline(5, "it")).code == 0
    assert sshd.connections == len(manners) + 1


def test_a_late_banner_is_waited_for(sshd: FakeSshd, keys: Path) -> None:
    sshd.manners = [sshd.serve_late]
    sshd.open()
    assert reach(sshd.address, keys).run("true", Deadline(5, "it")).code == 0
    assert sshd.connections == 1


@pytest.mark.parametrize(
    "manner, cause",
    [(None, "refused"), (reset, "reset|closed"), (silent, "stays silent")],
    ids=["refused", "reset", "silent"],
)
def test_the_last_cause_is_kept(sshd: FakeSshd, keys: Path, manner: Callable[..., None] | None, cause: str) -> None:
    if manner:
        sshd.manners = [manner] * 500
        sshd.open()
    began = time.monotonic()
    with pytest.raises(DeadlineExpired, match=rf"no SSH at 127.0.0.1:\d+ after 1 s: .*({cause})"):
        reach(sshd.address, keys, 0.6)
    assert time.monotonic() - began < 3


def test_another_host_key_is_never_tried_again(sshd: FakeSshd, keys: Path, tmp_path: Path) -> None:
    other = guest_keys(Store(tmp_path))
    sshd.open()
    with pytest.raises(HostKeyChanged, match="another host key"):
        connect(sshd.address, keys / "client", other / "host.pub", Deadline(10, "boot"))
    assert sshd.connections == 1


def test_a_key_that_is_not_accepted_is_told(sshd: FakeSshd, keys: Path) -> None:
    sshd.accepted = "none"
    sshd.open()
    with pytest.raises(DeadlineExpired, match=r"[Aa]uthentication|accept"):
        reach(sshd.address, keys, 0.6)


@pytest.mark.parametrize("name", ["silent", "late"])
def test_a_watch_that_raises_ends_the_first_connection(sshd: FakeSshd, keys: Path, name: str) -> None:
    sshd.manners = [silent if name == "silent" else sshd.serve_late]
    sshd.open()
    watch = PanicsAfter(0.3)
    with pytest.raises(KernelFailed):
        reach(sshd.address, keys, 20, watch=watch)
    assert watch.late < 1


def test_a_command_cut_off_while_it_talks_leaves_the_connection_whole(session: Session) -> None:
    """The channel is closed while its data still arrives, at many moments."""
    for at in range(60):
        with pytest.raises(DeadlineExpired):
            session.run("exec yes", Deadline(0.02 + at / 4_000, "it"))
    assert session.run("echo usable", Deadline(5, "it")).out == "usable\n"
