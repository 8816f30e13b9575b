"""How the kernel reads numbers that are written to cgroup files. Each raises Refused with the errno's name.

Sources, the same in 6.1 to 7.3: lib/kstrtox.c, lib/cmdline.c (memparse), lib/vsprintf.c (vsscanf).
"""

from __future__ import annotations

import re

PAGE = 4096
U64, S64, S32 = (1 << 64) - 1, (1 << 63) - 1, (1 << 31) - 1


class Refused(Exception):
    """The kernel refuses what was written; the argument is the errno's name."""


def unsigned(text: str, most: int = U64) -> int:
    """kstrtoull(text, 0): a sign '+' is allowed, spaces are not; ERANGE beyond `most`."""
    found = re.fullmatch(r"\+?(?:0[xX]([0-9a-fA-F]+)|(0[0-7]*)|([1-9][0-9]*))", text)
    if not found:
        raise Refused("EINVAL")
    hexadecimal, octal, decimal = found.groups()
    number = int(hexadecimal, 16) if hexadecimal else int(octal, 8) if octal else int(decimal)
    if number > most:
        raise Refused("ERANGE")
    return number


def signed(text: str, most: int = S64) -> int:
    """kstrtoll(text, 0), and kstrtoint() with S32 as `most`."""
    if text.startswith("-"):
        if text.startswith("-+"):
            raise Refused("EINVAL")
        return -unsigned(text[1:], most + 1)
    return unsigned(text, most)


def pages(text: str, no_limit: int) -> int:
    """page_counter_memparse(text, "max"): whole pages, at most `no_limit`; suffixes K, M, G, T as memparse() has."""
    text = text.strip()
    if text == "max":
        return no_limit
    found = re.fullmatch(r"(0[xX][0-9a-fA-F]+|[0-9]+)([kKmMgGtT]?)", text)
    if not found:
        raise Refused("EINVAL")
    shift = 10 * (" kmgt".index(found[2].lower()) if found[2] else 0)
    return min((unsigned(found[1]) << shift) // PAGE, no_limit)


def first_number(text: str) -> int | None:
    """sscanf(text, "%llu"): leading spaces are skipped, and whatever follows the digits."""
    found = re.match(r"\s*([0-9]+)", text)
    return int(found[1]) if found else None
