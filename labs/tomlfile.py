"""A TOML file that people write, with the line of each key: what is wrong is told as `file:line: what; mend`."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labs.errors import BadInput

Key = str | int  # a name in a table, or a place in a list
Keys = tuple[Key, ...]


@dataclass(frozen=True)
class TomlFile:
    """A file that parses. `statements` are its headers and assignments: what each names, its first line, its text."""

    name: str
    table: dict[str, Any]
    statements: tuple[tuple[Keys, int, str], ...]

    @classmethod
    def read(cls, path: Path) -> TomlFile:
        """BadInput, with the line, when there is no such file or it is no TOML."""
        try:
            text = path.read_text()
            table = tomllib.loads(text)
        except OSError as error:
            raise BadInput(f"{path}: {error.strerror}", mend="name a file that exists") from None
        except UnicodeDecodeError:
            raise BadInput(f"{path}: not UTF-8", mend="write it as UTF-8 text") from None
        except tomllib.TOMLDecodeError as error:
            told = str(error)
            found = re.search(r" \(at line (\d+), .*\)", told)
            line = int(found[1]) if found else text.count("\n") + 1  # without a number it is the end of the text
            what = re.sub(r" \(at .*\)", "", told)
            raise BadInput(f"{path}:{line}: {what}", mend="mend the TOML") from None
        return cls(str(path), table, tuple(_statements(text)))

    def line(self, keys: Keys, value: str = "") -> int:
        """Line of the statement that names `keys`, or what is nearest above it; with `value`, where that is written."""
        for size in range(len(keys), 0, -1):
            for named, first, text in self.statements:
                if named[:size] == keys[:size]:
                    within = [number for number, one in enumerate(text.split("\n")) if value and f'"{value}"' in one]
                    return first + (within[0] if within else 0)
        return 1

    def refused(self, keys: Keys, what: str, mend: str, value: str = "") -> BadInput:
        return BadInput(f"{self.name}:{self.line(keys, value)}: {what}", mend=mend)

    def at(self, keys: Keys) -> Any:
        """What the file has there, or None."""
        found: Any = self.table
        for key in keys:
            if isinstance(found, dict):
                found = found.get(str(key))
            else:
                found = found[key] if isinstance(found, list) and isinstance(key, int) else None
        return found

    def has_only(self, keys: Keys, known: tuple[str, ...]) -> dict[str, Any]:
        """The table there, empty when it is absent; BadInput when it is none, or has a key that is not known."""
        table = {} if self.at(keys) is None else self.at(keys)
        if not isinstance(table, dict):
            raise self.refused(keys, f"{_told(keys)} is no table", f"write [{_told(keys)}]")
        for key in table:
            if known and key not in known:
                raise self.refused((*keys, key), f"key {key!r} is not known here", f"one of: {', '.join(known)}")
        return table

    def rows(self, key: str) -> range:
        """Places of the tables of a list of tables, as [[exclude]]; none when it is absent."""
        rows = self.table.get(key, [])
        if not isinstance(rows, list):
            raise self.refused((key,), f"{key} is no list of tables", f"write [[{key}]]")
        return range(len(rows))

    def text(self, keys: Keys) -> str:
        """The text there; BadInput when it is absent, empty or no text."""
        value = self.at(keys)
        if not isinstance(value, str) or not value.strip():
            what = f"{_told(keys)} is missing" if value is None else f"{_told(keys)} is no text: {value!r}"
            raise self.refused(keys, what, f'write {keys[-1]} = "..."')
        return value

    def texts(self, keys: Keys) -> tuple[str, ...]:
        """The text, or list of different texts, there (a text may be empty); BadInput when it is none, or is absent."""
        value = self.at(keys)
        values = [value] if isinstance(value, str) else value
        if not isinstance(values, list) or not values:
            what = "is missing" if value is None else "is empty" if value == [] else f"is no text: {value!r}"
            raise self.refused(keys, f"{_told(keys)} {what}", f'write {keys[-1]} = ["..."]')
        for number, one in enumerate(values):
            if not isinstance(one, str):
                raise self.refused(keys, f"{_told(keys)} has what is no text: {one!r}", f'write "{one}"')
            if one in values[:number]:
                raise self.refused(keys, f"{_told(keys)} has {one!r} twice", "once is enough", one)
        return tuple(values)

    def count(self, keys: Keys, otherwise: int) -> int:
        """The number there, 1 or more; `otherwise` when it is absent."""
        value = self.at(keys)
        if value is None:
            return otherwise
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise self.refused(keys, f"{_told(keys)} is no number of 1 or more: {value!r}", f"write {keys[-1]} = 2")
        return value

    def flag(self, keys: Keys) -> bool:
        """Whether it is switched on there; absent is off."""
        value = self.at(keys)
        if value not in (None, True, False) or (isinstance(value, int) and not isinstance(value, bool)):
            raise self.refused(keys, f"{_told(keys)} is neither true nor false: {value!r}", f"write {keys[-1]} = true")
        return bool(value)


def _told(keys: Keys) -> str:
    return ".".join(str(key) for key in keys if isinstance(key, str))


def _statements(text: str) -> Iterator[tuple[Keys, int, str]]:
    """A statement begins where the text before it parses: so no line of a long text or list is taken for a key."""
    lines = text.split("\n")
    starts = [number for number in range(len(lines)) if _parses("\n".join(lines[:number]))]
    header: Keys = ()
    counts: dict[Keys, int] = {}
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        statement = "\n".join(lines[start:end])
        named = tuple(_named(tomllib.loads(statement)))
        if not named:
            continue
        if statement.lstrip().startswith("[["):
            counts[named] = counts.get(named, -1) + 1
            header = (*named, counts[named])
        elif statement.lstrip().startswith("["):
            header = named
        yield (header if statement.lstrip().startswith("[") else (*header, *named)), start + 1, statement


def _parses(text: str) -> bool:
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return False
    return True


def _named(table: dict[str, Any]) -> Iterator[str]:
    """The names that one statement gives, from the outermost; those in a table on one line count when it has one."""
    while len(table) == 1:
        ((name, value),) = table.items()
        yield name
        table = value if isinstance(value, dict) else {}
