"""Runs as JSON, one a line: evidence that can be judged again."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from labs.model.act import NOT_RUN, Act, Ran, Seen, Told


def dump(rans: Iterable[Ran]) -> str:
    """One line a run: [before, lanes, after]; an act is [name, group, file, value, process, error, text, from, to]."""
    return "".join(json.dumps(_row(ran), separators=(",", ":")) + "\n" for ran in rans)


def load(text: str) -> list[Ran]:
    """The runs that dump() has written."""
    rans = []
    for line in text.splitlines():
        before, lanes, after = json.loads(line)
        rans.append(Ran(_told(before), tuple(_told(lane) for lane in lanes), _told(after)))
    return rans


def _row(ran: Ran) -> list[Any]:
    origin = min((seen.start for _, seen in ran if seen.error != NOT_RUN), default=0)

    def plain(row: Sequence[Told]) -> list[list[Any]]:
        return [
            [
                *(act.name, act.group, act.file, act.value, act.process, seen.error, seen.text),
                *(max(0, time - origin) for time in (seen.start, seen.end)),
            ]
            for act, seen in row
        ]

    return [plain(ran.before), [plain(lane) for lane in ran.lanes], plain(ran.after)]


def _told(rows: Sequence[Sequence[Any]]) -> tuple[Told, ...]:
    return tuple((Act(*row[:5]), Seen(*row[5:])) for row in rows)
