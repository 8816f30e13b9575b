"""Versions sort and read as their makers meant them; inputs are real strings, see data/C03 and data/C04."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

import pytest

from labs.errors import BadInput
from labs.version import KernelRelease, RuntimeVersion, debian_version_key, in_range, upstream_of

DATA = Path(__file__).parent / "data"
RELEASES = [line for line in (DATA / "C04-kernel-releases.txt").read_text().splitlines() if not line.startswith("#")]
RHEL = ["3.10.0-693.el7", "3.10.0-693.1.1.el7", "3.10.0-1127.19.1.el7"]
CANDIDATES = ["6.6-rc3", "6.6-rc10", "6.6", "6.6.0-1-amd64", "6.6.0-2-amd64", "6.6.0-10-amd64", "6.6.1"]
DEBIAN = ["6.1.190-1", "6.1.192-1", "6.1.192-3", "6.12.90-2~bpo12+1", "6.12.90-2", "7.3~rc7-1~exp1", "7.3-1", "7.3.4-1"]


@pytest.mark.parametrize("oldest_first", [RELEASES, RHEL, CANDIDATES], ids=["C04", "rhel", "candidates"])
def test_kernel_releases_sort_oldest_first(oldest_first: list[str]) -> None:
    shuffled = random.Random(1).sample(oldest_first, len(oldest_first))
    assert [release.text for release in sorted(map(KernelRelease.parse, shuffled))] == oldest_first
    assert all(KernelRelease.parse(old) < KernelRelease.parse(new) for old, new in pairwise(oldest_first))


@pytest.mark.parametrize(
    "text, line, upstream",
    [
        ("6.1.192", "6.1", (6, 1, 192)),
        ("6.6", "6.6", (6, 6, 0)),
        ("6.6-rc3", "6.6", (6, 6, 0)),
        ("6.12.90+deb13.1-amd64", "6.12", (6, 12, 90)),
        ("6.10.6-401.asahi.fc40.aarch64+16k", "6.10", (6, 10, 6)),
        ("6.1.0-57-cloud-amd64", "6.1", None),
        ("3.10.0-693.el7", "3.10", None),
        ("5.15.0-91-generic", "5.15", None),
        ("4.14.355.amzn2\n", "4.14", (4, 14, 355)),
    ],
)
def test_kernel_line_and_upstream(text: str, line: str, upstream: tuple[int, ...] | None) -> None:
    release = KernelRelease.parse(text)
    assert (release.line, release.upstream) == (line, upstream)


@pytest.mark.parametrize("text", ["", "6", "linux-6.1", "v6.1", "6.1 generic", "unknown"])
def test_what_is_no_release_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="not a kernel release"):
        KernelRelease.parse(text)


def test_debian_order_and_upstream() -> None:
    assert sorted(random.Random(2).sample(DEBIAN, len(DEBIAN)), key=debian_version_key) == DEBIAN
    assert upstream_of("6.1.192-3") == (6, 1, 192)
    assert upstream_of("6.12.90-2~bpo12+1") == (6, 12, 90)
    assert upstream_of("7.3~rc7-1~exp1") == (7, 3, 0)
    assert upstream_of("1:1.1.15+ds1-2+b4") == (1, 1, 15)
    with pytest.raises(BadInput):
        upstream_of("trixie")


@pytest.mark.parametrize(
    "package, low, high, inside",
    [
        ("6.1.129-1", "6.1.129", "6.1.192", True),
        ("6.1.190-1", "6.1.129", "6.1.192", True),
        ("6.1.192-1", "6.1.129", "6.1.192", False),
        ("6.1.128-1", "6.1.129", "6.1.192", False),
        ("6.12.43-1", "6.1.129", "6.1.192", False),
        ("7.3.4-1", "5.14", "", True),
        ("5.10.1-1", "5.14", "", False),
        ("5.14~rc1-1", "5.14", "", True),
        ("6.6.3-1", "", "6.6.4", True),
    ],
)
def test_ranges_are_half_open(package: str, low: str, high: str, inside: bool) -> None:
    assert in_range(upstream_of(package), low, high) is inside


def _samples() -> list[tuple[str, dict[str, str]]]:
    """(program output, expected fields) of each block of C03; words after the fields are a person's remark."""
    blocks = [block.splitlines() for block in (DATA / "C03-runtime-versions.txt").read_text().split("\n\n")]
    samples = []
    for block in blocks:
        output = [line for line in block if not line.startswith(("#", "EXPECT"))]
        expected = next(line for line in block if line.startswith("EXPECT")).partition(";")[0]
        samples.append(("\n".join(output), dict(word.split("=") for word in expected.split() if "=" in word)))
    return samples


@pytest.mark.parametrize("output, expected", _samples())
def test_runtime_versions(output: str, expected: dict[str, str]) -> None:
    got = RuntimeVersion.parse(output)
    told = {
        "name": got.name,
        "version": got.version,
        "vendor": got.vendor,
        "commit": got.commit,
        "features": ",".join(got.features),
        "dev": "yes" if got.dev else "no",
        "dirty": "yes" if got.dirty else "no",
    }
    assert {name: told[name] for name in expected} == expected
    assert told["dev"] == expected.get("dev", "no") and told["dirty"] == expected.get("dirty", "no")


def test_runtime_order() -> None:
    oldest_first = [
        "runc version unknown",
        "runc version 1.0.0~rc6+dfsg1",
        "runc version 1.0.0-rc93",
        "runc version 1.1.5+ds1",
        "runc version 1.1.12-0ubuntu2~22.04.1",
        "runc version 1.1.15+ds1",
        "runc version 1.2.0-rc.3",
        "runc version 1.2.0-rc.3+dev",
        "runc version 1.2.0",
        "runc version 1.2.0+dev",
        "runc version 1.10.0",
    ]
    parsed = [RuntimeVersion.parse(text) for text in oldest_first]
    assert sorted(random.Random(3).sample(parsed, len(parsed))) == parsed
    assert all(old < new for old, new in pairwise(parsed))
    assert RuntimeVersion.parse("runc version 1.1.5+ds2") < RuntimeVersion.parse("runc version 1.1.5+ds10")
    released, next_one = "runc version 1.2.0\ncommit: v1.2.0-0-gff", "runc version 1.2.0+dev\ncommit: v1.2.0-9-g00"
    assert RuntimeVersion.parse(released) < RuntimeVersion.parse(next_one.replace("v1.2.0-9", "a"))


@pytest.mark.parametrize("output", ["", "\n", "sh: runc: not found", "runc version", "runc version v"])
def test_a_runtime_that_does_not_say_is_unknown(output: str) -> None:
    assert RuntimeVersion.parse(output).version == "unknown"


def test_odd_but_real_runtime_words() -> None:
    dirty = RuntimeVersion.parse("crun version 1.14.4-dirty")
    assert dirty.dirty and dirty.vendor == ""
    assert RuntimeVersion.parse("runc version 1.1.12-0ubuntu2~22.04.1").vendor == "-0ubuntu2~22.04.1"
    assert RuntimeVersion.parse("crun version UNKNOWN\ncommit: \nspec: 1.0.0").commit == "unknown"
