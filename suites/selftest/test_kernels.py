"""Kernels by the names that users type, over a small archive with both layouts of packages."""

from __future__ import annotations

from pathlib import Path

import pytest
from archive import ROWS, FakeArchive

from labs.errors import BadInput
from labs.source.debian import Package
from labs.source.kernels import archive_kernels, find_kernel

VERSIONS = [
    "6.1.190-1",
    "6.1.192-3",
    "6.12.57-1~bpo12+1",
    "6.12.57-1",
    "6.12.107-1",
    "7.0.13-1~bpo13+1",
    "7.2.12-1",
    "7.2.13-1",
    "7.3~rc7-1~exp1",
    "7.3.4-1",
    "7.4~rc1-1~exp1",
]


@pytest.fixture
def archive(tmp_path: Path) -> FakeArchive:
    return FakeArchive(tmp_path)


def names(packages: tuple[Package, ...]) -> list[str]:
    return [package.name.removeprefix("linux-").split("-")[0] for package in packages]


def test_every_kernel_once_oldest_first(archive: FakeArchive) -> None:
    assert [kernel.version for kernel in archive_kernels(archive)] == VERSIONS
    shuffled = FakeArchive(archive.store.root, sorted(ROWS, key=lambda row: row.sha256[::-1]))
    assert [kernel.version for kernel in archive_kernels(shuffled)] == VERSIONS


@pytest.mark.parametrize(
    "asked, version, release, parts",
    [
        ("6.1", "6.1.192-3", "6.1.0-57-cloud-amd64", ["image"]),
        ("6.1.190", "6.1.190-1", "6.1.0-55-cloud-amd64", ["image"]),
        ("6.1.192-3", "6.1.192-3", "6.1.0-57-cloud-amd64", ["image"]),
        ("6.12", "6.12.107-1", "6.12.107+deb13-cloud-amd64", ["image"]),
        ("6.12.57", "6.12.57-1", "6.12.57+deb13-cloud-amd64", ["image"]),
        ("6.12.57-1~bpo12+1", "6.12.57-1~bpo12+1", "6.12.57+deb12-cloud-amd64", ["image"]),
        ("7.0", "7.0.13-1~bpo13+1", "7.0.13+deb13-cloud-amd64", ["image", "binary"]),
        ("7.2", "7.2.12-1", "7.2.12+deb14-cloud-amd64", ["image", "binary", "modules", "base"]),
        ("7.3", "7.3.4-1", "7.3.4+deb14-cloud-amd64", ["image", "binary", "modules", "base"]),
        ("7.3~rc7-1~exp1", "7.3~rc7-1~exp1", "7.3-rc7-cloud-amd64", ["image", "binary", "modules", "base"]),
    ],
)
def test_names(archive: FakeArchive, asked: str, version: str, release: str, parts: list[str]) -> None:
    kernel = find_kernel(asked, archive)
    assert (kernel.asked, kernel.version, kernel.release, names(kernel.packages)) == (asked, version, release, parts)
    assert {package.version for package in kernel.packages} == {version}


def test_the_first_suite_listed_gives_the_package(archive: FakeArchive) -> None:
    assert find_kernel("6.1", archive).suite == "bookworm-security"


@pytest.mark.parametrize(
    "asked, nearest",
    [
        ("6.1.191", "nearest: 6.1.190-1, 6.1.192-3;"),
        ("6.1.500", "nearest: 6.1.192-3, 6.12.57-1~bpo12+1;"),
        ("6.5", "nearest: 6.1.192-3, 6.12.57-1~bpo12+1;"),
        ("5.10", "nearest: 6.1.190-1;"),
        ("99.1", "nearest: 7.3.4-1;"),
        ("6.1.192-4", "nearest: 6.1.190-1, 6.12.57-1~bpo12+1;"),
        ("7.3~rc9", "nearest: 7.2.13-1, 7.3~rc7-1~exp1;"),
    ],
)
def test_what_is_not_there_names_the_nearest(archive: FakeArchive, asked: str, nearest: str) -> None:
    with pytest.raises(BadInput) as caught:
        find_kernel(asked, archive)
    assert str(caught.value).startswith(f"kernel {asked}: not in the archive; {nearest}")
    assert str(caught.value).endswith("lines that exist: 6.1, 6.12, 7.0, 7.2, 7.3")


@pytest.mark.parametrize(
    "asked", ["", "6", "latest", "v6.1", "6.", ".1", "6.1*", "6.1 ", "tree:/src", "../x", "6.1.192-3 "]
)
def test_names_of_another_form_are_refused(archive: FakeArchive, asked: str) -> None:
    with pytest.raises(BadInput, match=r"not in the archive; .*lines that exist: 6.1, 6.12, 7.0, 7.2, 7.3"):
        find_kernel(asked, archive)


@pytest.mark.parametrize("asked", ["7.4", "7.4~rc1-1~exp1"])
def test_a_kernel_without_its_image_says_which_package_is_missing(archive: FakeArchive, asked: str) -> None:
    with pytest.raises(BadInput, match=r"the archive lists it without linux-binary-7.4-rc1-cloud-amd64; nearest: 7\."):
        find_kernel(asked, archive)


def test_only_a_missing_kernel_is_marked_so(archive: FakeArchive) -> None:
    missing = {kernel.version: kernel.missing for kernel in archive_kernels(archive) if kernel.missing}
    assert missing == {"7.4~rc1-1~exp1": "linux-binary-7.4-rc1-cloud-amd64"}


def test_a_kernel_without_modules_is_bare_and_taken_only_when_there_is_no_other(archive: FakeArchive) -> None:
    assert [kernel.version for kernel in archive_kernels(archive) if kernel.bare] == ["7.2.13-1", "7.4~rc1-1~exp1"]
    assert find_kernel("7.2", archive).version == "7.2.12-1"
    assert find_kernel("7.2.13", archive).bare
    assert [package.name for package in find_kernel("7.2.13", archive).packages] == [
        "linux-image-7.2.13+deb14-cloud-amd64",
        "linux-binary-7.2.13+deb14-cloud-amd64",
    ]


def test_an_empty_archive_refuses_every_name(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"kernel 6.1: not in the archive"):
        find_kernel("6.1", FakeArchive(tmp_path, []))


def test_a_file(archive: FakeArchive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bzImage").write_bytes(bytes(0x202) + b"HdrS")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for asked in (f"path:{tmp_path}/bzImage", "path:bzImage", "path:~/bzImage"):
        kernel = find_kernel(asked, archive)
        assert (kernel.asked, kernel.path, kernel.version) == (asked, tmp_path / "bzImage", "")
        assert kernel.packages == () and kernel.suite == ""


@pytest.mark.parametrize("asked", ["path:", "path:/no/such", "path:/usr", "path:~no-such-user/x"])
def test_a_file_that_is_not_there(archive: FakeArchive, asked: str) -> None:
    with pytest.raises(BadInput, match=f"^kernel {asked}: no such file$"):
        find_kernel(asked, archive)
