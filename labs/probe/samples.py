"""Samples: how long single operations on cgroups took, each one kept, as a measuring guest sends them.

The guest runs nothing but the agent (agent/measure.c) and has no disk and no network. It is not trusted: every length
is checked.
"""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labs import untrusted
from labs.errors import LabError
from labs.guest import build_id

OPERATIONS = ("cpu.weight", "cpu.max", "read-cpu.max", "io.weight", "attach", "mkdir", "rmdir", "fork")
MOST = {"count": 1_000_000, "warm": 1_000_000, "gap_us": 1_000_000, "siblings": 100_000, "threads": 64}
NAME = re.compile(r"[a-z0-9][a-z0-9._+-]{0,62}")
Durations = NDArray[np.uint32]  # ns


@dataclass(frozen=True)
class Measure:
    """One operation, done `count` times after `warm` that are not kept, `gap_us` apart, in a group of its own.

    Meanwhile there are `siblings` idle groups, and `threads` others that do the operation `beside`, 100 us apart
    (moves: at once).
    """

    name: str
    operation: str
    count: int = 1000
    warm: int = 100
    gap_us: int = 0
    siblings: int = 0
    beside: str = "-"
    threads: int = 0

    def line(self) -> str:
        """Its line in the agent's plan."""
        numbers = f"{self.count} {self.warm} {self.gap_us} {self.siblings}"
        return f"measure {self.name} {self.operation} {numbers} {self.beside} {self.threads}"


def plan(measures: Sequence[Measure], seed: int, switches: Mapping[str, str]) -> str:
    """The agent's plan. `switches`: module parameter -> value, of planted defects. As wide for every seed."""
    lines = [f"set {_parameter(name)} {value}" for name, value in switches.items()]
    return "\n".join([f"seed {seed:010}", *lines, *(measure.line() for measure in measures), ""])


def _parameter(name: str) -> str:
    module, _, parameter = name.partition(".")
    return f"/sys/module/{module}/parameters/{parameter}"


@dataclass(frozen=True)
class Samples:
    """What one boot measured: by the measure's name, its durations, or the errno of what did not work."""

    taken: dict[str, Durations]
    failed: dict[str, int] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)

    def save(self, path: Path) -> None:
        """One .npz, of raw columns and JSON bytes (no pickle); FileExistsError rather than over an older one."""
        meta = json.dumps({"names": list(self.taken), "failed": self.failed, "facts": self.facts}).encode()
        columns = {f"samples{number}": column for number, column in enumerate(self.taken.values())}
        with path.open("xb") as out:
            np.savez_compressed(out, meta=np.frombuffer(meta, dtype="u1"), **columns)  # type: ignore[arg-type]

    @classmethod
    def load(cls, path: Path) -> Samples:
        """LabError when the file is not whole."""
        try:
            columns = untrusted.columns(path)
            meta = json.loads(untrusted.meta(columns))
            taken = {name: columns[f"samples{number}"] for number, name in enumerate(meta["names"])}
            return cls(taken, meta["failed"], meta["facts"])
        except Exception as error:  # as untrusted.reading says
            raise LabError(f"{path} cannot be read: {error}") from None


def parse(data: bytes, measures: Sequence[Measure], switches: Mapping[str, str]) -> Samples:
    """Read what the agent sent. LabError when it is cut short or malformed, or a parameter was not set."""
    reader = _Reader(data, {measure.name: measure.count for measure in measures})
    try:
        reader.read_all()
    except (ValueError, IndexError, KeyError) as error:
        tail = data[-200:].decode(errors="replace")
        raise LabError(f"the measuring guest's report is malformed or cut short: {error}", evidence=tail) from None
    for name, value in switches.items():
        told = reader.parameters.get(_parameter(name), "")
        if told not in (value, {"1": "Y", "0": "N"}.get(value)):
            raise LabError(f"parameter {name} is {told or 'absent'} after {value} was written to it")
    facts = {name: told.decode(errors="replace").strip() for name, told in reader.facts.items() if name != "notes"}
    facts["build_id"] = build_id(reader.facts.get("notes", b""))
    return Samples(reader.taken, reader.failed, facts)


class _Reader:
    def __init__(self, data: bytes, counts: Mapping[str, int]) -> None:
        self.data, self.counts = data, counts
        self.at = 0
        self.taken: dict[str, Durations] = {}
        self.failed: dict[str, int] = {}
        self.facts: dict[str, bytes] = {}
        self.parameters: dict[str, str] = {}

    def read_all(self) -> None:
        words: list[str] = []
        while words != ["end"]:
            words = self._line().split(" ")
            if words[0] == "fact":
                self.facts[words[1]] = bytes.fromhex(words[2][1:])
            elif words[0] == "set":
                self.parameters[words[1]] = words[3] if words[2] == "0" else ""
            elif words[0] == "samples":
                self._samples(*words[1:])
            elif words != ["end"]:
                raise ValueError(f"unknown line {words[0][:20]!r}")
        absent = self.counts.keys() - self.taken.keys() - self.failed.keys()
        if absent or self.at != len(self.data):
            raise ValueError(f"parts are missing, or left over: {' '.join(sorted(absent))}")

    def _samples(self, name: str, error: str, count: str) -> None:
        if int(error):
            if int(error) not in errno.errorcode or count != "0" or name not in self.counts:
                raise ValueError(f"{name[:20]} ended with no errno: {error[:20]}")
            self.failed[name] = int(error)
        elif int(count) != self.counts[name] or name in self.taken:
            raise ValueError(f"{name[:20]} has {count[:20]} samples")
        else:
            size = 4 * int(count)
            if self.at + size > len(self.data):
                raise ValueError("samples are cut short")
            self.taken[name] = np.frombuffer(self.data, "<u4", int(count), self.at)
            self.at += size
        if self._line():
            raise ValueError("samples do not end where they should")

    def _line(self) -> str:
        end = self.data.index(b"\n", self.at)
        line = self.data[self.at : end].decode("ascii")
        self.at = end + 1
        return line
