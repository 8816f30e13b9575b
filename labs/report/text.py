"""How evidence is worded: the same for terminal, JUnit and page."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from labs.invariant.verdict import Verdict
from labs.report.record import CaseResult

# What XML 1.0 cannot hold (section 2.2, Char), and the C1 controls but NEL: some terminals obey U+009B as ESC [.
_UNFIT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufffe\uffff]")

# What tells one tested machine from another: name in reports -> where it is in cell.json.
IDENTITY = {
    "kernel-release": ("release",),
    "build-id": ("build_id",),
    "runtime": ("runtime", "name"),
    "runtime-version": ("runtime", "version"),
    "runtime-package": ("runtime", "package"),
    "runtime-digest": ("runtime", "sha256"),
    "series-patch-id": ("series", "patch_id"),
    "accelerator": ("accelerator",),
    "seed": ("seed",),
}


def clean(text: str) -> str:
    """Text that every report can hold: unfit characters become U+FFFD, line ends become newlines.

    XML parsers turn CR into LF; doing it here keeps what is read equal to what was written.

    >>> clean("a\\x1b[31m\\r\\n")
    'a\ufffd[31m\\n'
    """
    return _UNFIT.sub("\ufffd", text.replace("\r\n", "\n").replace("\r", "\n"))


def number(value: float) -> str:
    """A figure for people: thousands apart, four digits that count.

    >>> number(812345), number(0.123456), number(4)
    ('812,345', '0.1235', '4')
    """
    return f"{value:,.0f}" if abs(value) >= 1000 or float(value).is_integer() else f"{value:.4g}"


def numbers(values: Mapping[str, float]) -> str:
    """Named figures in one line, as '812,345 operations, 40,211 overlaps'."""
    return ", ".join(f"{number(value)} {name}" for name, value in values.items())


def identity(facts: Mapping[str, Any]) -> dict[str, str]:
    """The facts that identify a cell, named as reports name them; what was never read back is left out."""
    found: dict[str, str] = {}
    for name, keys in IDENTITY.items():
        if value := at(facts, *keys):
            found[name] = clean(value)
    return found


def at(value: object, *keys: str) -> str:
    """What stands there in nested objects; '' where nothing does."""
    for key in keys:
        value = value.get(key, "") if isinstance(value, Mapping) else ""
    return str(value)


def seen(result: CaseResult) -> str:
    """How much was looked at to judge the case."""
    return clean(numbers(result.verdict.looked_at)) if result.verdict else ""


def reason(result: CaseResult) -> str:
    """Why the case has its outcome; a repeated case says what it gave before."""
    said = result.reason or (result.verdict.reason if result.verdict else "")
    before = f"; before: {', '.join(result.earlier)}" if result.earlier else ""
    again = f"(attempt {result.attempts}{before})" if before or result.attempts > 1 else ""
    return clean(" ".join(filter(None, [said, again])))


def counterexample(verdict: Verdict) -> str:
    """The steps as plain lines, in order of start, times in microseconds."""
    steps = sorted(verdict.counterexample, key=lambda step: (step.start, step.end))
    lines = (
        f"{step.start / 1000:.3f}..{step.end / 1000:.3f} us  {step.thread}  {step.operation} = {step.value}"
        + (f"  ({step.note})" if step.note else "")
        for step in steps
    )
    return clean("\n".join(lines))
