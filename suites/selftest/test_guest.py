"""A guest that fails, is lost, stands still or is only slow: which of these is told, and with what evidence."""

from __future__ import annotations

import hashlib
import shlex
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from fake_lab import PANIC, FakeMachine

from labs.console import ConsoleWatch
from labs.deadline import Deadline
from labs.errors import DeadlineExpired, GuestLost, KernelFailed, LabError
from labs.guest import Asked, Guest, Vitals
from labs.session import Result

CONSOLES = Path(__file__).parent / "data/consoles"
BOOT = "[    0.000000] Linux version 6.1.0-57-cloud-amd64\n[    1.000000] random: crng init done\n"


@dataclass
class ShellSession:
    """Runs commands with the host's own shell; `frozen` answers nothing, `broken` loses the connection."""

    frozen: bool = False
    broken: bool = False
    asked: list[str] = field(default_factory=list)

    def run(self, command: str, deadline: Deadline, *, stdin: bytes = b"", watch: Callable[[], None]) -> Result:
        self.asked.append(command)
        if self.broken:
            raise GuestLost(f"connection lost in {command!r}", evidence="partial output")
        argv = ["sleep", "60"] if self.frozen else ["sh", "-c", command]
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            given.write(stdin)
            given.seek(0)
            with subprocess.Popen(argv, stdin=given, stdout=out, stderr=err) as child:
                try:
                    _wait(child, deadline, watch)
                finally:
                    child.kill()
            out.seek(0)
            err.seek(0)
            return Result(command, child.returncode, out.read(), err.read(), 0.0)


def _wait(child: subprocess.Popen[bytes], deadline: Deadline, watch: Callable[[], None]) -> None:
    while child.poll() is None:
        watch()
        deadline.check("seen so far")
        time.sleep(0.005)


@dataclass
class Lab:
    machine: FakeMachine
    console: Path
    session: ShellSession
    guest: Guest

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        threading.Timer(seconds, action).start()

    def prints(self, text: str) -> None:
        with self.console.open("a") as log:
            log.write(text)

    def ends(self) -> None:
        self.machine.ended = "QEMU was killed by signal 9"


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    monkeypatch.setattr("labs.guest.SETTLE_SECONDS", 0.6)
    monkeypatch.setattr("labs.guest.PING_SECONDS", 0.3)
    console = tmp_path / "console.log"
    console.write_text(BOOT)
    machine, session = FakeMachine(), ShellSession()
    fake: Any = session
    return Lab(machine, console, session, Guest(fake, Vitals(machine, ConsoleWatch(console))))


@pytest.mark.parametrize("name", ["panic-sysrq", "oops-null", "soft-lockup", "hard-lockup-7.2", "list-corruption"])
def test_a_fatal_line_ends_a_running_command(lab: Lab, name: str) -> None:
    text = (CONSOLES / f"{name}.log").read_text()
    lab.later(0.2, lambda: lab.prints(text))
    began = time.monotonic()
    with pytest.raises(KernelFailed, match="kernel failed: ") as caught:
        lab.guest.run("sleep 30")
    assert time.monotonic() - began < 2
    assert caught.value.evidence and caught.value.evidence.splitlines()[-1] in text


@pytest.mark.parametrize("name", ["warn-7.2", "oom-kill", "hung-task", "kasan", "userspace-noise", "sysrq-t-tasks"])
def test_other_complaints_end_nothing(lab: Lab, name: str) -> None:
    lab.prints((CONSOLES / f"{name}.log").read_text())
    assert lab.guest.run("echo well").out == "well\n"


def test_the_panic_is_told_with_its_lines_although_they_come_late(lab: Lab) -> None:
    lab.later(0.1, lambda: lab.prints(PANIC))
    lab.later(0.2, lambda: lab.prints("[    9.200000] CPU: 0 PID: 1 Comm: sh\n[    9.300000] Call Trace:\n"))
    with pytest.raises(KernelFailed, match="sysrq triggered crash") as caught:
        lab.guest.run("sleep 30")
    assert "Call Trace" in caught.value.evidence


def test_a_failed_kernel_stays_failed(lab: Lab) -> None:
    lab.prints(PANIC)
    lab.guest.console.poll()  # someone else has read the line already
    for _ in range(2):
        with pytest.raises(KernelFailed):
            lab.guest.run("sleep 30")


def test_a_machine_gone_without_a_word_is_lost(lab: Lab) -> None:
    lab.later(0.2, lab.ends)
    began = time.monotonic()
    with pytest.raises(GuestLost, match="guest lost: QEMU was killed by signal 9") as caught:
        lab.guest.run("sleep 30")
    assert time.monotonic() - began < 2
    assert "random: crng init done" in caught.value.evidence


@pytest.mark.parametrize("ending", ["\n", ""], ids=["whole line", "cut line"])
def test_a_machine_gone_after_a_panic_is_the_kernels_failure(lab: Lab, ending: str) -> None:
    lab.prints(PANIC.rstrip("\n") + ending)
    lab.ends()
    with pytest.raises(KernelFailed, match="sysrq triggered crash"):
        lab.guest.run("sleep 30")


@pytest.mark.parametrize("panic", [True, False])
def test_a_broken_connection_waits_for_its_cause(lab: Lab, panic: bool) -> None:
    lab.session.broken = True
    lab.later(0.1, lambda: lab.prints(PANIC) if panic else lab.ends())
    with pytest.raises(KernelFailed if panic else GuestLost, match="crash" if panic else "killed by signal 9"):
        lab.guest.run("true")


def test_a_broken_connection_without_a_cause_is_a_lost_guest(lab: Lab) -> None:
    lab.session.broken = True
    with pytest.raises(GuestLost, match="connection lost in 'true'") as caught:
        lab.guest.run("true")
    assert "partial output" in caught.value.evidence and "crng init done" in caught.value.evidence


def test_a_paused_machine_is_lost_and_named(lab: Lab) -> None:
    lab.session.frozen, lab.machine.still = True, "QEMU is paused"
    with pytest.raises(GuestLost, match=r"QEMU is paused; .*not done after") as caught:
        lab.guest.run("uname -r", 0.3)
    assert lab.machine.dumps == 0
    assert "crng init done" in caught.value.evidence


def test_a_kernel_that_answers_nothing_hangs_and_is_dumped(lab: Lab) -> None:
    lab.session.frozen = True
    with pytest.raises(KernelFailed, match="kernel hangs: ") as caught:
        lab.guest.run("uname -r", 0.3)
    assert lab.machine.dumps == 1
    assert "crng init done" in caught.value.evidence


def test_what_the_dump_brings_to_light_decides(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.session.frozen = True
    monkeypatch.setattr(lab.machine, "dump", lambda: lab.prints(PANIC))
    with pytest.raises(KernelFailed, match=r"kernel failed: .*sysrq triggered crash"):
        lab.guest.run("uname -r", 0.3)


def test_a_slow_command_is_only_slow(lab: Lab) -> None:
    with pytest.raises(DeadlineExpired, match="sleep 30") as caught:
        lab.guest.run("sleep 30", 0.3)
    assert lab.session.asked == ["sleep 30", "true"]
    assert lab.machine.dumps == 0 and caught.value.evidence == "seen so far"


def test_deadlines_are_stretched_under_emulation(lab: Lab) -> None:
    lab.machine.accelerator = "tcg"
    assert lab.guest.run("sleep 0.5; echo well", 0.4).out == "well\n"


def test_a_known_fault_of_the_emulator_is_no_failure_of_the_kernel(lab: Lab) -> None:
    lab.prints((CONSOLES / "emulator-debug-exception.log").read_text() + PANIC)
    with pytest.raises(GuestLost, match="fault of the emulator"):
        lab.guest.run("sleep 30")


def test_an_init_that_gave_up_is_named(lab: Lab) -> None:
    lab.prints("cgroup-lab: init failed: no root disk\n")
    lab.ends()
    with pytest.raises(GuestLost, match="guest lost: init failed: no root disk"):
        lab.guest.run("sleep 30")


# What the guest is asked


def test_must_tells_what_the_command_said(lab: Lab) -> None:
    with pytest.raises(LabError, match="ended with 3: no such thing"):
        lab.guest.must("echo first >&2; echo no such thing >&2; exit 3")


@pytest.mark.parametrize("data", [b"", b"text\n", bytes(range(256)) * 9000], ids=["empty", "text", "bytes"])
def test_files_go_and_come_whole(lab: Lab, tmp_path: Path, data: bytes) -> None:
    path = str(tmp_path / "a file; 'quoted'")
    lab.guest.put(data, path, 0o750)
    assert Path(path).read_bytes() == data == lab.guest.get(path)
    assert Path(path).stat().st_mode & 0o777 == 0o750


def test_a_file_that_arrives_cut_is_told(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = hashlib.sha256(b"cut").hexdigest()
    monkeypatch.setattr(lab.guest, "must", lambda *a, **k: f"{told} -\n")
    with pytest.raises(LabError, match="did not arrive whole"):
        lab.guest.put(b"cut short", str(tmp_path / "x"))


def test_a_file_that_is_not_there_is_told(lab: Lab) -> None:
    with pytest.raises(LabError, match=r"/no/such cannot be read from the guest: .*No such file"):
        lab.guest.get("/no/such")


def test_several_files_go_at_once(lab: Lab, tmp_path: Path) -> None:
    lab.guest.put_files({"a": b"1", "b": b"\x00\xff"}, str(tmp_path / "new folder"))
    assert (tmp_path / "new folder/a").read_bytes() == b"1"
    assert (tmp_path / "new folder/b").read_bytes() == b"\x00\xff"


def test_sections(lab: Lab) -> None:
    told = lab.guest.sections(
        "show one printf 'a\\nb\\n\\n'\nshow none false\nshow gone /no/such\nshow two sh -c 'echo x; echo y >&2'"
    )
    assert told == {"one": "a\nb", "none": "", "gone": "", "two": "x"}


def test_facts_of_this_very_kernel(lab: Lab) -> None:
    facts = lab.guest.facts()
    assert facts["release"] == subprocess.check_output(["uname", "-r"], text=True).strip()
    assert facts["parameters"] == Path("/proc/cmdline").read_text().split()
    assert facts["accelerator"] == "kvm" and int(facts["cpus"]) >= 1


def test_facts_survive_notes_that_are_none(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"parameters": "a b", "mounts": "cgroup2 x\ntmpfs y", "notes": "xxd: not found"}
    monkeypatch.setattr(lab.guest, "sections", lambda script: told)
    facts = lab.guest.facts()
    assert facts["build_id"] == "" and facts["mounts"] == ["cgroup2 x"]


FACTS = {"release": "6.1.0-57", "build_id": "ab12", "parameters": ["console=ttyS0", "panic=-1"]}


@pytest.mark.parametrize(
    "asked, said",
    [
        (Asked("6.1.0-58", "ab12"), "kernel release is 6.1.0-57, asked was 6.1.0-58"),
        (Asked("6.1.0-57", "ab13"), "build-id is ab12, asked was ab13"),
        (Asked(parameters=("panic=-1", "nokaslr", "tsc=reliable")), "did not reach the guest: nokaslr tsc=reliable"),
        (Asked(parameters=("panic",)), "did not reach the guest: panic"),
    ],
)
def test_another_guest_than_asked_is_an_error(lab: Lab, asked: Asked, said: str) -> None:
    with pytest.raises(LabError, match=said):
        lab.guest.verify(asked, FACTS)


@pytest.mark.parametrize("asked", [Asked(), Asked("6.1.0-57", "ab12", ("panic=-1",)), Asked(build_id="ab12")])
def test_what_was_asked_for_is_accepted(lab: Lab, asked: Asked) -> None:
    lab.guest.verify(asked, FACTS)


def test_testinfra_works_on_a_guest(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "it's here").write_text("x")
    host = lab.guest.testinfra()
    assert host.file(str(tmp_path / "it's here")).exists and not host.file(str(tmp_path / "gone")).exists
    done = host.run("exit %s", "255")
    assert done.rc == 255
    assert host.check_output(f"cat {shlex.quote(str(tmp_path))}/it*") == "x"
