"""The measures of a suite: `measures.toml` in its folder, one table a measure, its name that of the table.

[cpu-max]
operation = "cpu.max"        # see labs/probe/samples.py, OPERATIONS
count = 2000                 # samples a boot
warm = 200                   # operations before them that are not kept
gap_us = 0                   # slept before each
siblings = 1000              # idle groups that exist meanwhile
beside = "attach"            # what others do, 100 us apart (moves: at once) ...
threads = 2                  # ... and how many do
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from labs.errors import BadInput
from labs.probe.samples import MOST, NAME, OPERATIONS, Measure
from labs.tomlfile import TomlFile

FILE = "measures.toml"
KEYS = ("operation", "count", "warm", "gap_us", "siblings", "beside", "threads")


def measures_of(suite: Path, only: Sequence[str] = ()) -> tuple[Measure, ...]:
    """All measures of a suite, or those named; BadInput, with file and line, for what is malformed."""
    path = suite / FILE if suite.is_dir() else suite
    if not path.is_file():
        raise BadInput(f"suite {suite} has no {FILE}", mend="name one that has, as suites/latency")
    file = TomlFile.read(path)
    found = {name: _measure(file, name) for name in file.table}
    absent = [name for name in only if name not in found]
    if absent or not found:
        raise BadInput(f"{path} has no measure {' '.join(absent)}".rstrip(), mend=f"one of: {', '.join(found)}")
    return tuple(measure for name, measure in found.items() if not only or name in only)


def _measure(file: TomlFile, name: str) -> Measure:
    table = file.has_only((name,), KEYS)
    if not NAME.fullmatch(name):
        raise file.refused((name,), f"{name!r} is no name of a measure", "use small letters, digits, . _ + -")
    given: dict[str, Any] = {"operation": file.text((name, "operation"))}
    if "beside" in table or "threads" in table:
        given |= {"beside": file.text((name, "beside"))}
    for key, value in given.items():
        if value not in OPERATIONS:
            raise file.refused((name, key), f"operation {value!r} is not known", f"one of: {', '.join(OPERATIONS)}")
    numbers: dict[str, Any] = {key: _number(file, name, key) for key in MOST if key in table}
    if "beside" in given:
        numbers.setdefault("threads", 1)
    return Measure(name, **given, **numbers)


def _number(file: TomlFile, name: str, key: str) -> int:
    value = file.at((name, key))
    least = 100 if key == "count" else 0
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MOST[key]:
        raise file.refused((name, key), f"{name}.{key} is no number from {least} to {MOST[key]}: {value!r}", "mend it")
    return value
