"""A place to run the guest agent on plain files that stand for cgroup files."""

from __future__ import annotations

import string
from collections.abc import Sequence
from pathlib import Path

from labs.command import Completed, run
from labs.deadline import Deadline
from labs.probe.stream import Report, parse
from labs.probe.values import Value

# Of one byte each: a plain file gives no promise for more, and a shorter text would not replace a longer one.
LETTERS = string.ascii_letters
TABLE = [Value(letter, letter) for letter in LETTERS]
BEFORE = "0"


class Desk:
    """A folder with a table, files under test and a way to run a plan on them."""

    def __init__(self, program: Path, folder: Path) -> None:
        self.program = program
        self.folder = folder
        self.table(TABLE)

    def table(self, values: Sequence[Value], name: str = "table") -> None:
        (self.folder / name).write_text("".join(f"{value.write}\t{value.read}\n" for value in values))

    def file(self, name: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(BEFORE)
        return path

    def run(self, *lines: str) -> Completed:
        (self.folder / "plan").write_text("".join(f"{line}\n" for line in (f"table 0 {self.folder}/table", *lines)))
        output = self.folder / "report"
        argv = [str(self.program), str(self.folder / "plan")]
        return run(argv, Deadline(20, "the agent"), stdout=output, expect=None)

    def report(self, *lines: str, tables: dict[str, list[Value]] | None = None) -> Report:
        done = self.run(*lines)
        assert (done.code, done.err) == (0, "")
        return parse((self.folder / "report").read_bytes(), tables or {"cpu.weight": TABLE, "cpu.max": TABLE}, {})
