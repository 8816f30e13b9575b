"""What the kernel said: complaints found in a console log, live or saved, with the lines around them.

A console is a serial log: printk lines with their time stamp, and between them whatever userspace and firmware print
to the same port, sometimes on one line. Only what stands right after a stamp is the kernel's own word.
"""

from __future__ import annotations

import bisect
import codecs
import re
import threading
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from labs.signatures import ANY, ANY_SIGNATURE, CUT_HERE, EMULATOR_FAULTS, END_TRACE, INFORMATION, SIGNATURES, Signature

REACH = 60  # lines that one splat may take
BEFORE = 5  # lines shown before a complaint that has no "cut here"
MARK = "cgroup-lab: "

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[ -/]*[0-~])|[\x00-\x08\x0b-\x1f\x7f]")
# `<4>[    1.234567][ T123] `: level with console_msg_format=syslog, caller with CONFIG_PRINTK_CALLER.
_STAMP = re.compile(r"(?:<\d+>)?\[ *\d+\.\d{6}\](?:\[ *[TC]\d+[^\]]*\])* ")


@dataclass(frozen=True)
class Event:
    """One complaint: its first line and the lines around it."""

    kind: str
    fatal: bool
    line_number: int  # counted from 1
    text: str  # the line that gave it away, without stamp
    context: str

    @property
    def defect(self) -> bool:
        return self.kind not in INFORMATION


def begin_marker(case: str) -> str:
    """What the lab writes to /dev/kmsg when a case begins."""
    return f"{MARK}begin {case}"


def end_marker(case: str) -> str:
    return f"{MARK}end {case}"


def clean(line: str) -> str:
    """A console line without terminal escapes, carriage returns and other control characters."""
    return _ESCAPES.sub("", line)


def _messages(line: str) -> list[str]:
    """The kernel's messages on one clean line: mostly one; none where only userspace wrote; two where lines met."""
    return _STAMP.split(line)[1:]


def _says(line: str, message: str) -> bool:
    return message in (_messages(line) or [line])


def _is_marker(line: str) -> bool:
    return any(message.startswith(MARK) for message in _messages(line) or [line])


@dataclass
class _Scan:
    """Lines fed so far and the complaints among them. What is once found stays: later lines never unsay it."""

    lines: list[str] = field(default_factory=list)
    kernel_lines: int = 0
    hits: list[tuple[int, Signature, str]] = field(default_factory=list)  # line index, row, message
    open: tuple[int, str] | None = None  # where the splat began that is still being printed, and its kind

    def feed(self, raw: str) -> None:
        line = clean(raw)
        messages = _messages(line)
        self.kernel_lines += bool(messages)
        if not self.kernel_lines:
            messages = [line]  # a log without stamps (printk.time=0), a saved excerpt, or firmware before the kernel
        self.lines.append(line)
        if messages and messages[0].startswith(MARK):
            self.open = None  # a case's name may hold any word: a marker is never a complaint
            return
        for message in messages:
            self._judge(message)

    def _judge(self, message: str) -> None:
        at = len(self.lines) - 1
        found = ANY_SIGNATURE.match(message)
        if found and found.lastgroup:
            row = SIGNATURES[int(found.lastgroup.removeprefix("row"))]
            if not self._expected(row, at):
                self.hits.append((at, row, message))
                self.open = (at, row.kind)
        elif END_TRACE in message:
            self.open = None

    def _expected(self, row: Signature, at: int) -> bool:
        if self.open is None or at - self.open[0] > REACH:
            return False
        return ANY in row.follows or self.open[1] in row.follows

    def events(self, first: int = 0) -> list[Event]:
        return [
            Event(row.kind, row.fatal, at + 1, message, _context(self.lines, at, row.closing))
            for at, row, message in self.hits[first:]
        ]


def _context(lines: list[str], at: int, closing: tuple[str, ...]) -> str:
    """The report that line `at` belongs to, as far as it is written."""
    start = at
    while start > max(0, at - BEFORE) and not _is_marker(lines[start - 1]) and END_TRACE not in lines[start - 1]:
        start -= 1
        if CUT_HERE in lines[start]:
            break
    window = lines[at : at + REACH]
    # In BUG_ON_DATA_CORRUPTION kernels "list_del corruption" comes one line before its "cut here": not a border there.
    borders = (n for n, line in enumerate(window) if n and (_is_marker(line) or (n > 1 and CUT_HERE in line)))
    window = window[: next(borders, None)]
    ends = (n for needle in closing for n, line in enumerate(window) if n and needle in line)
    return "\n".join(lines[start:at] + window[: next(ends, REACH) + 1])


def scan(text: str) -> list[Event]:
    """All complaints in a saved console."""
    return _fed(text).events()


def kernel_lines(text: str) -> int:
    """How many lines of a console the kernel itself wrote (they carry a stamp): what a scan can claim to have seen."""
    return _fed(text).kernel_lines


def _fed(text: str) -> _Scan:
    scanned = _Scan()
    for line in text.removesuffix("\n").split("\n"):  # splitlines() would also cut at form feeds and U+2028
        scanned.feed(line)
    return scanned


def slice_of(text: str, case: str) -> str:
    """The part of a console that a case wrote, markers included; to the end if its end was never written.

    A case that ran twice gives its last run; one that never began gives an empty text.
    """
    lines = [clean(line) for line in text.split("\n")]
    begins = [
        at for at, line in enumerate(lines) if begin_marker(case) in _messages(line) or line == begin_marker(case)
    ]
    if not begins:
        return ""
    rest = lines[begins[-1] :]
    ends = (at for at, line in enumerate(rest) if _says(line, end_marker(case)))
    return "\n".join(rest[: next(ends, len(rest)) + 1])


class ConsoleWatch:
    """Reads a console log while it grows; each poll costs only what is new.

    The file may not be there yet; one that became shorter (the guest was started anew) is read from its start.
    Several threads may poll: each complaint goes to the one whose poll read it; `events` and `fatal` are for all.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._restart()

    def _restart(self) -> None:
        self._position = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._partial = ""  # the line that is being written
        self._scan = _Scan()

    def forget(self) -> None:
        """Begin anew at what comes next, as the machine does that was put back to an earlier state; the file stays."""
        with self._lock:
            self._poll()
            self._partial = ""
            self._scan = _Scan()

    def poll(self) -> list[Event]:
        """Complaints since the last poll. A context may still grow: `events` has the whole."""
        with self._lock:
            return self._poll()

    def _poll(self) -> list[Event]:
        try:
            size = self.path.stat().st_size
            if size < self._position:
                self._restart()
            if size == self._position:
                return []
            with self.path.open("rb") as log:
                log.seek(self._position)
                data = log.read(size - self._position)
        except FileNotFoundError:
            return []
        self._position += len(data)
        *whole, self._partial = (self._partial + self._decoder.decode(data)).split("\n")
        known = len(self._scan.hits)
        for line in whole:
            self._scan.feed(line)
        return self._scan.events(known)

    def events(self) -> list[Event]:
        """All complaints up to the last poll with all of their context, the unfinished last line included."""
        return scan(self.text)

    @property
    def fatal(self) -> bool:
        """Whether any complaint up to the last poll means that the kernel cannot be trusted to go on."""
        return any(row.fatal for _, row, _ in self._scan.hits)

    @property
    def text(self) -> str:
        """The console so far, without terminal escapes."""
        return "\n".join([*self._scan.lines, clean(self._partial)])

    @property
    def kernel_lines(self) -> int:
        """How many lines the kernel wrote so far."""
        return self._scan.kernel_lines

    def tail(self, lines: int) -> str:
        """The last lines, for a message to a person."""
        return "\n".join(self.text.removesuffix("\n").split("\n")[-lines:])


def known_emulator_fault(event: Event) -> str:
    """Why this event is the emulator's fault and not the kernel's; empty if it is not."""
    for kind, reason, texts in EMULATOR_FAULTS:
        if event.kind == kind and all(re.search(text, event.context) for text in texts):
            return reason
    return ""


# `ffffffff8112abcd`, `0xffff...`, `[<ffff...>] 0xffff...`; not the hex inside a longer number. The kernel's own text
# lies there only without KASLR.
_ADDRESS = re.compile(r"(?:\[<)?\b(?:0x)?(ffffffff[0-9a-f]{8})\b(?:>\](?: 0x\1)?+)?+(?! ?[\w.]+\+0x)")
SYMBOL = re.compile(r"^([0-9a-f]{1,16}) (\S) (\S+)", re.M)  # a line of System.map, and of /proc/kallsyms


@lru_cache(maxsize=2)
def _symbols(system_map: Path) -> tuple[list[int], list[tuple[str, str]]]:
    """Addresses in order, and (type, name) of each. Debian's own System.map is one line of prose: nothing resolves."""
    rows = SYMBOL.findall(system_map.read_text(errors="replace"))
    found = sorted((int(address, 16), kind, name) for address, kind, name in rows)
    return [address for address, _, _ in found], [(kind, name) for _, kind, name in found]


def symbolize(text: str, system_map: Path | str) -> str:
    """Raw code addresses as `symbol+0xoffset`; what no code symbol covers stays as it is.

    Holds for a kernel booted with nokaslr. `system_map` is the path of a System.map, or of a saved /proc/kallsyms.
    """
    addresses, names = _symbols(Path(system_map))

    def name(found: re.Match[str]) -> str:
        address = int(found[1], 16)
        at = bisect.bisect_right(addresses, address) - 1
        if not 0 <= at < len(addresses) - 1 or names[at][0] not in "tTwW":
            return found[0]  # before the first, at or after the last (where code ends), or data
        return f"{names[at][1]}+{address - addresses[at]:#x}"

    return _ADDRESS.sub(name, text)
