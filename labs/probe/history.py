"""History: every operation that a probe saw, as numpy columns.

A history is what the guest reports and the only thing invariants look at. One row is one read(2) or write(2) of a
cgroup file, with its start and end on the guest's CLOCK_MONOTONIC.
"""

from __future__ import annotations

import json
import zipfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labs import untrusted

READ, WRITE = 0, 1
INITIAL = -1  # value index of what the file held before the run; its text is Register.initial
FAILED = -2  # value index of a read that returned an error (see `errno`)

OPERATION = np.dtype(
    [
        ("start", "<i8"),  # ns, guest CLOCK_MONOTONIC, just before the system call
        ("end", "<i8"),  # ns, just after it
        ("value", "<i4"),  # index into Register.values; >= len(values): Register.foreign[value - len(values)]
        ("errno", "<i2"),  # 0, or the error that the system call gave
        ("thread", "<u2"),
        ("kind", "u1"),  # READ or WRITE
    ]
)


@dataclass(frozen=True)
class Register:
    """One cgroup file that holds one value, and all that was done to it.

    `values[i]` is the text that a read gives after value i was written; `expect[i]` the errno that writing it must
    give (0: accepted). Writers own disjoint sets of values; a value returns only after all others of its writer.
    `foreign` holds texts that were read and that nobody wrote. `operations` has dtype OPERATION, in order of start.
    """

    path: str
    values: tuple[str, ...]
    expect: NDArray[np.int16]
    initial: str
    foreign: tuple[str, ...]
    operations: NDArray[Any]

    @property
    def name(self) -> str:
        """The file's own name, as `cpu.max`."""
        return self.path.rsplit("/", 1)[-1]

    def text(self, value: int) -> str:
        """What a value index stands for, as read from the file."""
        if value == INITIAL:
            return self.initial
        if value == FAILED:
            return "(failed)"
        known = len(self.values)
        return self.values[value] if value < known else self.foreign[value - known]

    def with_operations(self, operations: NDArray[Any]) -> Register:
        return replace(self, operations=operations)


@dataclass(frozen=True)
class History:
    """All registers of one probe run, and how the run was made."""

    registers: tuple[Register, ...]
    seconds: float  # wall time of the run on the guest's clock
    cpus: int  # vCPUs that the threads were spread over
    dropped: int = 0  # operations not recorded because memory was bounded
    facts: dict[str, Any] = field(default_factory=dict)

    def named(self, name: str) -> list[Register]:
        """Registers whose file is called `name`, over all groups of the run."""
        return [register for register in self.registers if register.name == name]

    @property
    def operations(self) -> int:
        return sum(len(register.operations) for register in self.registers)

    def save(self, path: Path) -> None:
        """Write one compressed .npz: columns of each register, texts and facts as JSON bytes (no pickle)."""
        meta = {
            "seconds": self.seconds,
            "cpus": self.cpus,
            "dropped": self.dropped,
            "facts": self.facts,
            "registers": [
                {"path": r.path, "values": r.values, "initial": r.initial, "foreign": r.foreign} for r in self.registers
            ],
        }
        columns: dict[str, Any] = {"meta": np.frombuffer(json.dumps(meta).encode(), dtype="u1")}
        for index, register in enumerate(self.registers):
            columns[f"expect{index}"] = register.expect
            columns[f"operations{index}"] = register.operations
        # as np.savez_compressed, but at zlib's lowest level: a quarter of the time for a few percent in size
        with path.open("xb") as out, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            for name, column in columns.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, column, allow_pickle=False)

    @classmethod
    def load(cls, path: Path) -> History:
        columns = untrusted.columns(path)
        meta = json.loads(untrusted.meta(columns))
        registers = tuple(
            Register(
                path=row["path"],
                values=tuple(row["values"]),
                expect=columns[f"expect{index}"],
                initial=row["initial"],
                foreign=tuple(row["foreign"]),
                operations=columns[f"operations{index}"],
            )
            for index, row in enumerate(meta["registers"])
        )
        return cls(registers, meta["seconds"], meta["cpus"], meta["dropped"], meta["facts"])
