"""Mails out of an mbox, and what git would read out of each: author, subject, message, diff."""

from __future__ import annotations

import base64
import binascii
import email
import email.errors
import email.policy
import quopri
import re
from collections.abc import Iterator
from dataclasses import dataclass
from email.header import decode_header, make_header
from email.message import Message

_SEPARATOR = re.compile(
    rb"From (?:[0-9a-f]{40}|[0-9a-f]{64}|\S+) +(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) "
    rb"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) [ \d]?\d \d\d:\d\d:\d\d [^\n]*\d{4}[^\n]{0,8}\n"
)
HEADER_LIMIT = 4096  # characters of one header that are decoded: no name is longer, and decoding is not linear
_FROM = re.compile(rb"^From ", re.MULTILINE)
_FIELD = re.compile(rb"[A-Za-z][A-Za-z0-9-]{0,60}:(?:[ \t\r\n]|$)")
_BLANK = re.compile(rb"^[ \t]*\r?\n", re.MULTILINE)


@dataclass(frozen=True)
class Mail:
    """One mail. `body` is decoded; `line` is the line of the file where it starts, 0 where decoding moved the lines."""

    subject: str
    author: str
    body: bytes
    line: int
    start: int  # line of the file where the mail starts
    raw: bytes
    damage: str = ""


def _is_header(data: bytes, at: int) -> bool:
    return _FIELD.match(data, at) is not None


def separators(data: bytes) -> list[int]:
    """Offsets of the lines that separate mails: `From`, an address or commit, a date, and below it a header line.

    A sentence that starts with `From ` in a message has no such date, and no header below.
    """
    lines = ((start.start(), _SEPARATOR.match(data, start.start())) for start in _FROM.finditer(data))
    return [at for at, line in lines if line and _is_header(data, line.end())]


def looks_like_mail(data: bytes) -> bool:
    """Header lines at the top, a From or Subject among them; one damaged line before them is forgiven."""
    top = data[: data.find(b"\n\n") + 1] or data[:4096]
    lines = top.split(b"\n")
    start = 0 if _is_header(lines[0], 0) else 1
    fields = {line.partition(b":")[0].lower() for line in lines[start:] if _FIELD.match(line)}
    return len(lines) > start and _is_header(lines[start], 0) and bool(fields & {b"subject", b"from"})


def mails(data: bytes) -> Iterator[Mail]:
    """All mails of an mbox; data without separators is one mail."""
    starts = separators(data)
    if not starts or data[: starts[0]].strip():
        starts = [0, *starts]
    line = 1 + data.count(b"\n", 0, starts[0])
    for start, end in zip(starts, [*starts[1:], len(data)], strict=True):
        raw = data[start:end]
        yield read_mail(raw, line)
        line += raw.count(b"\n")


def read_mail(raw: bytes, start: int) -> Mail:
    """One mail from its own bytes; `start` is its line in the file."""
    first = 0 if _is_header(raw, 0) else raw.find(b"\n") + 1
    blank = _BLANK.search(raw, first)
    end = blank.end() if blank else len(raw)
    try:
        message = email.message_from_bytes(raw[first:], policy=email.policy.compat32)
    except RecursionError:  # parts in parts without end
        message = email.message_from_bytes(raw[first:end], policy=email.policy.compat32)
    line, damage = start + raw.count(b"\n", 0, end), ""
    if message.is_multipart():
        body, line = b"".join(_parts(message)), 0
    else:
        coding = str(message.get("Content-Transfer-Encoding", "")).strip().lower()
        body = raw[end:]
        if coding == "quoted-printable":
            body, line = quopri.decodestring(body), 0
        elif coding == "base64":
            decoded, line = _base64(body), 0
            damage = "base64 text is damaged or cut" if body.strip() and not decoded else ""
            body = decoded
    return Mail(
        _text(message, raw[first:end], "Subject"),
        _text(message, raw[first:end], "From"),
        body,
        line,
        start,
        raw,
        damage,
    )


def _base64(body: bytes) -> bytes:
    """The decoded text; nothing where it is damaged."""
    text = body.strip().split(b"\n\n")[0]  # a list's footer is appended in the clear
    try:
        return base64.b64decode(b"".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        return b""


def _parts(message: Message) -> Iterator[bytes]:
    """Text parts and attached patches; signatures and HTML are no part of a patch."""
    for part in message.walk():
        name = part.get_filename() or ""
        plain = part.get_content_maintype() == "text" and part.get_content_subtype() != "html"
        if not part.is_multipart() and (plain or name.endswith((".patch", ".diff"))):
            payload = part.get_payload(decode=True)
            if isinstance(payload, bytes):
                yield payload if payload.endswith(b"\n") else payload + b"\n"


def _text(message: Message, header: bytes, name: str) -> str:
    """A header as text on one line: RFC 2047 words decoded, raw 8-bit read as UTF-8, else Latin-1."""
    value = message.get(name, "")
    raw = str(value) if not isinstance(value, str) else value
    if any(ord(char) > 127 for char in raw):
        raw = _raw_field(header, name)
    unfolded = re.sub(r"\r?\n[ \t]+", " ", raw[:HEADER_LIMIT])
    try:
        decoded = str(make_header(decode_header(unfolded))) if "=?" in unfolded else unfolded
    except (LookupError, ValueError, email.errors.MessageError):  # not of the character set that it claims, or damaged
        decoded = unfolded
    return " ".join(decoded.split())


def _raw_field(header: bytes, name: str) -> str:
    found = re.search(rb"(?im)^%b:((?:[^\n]*\n)(?:[ \t][^\n]*\n)*)" % name.encode(), header + b"\n")
    value = found[1] if found else b""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")
