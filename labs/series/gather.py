"""Bytes of one file (mbox, mail or bare patch) -> patches in the order that their subjects promise."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from labs.series.diff import SEPARATOR, Parsed, parse
from labs.series.hunks import MADE_ANEW
from labs.series.mail import Mail, looks_like_mail, mails, separators
from labs.series.plain import CRLF_NOTE, unix_lines, wide_encoding, without_mark
from labs.series.subject import Subject, order_problem, read_subject
from labs.series.values import Patch, Problem, Where

_DIFFSTAT = re.compile(
    rb"^ (\d{1,6}) files? changed(?:, (\d{1,9}) insertions?\(\+\))?(?:, (\d{1,9}) deletions?\(-\))?\s*$", re.MULTILINE
)
_IN_BODY = re.compile(r"From: *([^\n<]*<[^\n>]*>)\n\s*")
_SHOWN = re.compile(r"commit [0-9a-f]{40,64}\b[^\n]*\n(?:[A-Z][A-Za-z]*:[^\n]*\n)*")


@dataclass(frozen=True)
class Found:
    """A patch and what its subject says of its place."""

    patch: Patch
    subject: Subject


@dataclass(frozen=True)
class Gathered:
    found: tuple[Found, ...] = ()
    notes: tuple[str, ...] = ()
    title: str = ""  # of the cover letter


def _refused(data: bytes, name: str, what: str, mend: str, line: int = 0) -> Gathered:
    where = Where(name, line)
    patch = Patch("", "", "", (), data, where, (Problem(where, what, mend),))
    return Gathered((Found(patch, Subject("")),))


def nothing(data: bytes, name: str) -> Gathered:
    """What stands for an input without any diff, so that it has a row and a problem like every other."""
    return _refused(data, name, "no diff in it", "a patch was expected: is this the file that was meant?")


def gather(data: bytes, name: str, strip: int | None = None) -> Gathered:
    """All patches in the bytes of one file, in the order found; replies and covers are dropped and noted."""
    if not data.strip():
        return _refused(data, name, "empty", "a patch was expected: is this the file that was meant?")
    if encoding := wide_encoding(data):
        return _refused(
            data, name, f"text in {encoding}", "save it as git wrote it: the bytes of a diff are its meaning"
        )
    text, crlf = unix_lines(without_mark(data))
    if b"\0" in text:
        line = text.count(b"\n", 0, text.index(b"\0")) + 1
        return _refused(data, name, "a zero byte: this is no text", "unpack it, or " + MADE_ANEW, line)
    if not (separators(text) or looks_like_mail(text)):
        return _bare(text, name, strip, crlf)
    found: list[Found] = []
    notes: list[str] = []
    title = ""
    for one in mails(text):
        subject = read_subject(one.subject)
        made = _from_mail(one, subject, name, strip, crlf)
        nothing = not made.files and not made.problems
        if subject.reply or (nothing and (subject.is_cover or not subject.tagged)):
            kind = "reply" if subject.reply else "cover letter" if subject.is_cover else "mail without a diff"
            notes.append(f"{made.where}: {kind} left out: {subject.text}")
            title = subject.text if subject.is_cover and "***" not in subject.text else title
        elif nothing:
            problem = Problem(made.where, f"no diff in patch {subject.text!r}", "is the mail whole?")
            found.append(Found(_with(made, problem), subject))
        else:
            found.append(Found(made, subject))
    return Gathered(tuple(found), tuple(notes), title)


def ordered(found: Sequence[Found], name: str) -> tuple[tuple[Patch, ...], tuple[Problem, ...]]:
    """The patches sorted by k/N, and what is wrong with the whole; the same mail twice counts once."""
    kept: dict[tuple[int, str] | int, Found] = {}
    for index, one in enumerate(found):
        key = (one.subject.number, one.patch.id) if one.subject.total and one.patch.files else index
        kept.setdefault(key, one)
    several = len(kept) > 1
    subjects = [
        one.subject if one.subject.total != 1 or not several else Subject(one.subject.text) for one in kept.values()
    ]
    what = order_problem(subjects)
    mend = "give all of one series, or list the files in order in a file called series"
    problems = (Problem(Where(name), what, mend),) if what else ()
    return tuple(one.patch for one in sorted(kept.values(), key=lambda one: one.subject.number)), problems


def _with(patch: Patch, problem: Problem) -> Patch:
    return Patch(
        patch.subject, patch.author, patch.message, patch.files, patch.raw, patch.where, (*patch.problems, problem)
    )


def _from_mail(one: Mail, subject: Subject, name: str, strip: int | None, crlf: bool) -> Patch:
    body, crlf_inside = unix_lines(one.body)
    if one.line:
        parsed = parse(body, lambda index: Where(name, one.line + index), strip)
    else:
        parsed = parse(body, lambda index: Where(f"{name} (mail at line {one.start}, decoded)", index + 1), strip)
    message, author = _message(parsed.message), one.author
    if stated := _IN_BODY.match(message):
        author, message = " ".join(stated[1].split()), message[stated.end() :]
    where = Where(name, one.start)
    problems = (Problem(where, one.damage, "fetch the mail again"),) if one.damage else ()
    return Patch(
        subject=subject.text,
        author=author,
        message=message,
        files=parsed.files,
        raw=one.raw,
        where=where,
        problems=(*problems, *parsed.problems, *_cut(parsed, where)),
        notes=(CRLF_NOTE,) if crlf or crlf_inside else (),
    )


def _bare(text: bytes, name: str, strip: int | None, crlf: bool) -> Gathered:
    """A diff with whatever stands before it: nothing, notes, or what git show prints."""
    parsed = parse(text, lambda index: Where(name, index + 1), strip)
    if not parsed.files and not parsed.problems:
        return nothing(text, name)
    message = _message(parsed.message)
    author = next((line[8:].strip() for line in message.splitlines() if line.startswith("Author: ")), "")
    if shown := _SHOWN.match(message):
        message = "\n".join(line.removeprefix("    ") for line in message[shown.end() :].strip("\n").splitlines())
    subject = next((line.strip() for line in message.splitlines() if line.strip()), "").removeprefix("Description: ")
    problems = (*parsed.problems, *_cut(parsed, Where(name, 1)))
    notes = (CRLF_NOTE,) if crlf else ()
    patch = Patch(subject[:200], author, message, parsed.files, text, Where(name, 1), problems, notes)
    return Gathered((Found(patch, Subject(patch.subject)),))


def _message(text: bytes) -> str:
    """The part before `---`, where the diffstat and private notes begin."""
    lines = text.split(b"\n")
    end = next((index for index, line in enumerate(lines) if line.rstrip() == SEPARATOR), len(lines))
    return b"\n".join(lines[:end]).decode(errors="replace").strip("\n")


def _cut(parsed: Parsed, where: Where) -> tuple[Problem, ...]:
    """A file cut between two hunks has no wrong hunk; but its diffstat promises more, and its last lines are gone.

    Both signs are asked for: people edit patches and leave the diffstat as it was.
    """
    promised = _DIFFSTAT.search(parsed.message)
    if parsed.signed or not promised or parsed.problems:
        return ()
    lines = [line for one in parsed.files for hunk in one.hunks for line in hunk.lines]
    there = (len(parsed.files), sum(line[:1] == b"+" for line in lines), sum(line[:1] == b"-" for line in lines))
    wanted = tuple(int(number or 0) for number in promised.groups())
    if all(have >= want for have, want in zip(there, wanted, strict=True)):
        return ()
    told = "{} files, {} insertions, {} deletions"
    what = f"cut short: its diffstat promises {told.format(*wanted)}, it has {told.format(*there)}"
    return (Problem(where, what, "fetch the whole file"),)
