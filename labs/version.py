"""Versions in their own order: kernel releases, Debian package versions, container runtimes.

packaging.version is no help here: it refuses `6.10.6-401.asahi.fc40.aarch64+16k` and its like, all of them real.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from debian.debian_support import Version

from labs.errors import BadInput

# One token of a suffix: numbers are newer than words, numbers compare as numbers. Prefixes are older than what they
# begin, which is RHEL's order: 693.el7 < 693.1.1.el7 < 1127.19.1.el7, because `el` is a word where `1` is a number.
Token = tuple[bool, int, str]

UNKNOWN = "unknown"
FINAL = 1 << 30  # stands where a release candidate has its number: a final release is newer than any candidate


def tokens(suffix: str) -> tuple[Token, ...]:
    """A distribution's suffix as comparable tokens.

    >>> tokens("+deb13") < tokens("+deb13.1")
    True
    """
    parts = re.findall(r"\d+|[A-Za-z]+", suffix)
    return tuple((part.isdigit(), int(part) if part.isdigit() else 0, part) for part in parts)


def _numbers(dotted: str) -> tuple[int, ...]:
    """`6.1` and `6.1.0` are the same base."""
    found = tuple(int(part) for part in dotted.split("."))
    return found + (0,) * (3 - len(found))


@dataclass(frozen=True, order=True)
class KernelRelease:
    """What `uname -r` says, ordered oldest first; equal keys are told apart by their text, so the order is total."""

    key: tuple[tuple[int, ...], int, tuple[Token, ...]] = field(repr=False)  # base, candidate or FINAL, suffix
    text: str

    @classmethod
    def parse(cls, text: str) -> KernelRelease:
        """Read a release such as `6.6-rc3`, `6.12.90+deb13-amd64` or `3.10.0-1127.19.1.el7`; BadInput if it is none."""
        text = text.strip()
        found = re.fullmatch(r"(\d+(?:\.\d+)+)(?:[-~]rc(\d+))?(\S*)", text)
        if not found:
            raise BadInput(f"not a kernel release: {text!r}")
        base, candidate, suffix = found.groups()
        return cls((_numbers(base), int(candidate) if candidate else FINAL, tokens(suffix)), text)

    @property
    def line(self) -> str:
        """The stable line, as `6.1`."""
        return "{}.{}".format(*self.key[0])

    @property
    def upstream(self) -> tuple[int, ...] | None:
        """The kernel.org version that it was built from, or None where the name does not tell.

        kernel.org never writes `.0`: a release that does (`6.1.0-57-cloud-amd64`, `3.10.0-693.el7`) carries an ABI
        number of its distribution, and the package version must be asked instead (`upstream_of`).
        """
        return None if re.match(r"\d+\.\d+\.0", self.text) else self.key[0]


def debian_version_key(package_version: str) -> Version:
    """Sort key of Debian package versions: dpkg's own order, `~` before nothing."""
    return Version(package_version)


def upstream_of(package_version: str) -> tuple[int, ...]:
    """The upstream numbers in a Debian package version; a release candidate counts as the version it leads to.

    >>> upstream_of("6.1.192-3"), upstream_of("6.12.90-2~bpo12+1"), upstream_of("7.3~rc7-1~exp1")
    ((6, 1, 192), (6, 12, 90), (7, 3, 0))
    """
    found = re.match(r"(?:\d+:)?(\d+(?:\.\d+)*)", package_version)
    if not found:
        raise BadInput(f"not a Debian package version: {package_version!r}")
    return _numbers(found[1])


def in_range(upstream: tuple[int, ...], low: str, high: str) -> bool:
    """Whether `low <= upstream < high`; an empty bound is open.

    A defect that stable lines lost at different points has one range per line: `("6.1.129", "6.1.192")` holds for no
    6.12 kernel, `("5.14", "")` holds for all that came after.

    >>> in_range((6, 1, 190), "6.1.129", "6.1.192"), in_range((6, 1, 192), "6.1.129", "6.1.192")
    (True, False)
    """
    return (not low or _numbers(low) <= upstream) and (not high or upstream < _numbers(high))


@dataclass(frozen=True, order=True)
class RuntimeVersion:
    """What `runc --version` or `crun --version` says of the program itself; `unknown` where it does not say."""

    key: tuple[tuple[int, ...], int, bool, tuple[Token, ...]] = field(repr=False)  # base, candidate, +dev, vendor
    name: str
    version: str  # as `1.2.0-rc.3`, without the vendor's suffix
    vendor: str  # as `+ds1`: what a distribution appended
    commit: str  # a bare hash is cut to 8 digits, as in `git log --oneline`
    features: tuple[str, ...]  # what crun lists with a plus
    dev: bool
    dirty: bool

    @classmethod
    def parse(cls, output: str) -> RuntimeVersion:
        """Read the whole output of `--version`.

        Only the first line names the program's version: builds without one print `runc version spec: 1.0.1`
        (moby/moby#38709), and 1.0.1 is then the version of the OCI specification.
        """
        lines = [line.strip() for line in output.strip().splitlines()] or [""]
        fields = dict(line.split(": ", 1) for line in lines[1:] if ": " in line)
        commit = fields.get("commit", "") or UNKNOWN
        words = re.fullmatch(r"(\S+) version (\S*)(.*)", lines[0])
        found = _RUNTIME.fullmatch(words[2]) if words else None
        base, candidate, dev, vendor = found.groups("") if found else ("", "", "", "")
        return cls(
            key=(
                _numbers(base) if base else (),  # unknown sorts before all that is known
                int(re.sub(r"\D", "", candidate)) if candidate else FINAL,
                bool(dev),
                tokens(vendor),
            ),
            name=words[1] if words else UNKNOWN,
            version=base + candidate or UNKNOWN,
            vendor=vendor.removesuffix("-dirty"),
            commit=commit[:8] if re.fullmatch(r"[0-9a-f]{40}", commit) else commit,
            features=tuple(word[1:] for line in lines for word in line.split() if line[0] == "+" and word[0] == "+"),
            dev=bool(dev),
            dirty=vendor.endswith("-dirty") or commit.endswith("-dirty"),
        )


# base, release candidate (-rc93, -rc.3, Debian's ~rc6), development mark, vendor
_RUNTIME = re.compile(r"v?(\d+(?:\.\d+)+)([-~]rc\.?\d+)?([-+]dev)?([-+~.].*)?")
