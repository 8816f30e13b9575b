"""The script probe: a list of operations on files and processes of a guest, in lanes, with what came of each.

One guest call runs thousands of operations. Operations of one lane follow each other; lanes of a phase run at the
same time. See labs/probe/agent/script.c for the operations.
"""

from __future__ import annotations

import errno as errors
from collections.abc import Sequence
from dataclasses import dataclass

from labs.errors import LabError
from labs.guest import Guest
from labs.prepare import AGENT

PHASE_MS = 10_000  # a phase that takes longer has a lane stuck in the kernel; stretched under emulation by the caller
NEVER = -1  # errno of an operation that did not come back


@dataclass(frozen=True)
class Op:
    """One operation: a lane's number, its name and its arguments (no tab or newline in them)."""

    name: str
    args: tuple[str | int, ...] = ()
    lane: int = 0

    def line(self) -> str:
        words = [str(self.lane), self.name, *(str(arg) for arg in self.args)]
        if any("\t" in word or "\n" in word for word in words):
            raise ValueError(f"an argument of {self.name} holds a tab or a newline")
        return "\t".join(words)

    def __str__(self) -> str:
        return " ".join([self.name, *(repr(arg) if isinstance(arg, str) else str(arg) for arg in self.args)])


BARRIER = Op("-")  # ends a phase


def op(name: str, *args: str | int, lane: int = 0) -> Op:
    """An operation, as op('write', '/sys/fs/cgroup/a/cpu.weight', 500)."""
    return Op(name, args, lane)


@dataclass(frozen=True)
class Outcome:
    """What came of an operation: errno (0, or NEVER), the text that it gave, start and end in guest ns."""

    op: Op
    errno: int
    text: str
    start: int
    end: int

    @property
    def error(self) -> str:
        """The errno's name: '' for success, 'never returned' for one that did not come back."""
        if self.errno == NEVER:
            return "never returned"
        return errors.errorcode.get(self.errno, str(self.errno)) if self.errno else ""

    def __str__(self) -> str:
        shown = self.error or repr(self.text.strip()[:120]) if self.errno or self.text else "ok"
        return f"{self.op} -> {shown}"


def run_script(guest: Guest, ops: Sequence[Op], *, phase_ms: int = PHASE_MS, seconds: float = 60) -> list[Outcome]:
    """Run the operations; one outcome each, barriers included (errno 0). `seconds` bounds the whole call."""
    plan = "\n".join([str(phase_ms), *(item.line() for item in ops), ""])
    command = f"f=$(mktemp) && cat > $f && {AGENT} script $f; code=$?; rm $f; exit $code"
    result = guest.run(command, seconds, stdin=plan.encode())
    if result.code != 0:
        said = result.err.strip().splitlines()[-1:] or [f"ended with {result.code}"]
        raise LabError(f"the script did not run: {said[0]}", evidence=result.err)
    return parse_outcomes(result.out, ops)


def parse_outcomes(text: str, ops: Sequence[Op]) -> list[Outcome]:
    """The agent's report on a script. LabError when it is cut short or malformed: the guest is not trusted."""
    lines = text.splitlines()
    if len(lines) != len(ops) + 1 or lines[-1] != "end":
        raise LabError("the script's report is cut short", evidence=text[-300:])
    try:
        return [_outcome(line.split(" "), item) for line, item in zip(lines, ops, strict=False)]
    except ValueError as error:
        raise LabError(f"the script's report is malformed: {error}") from None


def _outcome(words: list[str], item: Op) -> Outcome:
    tag, _, start, end, error, said = words
    if tag != "op" or not said.startswith("x"):
        raise ValueError(f"unknown line {' '.join(words)[:60]!r}")
    never = item.name != "-" and int(end) == 0
    text = bytes.fromhex(said[1:]).decode(errors="replace")
    return Outcome(item, NEVER if never else int(error), text, int(start), int(end))
