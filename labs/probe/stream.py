"""What the agent sends, made into registers and steps. The guest is not trusted: every length is checked."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labs.errors import LabError
from labs.probe.history import FAILED, OPERATION, READ, WRITE, History, Register
from labs.probe.steps import STEPS, ContainerStep
from labs.probe.values import Value

MAX_TARGETS = 4096
Listing = Mapping[str, Sequence[str]]
WIRE = np.dtype([("gap", "<u4"), ("duration", "<u4"), ("value", "<i2"), ("what", "u1")])  # agent/main.c, struct wire
WIRE_WRITE, WIDE = 0x80, 0xFF


@dataclass(frozen=True)
class Report:
    """All that one run of the agent told. `left` lists what was there before and after it, by kind."""

    history: History
    steps: tuple[ContainerStep, ...]
    left: tuple[Listing, Listing] = ({}, {})

    def save(self, path: Path) -> None:
        self.history.save(path)


def parse(data: bytes, tables: dict[str, list[Value]], facts: dict[str, Any]) -> Report:
    """Read the agent's output. `tables` maps a file's name to the values that were given to the agent.

    Raises LabError when the stream is cut short or malformed.
    """
    reader = _Reader(data)
    try:
        reader.read_all()
        registers = tuple(reader.register(number, tables) for number in sorted(reader.targets))
    except (ValueError, IndexError, KeyError) as error:
        tail = data[-200:].decode(errors="replace")
        raise LabError(f"the agent's report is malformed or cut short: {error}", evidence=tail) from None
    history = History(registers, reader.run[0] / 1e9, reader.run[1], 0, facts)
    return Report(history, tuple(reader.steps))


def unpack(wire: NDArray[Any], thread: int) -> NDArray[Any]:
    """Operations of one thread from their form on the wire (agent/main.c, struct wire); ValueError if it is none."""
    times = np.stack([wire["gap"], wire["duration"]]).astype(np.int64)
    wide = wire["what"] == WIDE
    if wide.any():
        at = np.flatnonzero(wide)
        if wide[-1] or wide[at + 1].any():
            raise ValueError("upper halves of times that belong to no operation")
        times[:, at + 1] += times[:, at] << 32
        times, wire = times[:, ~wide], wire[~wide]
    operations = np.zeros(len(wire), OPERATION)
    operations["end"] = np.cumsum(times[0] + times[1])
    operations["start"] = operations["end"] - times[1]
    if (times < 0).any() or (np.diff(operations["end"], prepend=0) < 0).any():
        raise ValueError("times that overflow")
    operations["value"] = wire["value"]
    operations["errno"] = wire["what"] & ~np.uint8(WIRE_WRITE)
    operations["thread"] = thread
    operations["kind"] = np.where(wire["what"] & WIRE_WRITE, WRITE, READ)
    return operations


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.run = (-1, 0)  # ns, vCPUs
        self.targets: dict[int, list[str]] = {}
        self.operations: dict[int, list[NDArray[Any]]] = defaultdict(list)
        self.steps: list[ContainerStep] = []

    def read_all(self) -> None:
        words: list[str] = []
        while words[:1] != ["end"]:
            words = self._line().split(" ")
            if words[0] == "run":
                self.run = (_number(words[1]), _number(words[2]))
            elif words[0] == "target":
                self._target(words[1:])
            elif words[0] == "operations":
                thread = _number(words[2], 1 << 16)
                self.operations[_number(words[1])].append(unpack(self._block(_number(words[3])), thread))
            elif words[0] == "step":
                self.steps.append(_step(words[1:]))
            elif words[0] != "end":
                raise ValueError(f"unknown line {words[0][:20]!r}")
        if self.run[0] < 0 or self.operations.keys() - self.targets.keys() or self.at != len(self.data):
            raise ValueError("parts are missing, or left over")

    def _target(self, words: list[str]) -> None:
        number, foreign, path, *texts = words
        if len(texts) != 1 + _number(foreign) or len(self.targets) >= MAX_TARGETS or _number(number) in self.targets:
            raise ValueError(f"target {number[:20]} is not as announced")
        self.targets[_number(number)] = [path, *texts]

    def _line(self) -> str:
        end = self.data.index(b"\n", self.at)
        line = self.data[self.at : end].decode("ascii")
        self.at = end + 1
        return line

    def _block(self, count: int) -> NDArray[Any]:
        size = count * WIRE.itemsize
        if self.at + size + 1 > len(self.data) or self.data[self.at + size] != ord("\n"):
            raise ValueError("operations are cut short")
        block = np.frombuffer(self.data, WIRE, count, self.at)
        self.at += size + 1
        return block

    def register(self, number: int, tables: dict[str, list[Value]]) -> Register:
        path, *texts = self.targets[number]
        values = tables[path.rsplit("/", 1)[-1]]
        initial, *foreign = [bytes.fromhex(text[1:]).decode(errors="replace") for text in texts]
        blocks = self.operations.get(number) or [np.empty(0, OPERATION)]
        operations = np.concatenate(blocks)
        seen = operations["value"]
        if len(seen) and not (seen.min() >= FAILED and seen.max() < len(values) + len(foreign)):
            raise ValueError(f"{path} has values that it does not list")
        operations = operations[np.argsort(operations["start"], kind="stable")]
        return Register(
            path=path,
            values=tuple(value.read for value in values),
            expect=np.array([value.errno for value in values], np.int16),
            initial=initial,
            foreign=tuple(foreign),
            operations=operations,
        )


def _number(word: str, limit: int = 1 << 63) -> int:
    number = int(word)
    if not 0 <= number < limit:
        raise ValueError(f"number {word[:20]} is out of range")
    return number


def _step(words: list[str]) -> ContainerStep:
    container, worker, step, start, end, code, said = words
    if step not in STEPS or not -256 < int(code) < 256:
        raise ValueError(f"no step ends so: {step[:20]} {code[:20]}")
    stderr = bytes.fromhex(said[1:]).decode(errors="replace")
    return ContainerStep(container, _number(worker), step, _number(start), _number(end), int(code), stderr)
