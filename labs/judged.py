"""What a verdict was judged of, on disk: read back without trust, and judged again.

    <cell>/judged/<case>-<random>.json.gz   the function's name and its arguments
    <cell>/judged/<case>-<random>.npz       arrays among them, each with its number

A register stands for itself as its path in a history that the probe has saved; a promise is its name.
"""

from __future__ import annotations

import dataclasses
import gzip
import importlib
import json
import pkgutil
import re
import secrets
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from labs import catalog, invariant
from labs.invariant.known import Runtime, explain
from labs.invariant.verdict import JUDGES, Call, Verdict
from labs.probe.history import History, Register
from labs.promise import Promise
from labs.promise.families import FAMILIES
from labs.untrusted import columns, inside, reading, unpacked

# Every module with functions that judge: they are known once it is imported.
for one in pkgutil.iter_modules(invariant.__path__, "labs.invariant."):
    importlib.import_module(one.name)
importlib.import_module("labs.model.driver")
PROMISES = {promise.name: promise for members in FAMILIES.values() for promise in members}


@dataclass(frozen=True)
class Context:
    """What makes of a violation a known one: the files judged, kernel and runtime, the day, rows that are no excuse."""

    files: tuple[str, ...] = ()
    kernel: tuple[int, ...] | None = None
    day: str = ""  # ISO; empty: the table was not asked
    mended: tuple[str, ...] = ()
    runtime: Runtime | None = None

    def explained(self, verdict: Verdict) -> Verdict:
        if not self.day:
            return verdict
        rows = [row for row in catalog.known_defects() if row.id not in self.mended]
        return explain(verdict, rows, self.kernel, self.files, self.runtime, date.fromisoformat(self.day))


def save(call: Call, context: Context, folder: Path, case: str, history: str) -> str:
    """Write a call below a cell's `folder`; the file's name, relative to that. `history` is the probe's, if it saved
    one. Empty where an argument is a register of no history: nothing could be judged again."""
    stem = f"{re.sub(r'[^A-Za-z0-9._+=-]+', '-', case)[:120].strip('.-')}-{secrets.token_hex(4)}"
    writer = _Writer(history)
    try:
        arguments = {name: writer.plain(value) for name, value in call.arguments.items()}
    except Unsaved:
        return ""
    row = {"by": call.by, "arguments": arguments, "context": dataclasses.asdict(context)}
    (folder / "judged").mkdir(exist_ok=True)
    path = folder / "judged" / f"{stem}.json.gz"
    if writer.arrays:
        np.savez_compressed(path.with_name(f"{stem}.npz"), **writer.arrays)
    path.write_bytes(gzip.compress(json.dumps(row, separators=(",", ":")).encode(), 6, mtime=0))
    return str(path.relative_to(folder))


class Unsaved(Exception):
    """An argument that no file has."""


@dataclass
class _Writer:
    history: str
    arrays: dict[str, Any] = field(default_factory=dict)

    def plain(self, value: Any) -> Any:
        """The value as JSON has it; arrays are put aside."""
        if isinstance(value, Register):
            if not self.history:
                raise Unsaved
            return {"history": self.history, "register": value.path}
        if isinstance(value, Promise):
            return value.name
        if isinstance(value, np.ndarray):
            self.arrays[f"a{len(self.arrays)}"] = value
            return {"array": f"a{len(self.arrays) - 1}"}
        if isinstance(value, np.generic):
            return value.item()
        if dataclasses.is_dataclass(value):
            return {one.name: self.plain(getattr(value, one.name)) for one in dataclasses.fields(value)}
        if isinstance(value, Mapping):
            return {str(name): self.plain(one) for name, one in value.items()}
        if value is None or isinstance(value, (str, int, float)):
            return value
        if isinstance(value, Iterable):
            return [self.plain(one) for one in value]
        raise Unsaved


@dataclass
class Reader:
    """Judges again what a cell's folder holds. Each history is read once."""

    folder: Path
    _histories: dict[str, dict[str, Register]] = field(default_factory=dict)
    _arrays: dict[str, Any] = field(default_factory=dict)
    _context: Context = field(default_factory=lambda: Context())

    def judge(self, name: str) -> Verdict:
        """The verdict of the call in file `name`; BadInput when the file is missing, malformed, or leads elsewhere."""
        by, arguments = self.call(name)
        with reading(f"{name}: cannot be judged again"):
            return self._context.explained(JUDGES[by](**arguments))

    def call(self, name: str) -> tuple[str, dict[str, Any]]:
        """The judge's name and its arguments; BadInput as above."""
        path = inside(self.folder, name)
        with reading(f"{name}: cannot be judged again"):
            row = json.loads(unpacked(path))
            hints = typing.get_type_hints(JUDGES[row["by"]])
            arrays = path.with_name(path.name.removesuffix(".json.gz") + ".npz")
            self._arrays = columns(arrays) if arrays.exists() else {}
            arguments = {key: self._value(hints[key], value) for key, value in row["arguments"].items()}
            self._context = self._value(Context, row["context"])
            return row["by"], arguments

    def _value(self, hint: Any, value: Any) -> Any:
        """A value of the type that an annotation names, from JSON."""
        if hint is Register:
            return self._registers(value["history"])[value["register"]]
        if hint is Promise:
            return PROMISES[value]
        if isinstance(value, dict) and value.keys() == {"array"}:
            return self._arrays[value["array"]]
        if dataclasses.is_dataclass(hint):
            hints = typing.get_type_hints(hint)
            return hint(**{name: self._value(hints[name], one) for name, one in value.items()})  # type: ignore[operator]
        return self._collection(hint, value)

    def _collection(self, hint: Any, value: Any) -> Any:
        origin, inner = typing.get_origin(hint), typing.get_args(hint)
        if origin in (types.UnionType, typing.Union):
            chosen = [one for one in inner if one is not type(None)]
            return value if value is None or len(chosen) != 1 else self._value(chosen[0], value)
        if isinstance(value, dict) and inner:
            key = int if inner[0] is int else str
            return {key(name): self._value(inner[-1], one) for name, one in value.items()}
        if isinstance(value, list) and isinstance(origin, type) and issubclass(origin, Iterable):
            if origin is tuple and ... not in inner:
                return tuple(self._value(one, part) for one, part in zip(inner, value, strict=True))
            made = [self._value(inner[0], one) for one in value]
            return made if origin is list else frozenset(made) if origin is frozenset else tuple(made)
        return value

    def _registers(self, name: str) -> dict[str, Register]:
        if name not in self._histories:
            registers = History.load(inside(self.folder, name)).registers
            self._histories[name] = {register.path: register for register in registers}
        return self._histories[name]
