"""Unified diffs out of text, line by line: git's and others', with whatever people write around them."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from labs.series.binary import LIMIT, read_binary
from labs.series.draft import Draft, finish
from labs.series.hunks import MADE_ANEW, is_signature, read_hunk
from labs.series.names import NO_FILE, file_name, git_pair, unquoted
from labs.series.values import FileDiff, Problem, Where

_EXTENDED = re.compile(
    rb"(old mode|new mode|deleted file mode|new file mode|copy from|copy to|rename from|rename to"
    rb"|similarity index|dissimilarity index|index) (.*)"
)
_INDEX = re.compile(rb"([0-9a-f]{4,64})\.\.([0-9a-f]{4,64})(?: ([0-7]{6}))?")
NAME_LIMIT = 8192  # bytes of a line that names files; PATH_MAX twice
SEPARATOR = b"---"


@dataclass(frozen=True)
class Parsed:
    """What a body holds: the text before the first diff, the files, and what is wrong."""

    message: bytes
    files: tuple[FileDiff, ...]
    problems: tuple[Problem, ...]
    signed: bool  # the body ends with the `-- ` that git format-patch writes: it is not cut


class _Reader:
    def __init__(self, body: bytes, at: Callable[[int], Where]) -> None:
        self.lines = io.BytesIO(body).readlines()  # at "\n" only: a lone "\r" is part of a line
        self.where = at
        self.index = 0
        self.drafts: list[Draft] = []
        self.broken: set[int] = set()  # drafts whose body could not be read
        self.problems: list[Problem] = []
        self.message: list[bytes] = []
        self.separator = 0  # index of a `---` line below a diff
        self.signed = False
        self.room = LIMIT  # bytes that binary data may still unpack to

    def here(self) -> Where:
        return self.where(self.index)

    def problem(self, what: str, mend: str = MADE_ANEW, where: Where | None = None) -> None:
        self.problems.append(Problem(where or self.here(), what, mend))

    def start(self, draft: Draft) -> None:
        if self.separator and self.drafts:
            first, self.separator = self.drafts[0].where, 0
            self.problem("a diff is quoted in the message: tools would apply it", "indent the quotation", first)
        self.drafts.append(draft)

    def read(self) -> None:
        while self.index < len(self.lines):
            self.step(self.lines[self.index])

    def step(self, line: bytes) -> None:
        """Take one line outside of hunks, and all that belongs to it."""
        following = self.lines[self.index + 1] if self.index + 1 < len(self.lines) else b""
        if line.startswith((b"diff --cc ", b"diff --combined ", b"@@@ ")):
            self.problem("a combined diff of a merge: it does not say what to do to one parent", "use git diff A B")
            self.index = len(self.lines)
        elif line.startswith(b"diff --git "):
            self.git_header()
        elif line.startswith(b"--- ") and following.startswith(b"+++ "):
            self.marks(Draft(self.here()))
        elif line.startswith(b"@@ -"):
            self.hunk()
        elif line.startswith(b"GIT binary patch"):
            self.binary()
        elif line.startswith((b"Binary files ", b"Files ")) and line.rstrip().endswith(b" differ"):
            self.problem("a binary file without its data", "make the patch with git format-patch --binary")
            self.broken.add(len(self.drafts) - 1)
            self.index += 1
        elif line.startswith(b"*** ") and following.startswith(b"--- ") and not self.drafts:
            self.problem("a context diff: only unified diffs are read", "make it with diff -u")
            self.index = len(self.lines)
        else:
            self.text(line)

    def text(self, line: bytes) -> None:
        if not self.drafts:
            self.message.append(line)
        elif line.rstrip(b"\r\n") == SEPARATOR:
            self.separator = self.index
        self.signed = self.signed or (line.rstrip(b"\r\n") == b"-- " and is_signature(self.lines, self.index))
        self.index += 1

    def git_header(self) -> None:
        """`diff --git` with its extended header, up to the first hunk or whatever else comes."""
        line = self.lines[self.index]
        pair = git_pair(line[len(b"diff --git ") :]) if len(line) < NAME_LIMIT else None
        draft = Draft(self.here(), git=True, pair=pair, header=[line.rstrip(b"\r\n")])
        self.start(draft)
        self.index += 1
        while self.index < len(self.lines):
            found = _EXTENDED.fullmatch(self.lines[self.index].rstrip(b"\r\n"))
            if not found:
                break
            self.extended(draft, found[1].decode(), found[2])
            self.index += 1
        if draft.pair is None and draft.source is not None and draft.target is not None:
            draft.pair = (f"a/{draft.source}", f"b/{draft.target}")  # names with spaces that only these lines tell
        following = self.lines[self.index : self.index + 2]
        if following and following[0].startswith(b"--- "):
            self.marks(draft)

    def extended(self, draft: Draft, word: str, value: bytes) -> None:
        if word == "index":
            found = _INDEX.fullmatch(value)
            if found:
                draft.blobs = (found[1].decode(), found[2].decode())
                if found[3]:
                    draft.modes["index"] = int(found[3], 8)
            else:
                self.problem("an 'index' line that cannot be read")
            return
        draft.header.append(self.lines[self.index].rstrip(b"\r\n"))
        if word.endswith("mode"):
            if re.fullmatch(rb"[0-7]{6}", value):
                draft.modes[word] = int(value, 8)
            else:
                self.problem(f"'{word}' without a mode")
        elif word == "similarity index" and value[:-1].isdigit():
            draft.similarity = int(value[:-1][:3])
        elif word.endswith(("from", "to")):
            draft.moved[word] = unquoted(value[:NAME_LIMIT])[0]

    def marks(self, draft: Draft) -> None:
        """The `---` and `+++` lines."""
        if not draft.git:
            self.start(draft)
        for prefix in (b"--- ", b"+++ "):
            line = self.lines[self.index] if self.index < len(self.lines) else b""
            if not line.startswith(prefix):
                return
            if len(line) > NAME_LIMIT:
                self.problem("a file name longer than any file system takes")
            name, nothing = file_name(line[4:NAME_LIMIT])
            draft.marks.append(name)
            if prefix == b"--- ":
                draft.old = NO_FILE if nothing else name
            else:
                draft.new = NO_FILE if nothing else name
            draft.header.append(line.rstrip(b"\r\n\t"))
            self.index += 1

    def hunk(self) -> None:
        where = self.here()
        hunk, self.index, problem = read_hunk(self.lines, self.index, where)
        if not self.drafts:
            self.problem("a hunk without the names of its file", where=where)
        elif problem:
            self.problems.append(problem)
            self.broken.add(len(self.drafts) - 1)
        elif hunk and len(self.drafts) - 1 not in self.broken:
            self.drafts[-1].hunks.append(hunk)

    def binary(self) -> None:
        where = self.here()
        data, self.index = read_binary(self.lines, self.index, self.room)
        self.room -= sum(len(one.data) for one in data or ())
        if data and self.drafts and not self.drafts[-1].hunks:
            self.drafts[-1].binary = data
        else:
            self.problem(
                "binary data is damaged, cut or too much", "make the patch with git format-patch --binary", where
            )
            self.broken.add(len(self.drafts) - 1)

    def files(self, strip: int | None) -> list[FileDiff]:
        """The drafts as FileDiffs; what is wrong with one becomes a problem."""
        own = [draft.own_strip() for draft in self.drafts]
        common = next((one for one in own if one is not None), 0)
        made = []
        for number, (draft, guess) in enumerate(zip(self.drafts, own, strict=True)):
            folders = strip if strip is not None else guess if guess is not None else common
            done = finish(draft, folders)
            if isinstance(done, FileDiff):
                made.append(done)
            elif number not in self.broken or "refused" in done.what:
                self.problems.append(done)
        return made


def parse(body: bytes, at: Callable[[int], Where], strip: int | None = None) -> Parsed:
    """Read all diffs in a body of text with line ends of one kind; `at` gives the place of a line's index.

    `strip` is the number of leading folders as in `patch -pN`; None takes it from the names themselves.
    """
    reader = _Reader(body, at)
    reader.read()
    files = reader.files(strip)
    problems = sorted(reader.problems, key=lambda problem: problem.where.line)
    return Parsed(b"".join(reader.message), tuple(files), (*problems, *_twice(files)), reader.signed)


def _twice(files: Sequence[FileDiff]) -> list[Problem]:
    """A patch says everything about a file in one place; twice is two patches in one, or damage."""
    seen: dict[str, FileDiff] = {}
    found = []
    for one in files:
        if one.path in seen:
            what = f"{one.path} is changed twice in one patch, first at line {seen[one.path].where.line}"
            found.append(Problem(one.where, what, "split the patch in two"))
        seen.setdefault(one.path, one)
    return found
