"""What every provider must give: one contract, judged on a real guest of the default cell.

A provider's tests subclass ProviderContract and say how its machine is booted, and how it is killed and paused from
outside. These checks judge the lab and not a kernel, so they are plain assertions and leave no record.
"""

from __future__ import annotations

import abc
import contextlib
import hashlib
import os
import random
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from labs import prepare
from labs.build.kernel import read_image
from labs.console import kernel_lines
from labs.deadline import EMULATION_FACTOR, Deadline
from labs.errors import DeadlineExpired, GuestLost, KernelFailed, LabError
from labs.guest import Asked, Guest
from labs.matrix import Cell
from labs.source.debian import Archive
from labs.store import Store

PROMPT = 2.0  # seconds from a machine's end, or its kernel's last word, to the verdict
PANIC = "Kernel panic - not syncing: sysrq triggered crash"
MIB = 2**20
# Real-time spinners that nothing of lower priority gets past: the kernel answers interrupts, and nobody else.
HANG = """
echo -1 > /proc/sys/kernel/sched_rt_runtime_us
cpus=$(nproc)
for cpu in $(seq 0 $((cpus - 1))); do taskset -c $cpu chrt -f 99 sh -c 'sleep 1; while :; do :; done' & done
sleep 1000
"""


def artifacts(provider: str = "qemu") -> prepare.Artifacts:
    """What the default cell's guest is started from."""
    store = Store.of_user()
    archive = Archive(store)
    return prepare.prepare(prepare.find(Cell(provider=provider), archive), store, archive)


@contextlib.contextmanager
def nothing_left() -> Iterator[Path]:
    """Temporary folders of the lab go to a folder of their own, which must be empty at the end."""
    before = tempfile.tempdir
    with tempfile.TemporaryDirectory(prefix="lt-") as name:
        tempfile.tempdir = name
        try:
            yield Path(name)
        finally:
            tempfile.tempdir = before
        assert os.listdir(name) == []


class Moment:
    """When something was first true, looked at every 5 ms from a thread; 0 if never. Ended by the block."""

    def __init__(self, ready: Callable[[], bool]) -> None:
        self.at = 0.0
        self._ready = ready
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def _watch(self) -> None:
        while not self._over.wait(0.005):
            if self._ready():
                self.at = time.monotonic()
                return

    def __enter__(self) -> Moment:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def written(path: Path, text: str) -> Callable[[], bool]:
    return lambda: path.exists() and text.encode() in path.read_bytes()


def raised(call: Callable[[], object]) -> tuple[LabError, float]:
    """The lab's error that a call must end with, and when it came."""
    with pytest.raises(LabError) as caught:
        call()
    return caught.value, time.monotonic()


def in_the_middle(guest: Guest, act: Callable[[], object], *, commands: int = 1, seconds: float = 60):
    """Run long commands, `act` once all of them have begun; (error, when) of each, and when `act` was called."""
    with ThreadPoolExecutor(commands + 1) as pool:
        lines = [f"echo began {n} > /tmp/began-{n}; echo so far; sleep 1000" for n in range(commands)]
        running = [pool.submit(raised, lambda line=line: guest.run(line, seconds)) for line in lines]
        begun = "[ $(ls /tmp/began-* 2> /dev/null | wc -l) -eq " + str(commands) + " ]"
        Deadline(30, "commands begin").wait_for(lambda: guest.run(begun).code == 0)
        moment = time.monotonic()
        act()
        return [future.result() for future in running], moment


def tell(capsys: pytest.CaptureFixture[str], text: str) -> None:
    with capsys.disabled():
        print(f" [{text}]", end="")


class ProviderContract(abc.ABC):
    """Checks shared by all providers. Those that a guest survives share one; each deadly one has its own."""

    KILLED = ""  # how the provider tells what `kill` has done
    ROUTER = "10.0.2.2"  # the way out, as the guest sees it
    SERVICES: tuple[str, ...] = ("10.0.2.3 53",)  # address and port of what the router would offer

    @staticmethod
    @abc.abstractmethod
    def boot() -> AbstractContextManager[prepare.Booted]:
        """A fresh guest of the default cell."""

    @staticmethod
    @abc.abstractmethod
    def kill(guest: Guest) -> None:
        """End the machine from outside, as power loss would."""

    @staticmethod
    @abc.abstractmethod
    def pause(guest: Guest) -> None:
        """Stop the machine's CPUs from outside."""

    @staticmethod
    @abc.abstractmethod
    def running(guest: Guest) -> bool:
        """Whether anything of the machine is left on the host."""

    @pytest.fixture(scope="class")
    @classmethod
    def booted(cls) -> Iterator[prepare.Booted]:
        with cls.boot() as booted:
            yield booted

    @pytest.fixture
    def guest(self, booted: prepare.Booted) -> Guest:
        return booted.guest

    @contextlib.contextmanager
    def whole_again(self, guest: Guest) -> Iterator[Guest]:
        """A guest like this one, which the block may stop or hang: another one, unless a provider has a faster way."""
        with self.boot() as booted:
            yield booted.guest

    @pytest.fixture
    def hurt(self, guest: Guest) -> Iterator[Guest]:
        """A guest that the test may stop or hang, but not end."""
        with self.whole_again(guest) as hurt:
            yield hurt

    @pytest.fixture
    def mortal(self) -> Iterator[Guest]:
        """A guest that the test may end; afterwards neither machine nor files may be left."""
        with nothing_left():
            with self.boot() as booted:
                yield booted.guest
            assert not self.running(booted.guest)

    # What runs is what was asked for

    def test_facts(self, booted: prepare.Booted):
        image = read_image(booted.artifacts.kernel.vmlinuz)
        facts = booted.facts
        assert facts["release"] == image.release == booted.guest.run("uname -r").out.strip()
        assert len(image.build_id) == 40
        assert facts["build_id"] == image.build_id
        asked = prepare.machine(booted.artifacts).command_line()
        assert [word for word in asked if word not in facts["parameters"]] == []
        assert [mount.split()[:3] for mount in facts["mounts"]] == [["cgroup2", "/sys/fs/cgroup", "cgroup2"]]
        assert facts["accelerator"] == booted.guest.accelerator == booted.artifacts.accelerator.name
        assert facts["accelerator"] in ("kvm", "tcg")

    @pytest.mark.parametrize(
        "asked", [Asked(release="6.1.0-0-amd64"), Asked(build_id="00" * 20), Asked(parameters=("lab.absent=1",))]
    )
    def test_another_kernel_is_refused(self, booted: prepare.Booted, asked: Asked):
        booted.guest.verify(Asked(booted.facts["release"], booted.facts["build_id"]), booted.facts)
        with pytest.raises(LabError, match=r"another kernel|did not reach"):
            booted.guest.verify(asked, booted.facts)

    # Commands, files and hosts

    def test_testinfra_host(self, guest: Guest):
        host = guest.testinfra()
        assert host.run("echo out; echo err >&2; exit 3").rc == 3
        assert host.check_output("echo %s", "a b'c") == "a b'c"
        assert host.file("/sys/fs/cgroup/cgroup.controllers").contains("cpu")
        assert not host.file("/sys/fs/cgroup/absent").exists
        assert host.mount_point("/sys/fs/cgroup").filesystem == "cgroup2"
        assert host.user().name == "root"
        assert host.process.filter(comm="sshd")
        assert host.package("busybox-static").is_installed

    @pytest.mark.parametrize("size", [0, 1, MIB + 1])
    def test_files_there_and_back(self, guest: Guest, size: int):
        data = random.Random(size).randbytes(size)
        path = f"/tmp/a file of {size}'s"
        guest.put(data, path, 0o640)
        told = guest.must(f'sha256sum < "{path}"; stat -c %a "{path}"').split()
        assert told == [hashlib.sha256(data).hexdigest(), "-", "640"]
        assert guest.get(path) == data

    def test_several_files(self, guest: Guest):
        files = {"config.json": b"{}", "deep/er/zeros": bytes(100_000), "empty": b""}
        guest.put_files(files, "/tmp/several files")
        assert {name: guest.get(f"/tmp/several files/{name}") for name in files} == files

    def test_file_that_is_not_there(self, guest: Guest):
        with pytest.raises(LabError, match="/tmp/absent cannot be read"):
            guest.get("/tmp/absent")
        with pytest.raises(LabError, match="ended with"):
            guest.put(b"data", "/tmp/absent/file")

    def test_standard_input(self, guest: Guest):
        data = random.Random(0).randbytes(300_000)
        assert guest.run("cat", stdin=data).stdout == data
        assert guest.run("cat").stdout == b""  # closed, not open for ever

    def test_both_streams_at_once(self, guest: Guest):
        """3 MiB on each: a reader that empties one stream first fills the other's window and stops for ever."""
        half = f"head -c {3 * MIB} /dev/urandom | tee"
        result = guest.run(f"{half} /tmp/out & {half} /tmp/err >&2; wait", 10)
        sums = guest.must("sha256sum /tmp/out /tmp/err; rm /tmp/out /tmp/err").split()[::2]
        assert (len(result.stdout), len(result.stderr)) == (3 * MIB, 3 * MIB)
        assert [hashlib.sha256(stream).hexdigest() for stream in (result.stdout, result.stderr)] == sums

    @pytest.mark.parametrize("code", [0, 1, 127, 255])
    def test_exit_code_is_a_result(self, guest: Guest, code: int):
        result = guest.run(f"echo out; echo err >&2; exit {code}")
        assert (result.code, result.out, result.err) == (code, "out\n", "err\n")

    def test_death_by_signal_is_a_result(self, guest: Guest):
        assert guest.run("kill -9 $$").code == 128 + 9

    def test_deadline_keeps_what_was_seen(self, guest: Guest):
        began = time.monotonic()
        with pytest.raises(DeadlineExpired) as caught:
            guest.run("echo first words; echo complaint >&2; sleep 1000", 0.25)
        factor = EMULATION_FACTOR if guest.accelerator == "tcg" else 1.0
        assert 0.25 * factor <= time.monotonic() - began < 0.25 * factor + 5
        assert "first words" in caught.value.evidence
        assert "complaint" in caught.value.evidence
        assert guest.run("echo usable").out == "usable\n"

    def test_deadline_holds_against_endless_output(self, guest: Guest):
        with pytest.raises(DeadlineExpired):
            guest.run("exec yes", 0.25)
        assert guest.run("echo usable").out == "usable\n"

    def test_two_commands_at_once(self, guest: Guest):
        """Each waits for the other, so that one after the other would never end."""
        meet = "touch /tmp/{own}; while [ ! -e /tmp/{other} ]; do sleep 0.05; done; echo {own}"
        with ThreadPoolExecutor(2) as pool:
            lines = [meet.format(own=own, other=other) for own, other in (("here", "there"), ("there", "here"))]
            results = [future.result() for future in [pool.submit(guest.run, line, 5) for line in lines]]
        assert [(result.code, result.out) for result in results] == [(0, "here\n"), (0, "there\n")]

    # Nothing gets in or out

    def test_guest_reaches_nothing(self, guest: Guest):
        """Not the host by the emulated router, not by its own address, not the world, not a name server."""
        with socket.create_server(("0.0.0.0", 0)) as server:
            port = server.getsockname()[1]
            with socket.create_connection(("127.0.0.1", port)):  # the listener itself works
                server.accept()[0].close()
            server.settimeout(0)
            guest.must(f"ip route replace default via {self.ROUTER}")
            targets = [f"{self.ROUTER} {port}", f"{_own_address()} {port}", "1.1.1.1 443", *self.SERVICES]
            began = time.monotonic()
            for target in targets:
                assert guest.run(f"busybox nc -w 5 {target} < /dev/null", 10).code != 0, target
            assert time.monotonic() - began < 30
            guest.must("ip route del default")
            with pytest.raises(BlockingIOError):
                server.accept()

    def test_case_is_marked_on_the_console(self, guest: Guest):
        with guest.marked("a case [x]"):
            guest.run("echo '<2>words inside' > /dev/kmsg")
        Deadline(5, "the mark").wait_for(lambda: not guest.console.poll() and "end a case [x]" in guest.console.text)
        text = guest.console.text
        assert text.index("begin a case [x]") < text.index("words inside") < text.index("end a case [x]")
        assert kernel_lines(text) > 100

    # Every end by its cause

    def test_nothing_is_left_of_a_guest_that_lives(self):
        with nothing_left(), pytest.raises(ZeroDivisionError), self.boot() as booted:
            assert self.running(booted.guest)
            raise ZeroDivisionError
        assert not self.running(booted.guest)

    def test_panic(self, mortal: Guest, capsys):
        """Both commands that ran, and any later one, are told of the panic, its text and its trace."""
        with Moment(written(mortal.console.path, PANIC)) as line:
            crash = mortal.session.run
            act = ThreadPoolExecutor(1)
            trigger = lambda: act.submit(crash, "echo c > /proc/sysrq-trigger", Deadline(20, "crash"))  # noqa: E731
            ends, _ = in_the_middle(mortal, trigger, commands=2)
        act.shutdown()
        assert line.at
        for error, at in ends:
            assert isinstance(error, KernelFailed)
            assert PANIC in str(error)
            assert PANIC in error.evidence
            assert "Call Trace:" in error.evidence
            assert at - line.at < PROMPT
        tell(capsys, f"panic told after {max(at for _, at in ends) - line.at:.2f} s")
        later, at = raised(lambda: mortal.run("true"))
        assert isinstance(later, KernelFailed)

    def test_machine_killed(self, mortal: Guest, capsys):
        ends, moment = in_the_middle(mortal, lambda: self.kill(mortal), commands=2)
        for error, at in ends:
            assert type(error) is GuestLost
            assert self.KILLED in str(error)
            assert "cgroup-lab: ready" in error.evidence
            assert at - moment < PROMPT
        tell(capsys, f"kill told after {max(at for _, at in ends) - moment:.2f} s")
        later, _ = raised(lambda: mortal.run("true"))
        assert type(later) is GuestLost

    @pytest.mark.full
    def test_machine_paused(self, hurt: Guest, capsys):
        ends, moment = in_the_middle(hurt, lambda: self.pause(hurt), commands=2, seconds=2)
        for error, _ in ends:
            assert type(error) is GuestLost
            assert "paused" in str(error)
            assert "cgroup-lab: ready" in error.evidence
        tell(capsys, f"pause told after {max(at for _, at in ends) - moment:.1f} s")

    @pytest.mark.full
    def test_kernel_hangs(self, hurt: Guest, capsys):
        """A guest that answers nobody while its machine runs: the kernel's failure, with what its CPUs do."""
        began = time.monotonic()
        error, at = raised(lambda: hurt.run(HANG, 2))
        assert type(error) is KernelFailed
        assert "hangs" in str(error)
        assert "sysrq: Show backtrace of all active CPUs" in error.evidence
        assert "sysrq: Show Blocked State" in error.evidence
        assert self.running(hurt)
        tell(capsys, f"hang told after {at - began:.1f} s")


def _own_address() -> str:
    """The host's address towards the world; no packet is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        with contextlib.suppress(OSError):
            probe.connect(("192.0.2.1", 9))
        return probe.getsockname()[0] if probe.getsockname()[0] != "0.0.0.0" else "127.0.0.1"
