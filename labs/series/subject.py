"""Subjects of patch mails: `[PATCH v2 k/N]` and its like, covers, replies, and the order that they promise."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

LONGEST = 2000  # characters of a subject that are looked at
_REPLY = re.compile(r"(?:re|aw|fwd?|sv|antw)(?:\[\d+\])?:\s*", re.IGNORECASE)
_BRACKET = re.compile(r"\[([^\[\]]*)\]\s*")
_COUNT = re.compile(r"(?<!\S)(\d{1,4})/(\d{1,4})(?!\S)")
_VERSION = re.compile(r"(?i)\bv(\d{1,3})\b")


@dataclass(frozen=True)
class Subject:
    """`number` of `total` is 0 of 0 where the subject has none; a cover letter is 0 of N."""

    text: str
    number: int = 0
    total: int = 0
    version: int = 1
    reply: bool = False
    tagged: bool = False  # it says that it is a patch

    @property
    def is_cover(self) -> bool:
        return self.number == 0 and self.total > 0


def read_subject(text: str) -> Subject:
    """Take off what mail adds; brackets that are the author's own stay.

    >>> read_subject("[PATCH v2 3/10] [cgroup] x")
    Subject(text='[cgroup] x', number=3, total=10, version=2, reply=False, tagged=True)
    """
    rest, reply = text[:LONGEST].strip(), False
    while found := _REPLY.match(rest):
        rest, reply = rest[found.end() :], True
    found = _BRACKET.match(rest)
    if not found or (not re.search(r"(?i)\b(patch|rfc)\b", found[1]) and not _COUNT.fullmatch(found[1])):
        return Subject(rest, reply=reply)
    count, version = _COUNT.search(found[1]), _VERSION.search(found[1])
    number, total = (int(count[1]), int(count[2])) if count else (0, 0)
    return Subject(rest[found.end() :], number, total, int(version[1]) if version else 1, reply, True)


def order_problem(subjects: Sequence[Subject]) -> str:
    """Why these are not a whole series, or nothing. Unnumbered patches alone are in the order in which they came."""
    numbered = [subject for subject in subjects if subject.total]
    if not numbered:
        return ""
    totals, versions = {s.total for s in numbered}, {s.version for s in numbered}
    if len(versions) > 1:
        return f"versions {', '.join(f'v{one}' for one in sorted(versions))} of a series are mixed"
    if len(totals) > 1:
        return f"patches of series of {' and '.join(str(one) for one in sorted(totals))} are mixed"
    total = totals.pop()
    if len(numbered) < len(subjects):
        other = next(s.text for s in subjects if not s.total)
        return f"patch {other!r} has no number among patches k/{total}"
    there = [subject.number for subject in numbered]
    missing = sorted(set(range(1, total + 1)) - set(there))
    if missing:
        some = ", ".join(str(one) for one in missing[:10])
        return f"the series is incomplete: {some} of {total} missing"
    beyond = sorted({one for one in there if there.count(one) > 1 or one > total})
    return f"patch {beyond[0]}/{total} is there more than once, or beyond the end" if beyond else ""
