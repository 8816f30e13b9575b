"""Which functions ran, told by QEMU's gdb stub: a stub of our own, with a machine whose steps the test makes."""

from __future__ import annotations

import json
import re
import socket
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from labs import executed
from labs.deadline import Deadline
from labs.errors import LabError
from labs.executed import IDLE, RUN, UNCLEAR, UNSEEN, rows, watching
from labs.provision.stub import watch
from labs.series.functions import Changed

MAP = """\
ffffffff81000100 t plain
ffffffff81000200 T split.part.0
ffffffff81000300 T split
ffffffff81000400 t cold.cold
ffffffff81000500 t twice
ffffffff81000600 t twice
ffffffff81000700 D data
ffffffff81000800 t plainer
"""
NAMES = ("plain", "split", "cold", "twice", "data", "gone")
CHANGED = [Changed(1, "k/core.c", name) for name in NAMES]


class FakeMachine:
    """Answers as QEMU 7.2's stub does: no registers by number, and news of the first stop whenever it likes."""

    def __init__(self, folder: Path, refuse: str = "") -> None:
        self.folder, self.refuse = folder, refuse
        self.points: set[int] = set()
        self.running = threading.Event()
        self.commands: list[str] = []
        self.monitor = SimpleNamespace(ask=self.told, typed=self.told)

    def told(self, line: str) -> None:
        self.commands.append(line)
        if line.startswith("gdbserver unix:"):
            self.listener = socket.socket(socket.AF_UNIX)
            self.listener.bind(line.removeprefix("gdbserver unix:").partition(",")[0])
            self.listener.listen()
            threading.Thread(target=self.serve, daemon=True).start()
        elif line == "cont":
            self.running.set()

    def serve(self) -> None:
        self.link, _ = self.listener.accept()
        self.listener.close()
        self.say("T05thread:01;")
        seen = b""
        while data := self.link.recv(4096):
            seen += data
            while found := re.search(rb"\$([^#]*)#(..)", seen):
                assert sum(found[1]) % 256 == int(found[2], 16)
                seen = seen[found.end() :]
                self.answer(found[1].decode())

    def answer(self, words: str) -> None:
        if words == "c":
            return self.running.set()
        if words.startswith(("Z0", "z0")):
            address = int(words.split(",")[1], 16)
            (self.points.add if words[0] == "Z" else self.points.discard)(address)
            return self.say("E22" if self.refuse == words[:2] else "OK")
        self.say("00" * 128 + self.at.to_bytes(8, "little").hex() if words == "g" else "OK")

    def say(self, words: str) -> None:
        self.link.sendall(b"$%s#%02x" % (words.encode(), sum(words.encode()) % 256))

    def run(self, address: int) -> None:
        """A CPU comes by the address."""
        assert self.running.wait(5)
        if address in self.points:
            self.running.clear()
            self.at = address
            self.say("T05thread:02;")
            assert self.running.wait(5), "the machine was left standing still"


def test_each_function_is_told_apart_by_its_symbols() -> None:
    found = {row.function: (row.state, [hex(at)[-3:] for at in places]) for row, places in rows(CHANGED, MAP)}
    assert found == {
        "plain": (IDLE, ["100"]),
        "split": (IDLE, ["200", "300"]),
        "cold": (UNSEEN, []),
        "twice": (UNCLEAR, []),
        "data": (UNSEEN, []),
        "gone": (UNSEEN, []),
    }


def test_what_a_machine_comes_by_is_told_once_and_it_goes_on(tmp_path: Path) -> None:
    machine, met = FakeMachine(tmp_path), []
    with watch(machine.monitor, tmp_path, [0x100, 0x200], met.append):
        for address in (0x300, 0x200, 0x200):
            machine.run(address)
    assert met == [0x200]
    assert machine.commands[-2:] == ["gdbserver none", "cont"]


def test_a_stub_that_refuses_leaves_the_machine_running(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path, refuse="Z0")
    with (
        pytest.raises(LabError, match="the gdb stub refuses 'Z0,100,1': E22"),
        watch(machine.monitor, tmp_path, [0x100], print),
    ):
        pytest.fail("not reached")
    assert machine.commands[-1] == "cont"


def test_a_stub_that_does_not_open_is_told(tmp_path: Path) -> None:
    with (
        pytest.raises(LabError, match="QEMU opens no gdb stub: "),
        watch(SimpleNamespace(typed=print, ask=print), tmp_path, [1], print),
    ):
        pytest.fail("not reached")


def test_a_guest_that_is_lost_ends_the_watch(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path)
    with watch(machine.monitor, tmp_path, [0x100], print):
        machine.run(0x300)
        machine.link.shutdown(socket.SHUT_RDWR)


def test_a_boot_has_its_functions_with_the_case_that_ran_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executed, "QemuMachine", FakeMachine)
    machine = FakeMachine(tmp_path)
    (tmp_path / "System.map").write_text(MAP)
    booted = SimpleNamespace(
        guest=SimpleNamespace(vitals=SimpleNamespace(machine=machine)),
        artifacts=SimpleNamespace(kernel=SimpleNamespace(system_map=tmp_path / "System.map")),
    )
    bench: Any = SimpleNamespace(booted=booted, case="alone.torn[weights]")
    with watching(bench, CHANGED, tmp_path):
        told = json.loads((tmp_path / executed.FILE).read_text())
        assert {row["state"] for row in told} == {IDLE, UNCLEAR, UNSEEN}
        machine.run(0xFFFFFFFF81000200)
    Deadline(5, "noted").check()
    told = {row["function"]: row for row in json.loads((tmp_path / executed.FILE).read_text())}
    assert (told["split"]["state"], told["split"]["case"]) == (RUN, "alone.torn[weights]")
    assert told["plain"]["state"] == IDLE


def test_without_a_series_nothing_is_watched(tmp_path: Path) -> None:
    bench: Any = SimpleNamespace(
        booted=SimpleNamespace(
            guest=SimpleNamespace(vitals=SimpleNamespace(machine=None)),
            artifacts=SimpleNamespace(kernel=SimpleNamespace(system_map=None)),
        )
    )
    with watching(bench, [], tmp_path):
        pass
    assert not (tmp_path / executed.FILE).exists()
