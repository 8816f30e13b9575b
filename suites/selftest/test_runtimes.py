"""Runtimes by the names that users type, and the image that each runs in."""

from __future__ import annotations

from pathlib import Path

import pytest
from archive import FakeArchive

import labs.build.runtime as runtime_building
from labs.command import Completed
from labs.errors import BadInput, CommandFailed, LabError
from labs.source.runtimes import archive_runtimes, find_runtime, host_image, upstream_text
from labs.store import Store


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeArchive:
    monkeypatch.setattr("labs.source.runtimes.host_image", lambda: "bookworm")
    return FakeArchive(tmp_path)


def test_every_runtime_once_with_its_image(archive: FakeArchive) -> None:
    assert [(r.name, r.version, r.image) for r in archive_runtimes(archive)] == [
        ("crun", "1.8.1-1+deb12u1", "bookworm"),
        ("crun", "1.21-1", "trixie"),
        ("crun", "1.21-1", "sid"),
        ("runc", "1.1.5+ds1-1", "bookworm"),
        ("runc", "1.1.5+ds1-1+deb12u1", "bookworm"),
        ("runc", "1.1.15+ds1-2", "trixie"),
        ("runc", "1.1.15+ds1-2+b4", "sid"),
        ("runc", "1.3.3+ds1-1", "experimental"),
    ]


@pytest.mark.parametrize(
    "asked, name, version, image",
    [
        ("runc", "runc", "1.1.5+ds1-1+deb12u1", "bookworm"),
        ("crun", "crun", "1.8.1-1+deb12u1", "bookworm"),
        ("runc@1.1.5", "runc", "1.1.5+ds1-1+deb12u1", "bookworm"),
        ("runc@1.1.5+ds1-1", "runc", "1.1.5+ds1-1", "bookworm"),
        ("runc@1.1.15", "runc", "1.1.15+ds1-2+b4", "sid"),
        ("runc@1.1.15+ds1-2", "runc", "1.1.15+ds1-2", "trixie"),
        ("runc@1.3.3", "runc", "1.3.3+ds1-1", "experimental"),
        ("crun@1.21", "crun", "1.21-1", "trixie"),
    ],
)
def test_names(archive: FakeArchive, asked: str, name: str, version: str, image: str) -> None:
    runtime = find_runtime(asked, archive)
    assert (runtime.asked, runtime.name, runtime.version, runtime.image) == (asked, name, version, image)
    assert runtime.package is not None and runtime.package.version == version and runtime.path is None


@pytest.mark.parametrize("image, version", [("trixie", "1.1.15+ds1-2"), ("experimental", "1.3.3+ds1-1")])
def test_a_bare_name_is_that_of_the_hosts_suite(
    archive: FakeArchive, monkeypatch: pytest.MonkeyPatch, image: str, version: str
) -> None:
    monkeypatch.setattr("labs.source.runtimes.host_image", lambda: image)
    assert (find_runtime("runc", archive).version, find_runtime("runc", archive).image) == (version, image)


def test_a_bare_name_works_where_two_suites_share_the_package(
    archive: FakeArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("labs.source.runtimes.host_image", lambda: "sid")
    assert (find_runtime("crun", archive).version, find_runtime("crun", archive).image) == ("1.21-1", "sid")


@pytest.mark.parametrize(
    "asked", ["", "runc@", "runc@9", "runc@1.1", "runc@ds1", "crun@1.1.5", "youki", "runc 1.1.5", "@1.1.5", "RUNC"]
)
def test_what_is_not_there_names_those_that_are(archive: FakeArchive, asked: str) -> None:
    with pytest.raises(BadInput) as caught:
        find_runtime(asked, archive)
    assert str(caught.value).startswith(
        f"runtime {asked}: not in the archive; those that exist: crun@1.8.1, crun@1.21,"
    )


def test_every_name_that_is_offered_is_found(archive: FakeArchive) -> None:
    with pytest.raises(BadInput) as caught:
        find_runtime("youki", archive)
    offered = caught.value.mend.removeprefix("those that exist: ").split(", ")[:-1]
    assert len(offered) == len(set(offered))
    for asked in offered:
        assert find_runtime(asked, archive).asked == asked


@pytest.mark.parametrize("name, kind", [("runc", "runc"), ("crun-1.21", "crun"), ("my-runtime", "runc")])
def test_a_file(archive: FakeArchive, tmp_path: Path, name: str, kind: str) -> None:
    (tmp_path / name).write_bytes(b"\x7fELF")
    with pytest.raises(BadInput, match="no program"):  # as long as it cannot be executed
        find_runtime(f"path:{tmp_path / name}", archive)
    (tmp_path / name).chmod(0o755)
    runtime = find_runtime(f"path:{tmp_path / name}", archive)
    assert (runtime.name, runtime.image, runtime.path, runtime.package) == (kind, host_image(), tmp_path / name, None)


@pytest.mark.parametrize("asked", ["path:", "path:/no/such", "path:/usr", "path:~no-such-user/x"])
def test_a_file_that_is_not_there(archive: FakeArchive, asked: str) -> None:
    with pytest.raises(BadInput, match=f"^runtime {asked}: no such file$"):
        find_runtime(asked, archive)


@pytest.mark.parametrize(
    "os_release, image",
    [({"VERSION_CODENAME": "trixie"}, "trixie"), ({"VERSION_CODENAME": "noble"}, "bookworm"), ({}, "bookworm")],
)
def test_the_hosts_image(monkeypatch: pytest.MonkeyPatch, os_release: dict[str, str], image: str) -> None:
    monkeypatch.setattr("platform.freedesktop_os_release", lambda: os_release)
    assert host_image() == image


def test_a_host_that_does_not_say_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> None:
        raise OSError("no os-release")

    monkeypatch.setattr("platform.freedesktop_os_release", absent)
    assert host_image() == "bookworm"


@pytest.mark.parametrize(
    "version, upstream",
    [("1.1.5+ds1-1+deb12u1", "1.1.5"), ("1.2.0~rc1-1", "1.2.0"), ("1.21-1", "1.21"), ("1.8", "1.8")],
)
def test_upstream_text(version: str, upstream: str) -> None:
    assert upstream_text(version) == upstream


def test_a_module_that_does_not_exist_is_told_in_gos_words(
    archive: FakeArchive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(argv: list[str], *_: object, **__: object) -> Completed:
        if argv[1] == "version":
            return Completed((), 0, "go1.19", "")
        raise CommandFailed("go ended with 1", evidence="go: first\ngo: unknown revision v9.9.9\n")

    monkeypatch.setattr(runtime_building, "run", run)
    with pytest.raises(LabError, match=r"runc@v9\.9\.9 cannot be fetched: go: unknown revision v9\.9\.9; "):
        runtime_building.runtime_tree(Store(tmp_path / "store"), archive, find_runtime("runc@v9.9.9", archive))
