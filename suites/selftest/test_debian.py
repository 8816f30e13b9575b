"""The archive source: the machine's mirror, the lists, and what happens offline. No network, no apt."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from pathlib import Path

import pytest

from labs.errors import BadInput, LabError
from labs.source import debian
from labs.source.debian import Archive, Mirror, Package, keyring, machine_mirror
from labs.store import Store

DEBIAN, SECURITY = "http://mirror.example/debian", "http://mirror.example/debian-security"
KEY = "/usr/share/keyrings/debian-archive-keyring.gpg"
ONE_LINE = f"""
# deb http://commented.example/debian bookworm main
deb-src http://source.example/debian bookworm main
deb [arch=amd64 signed-by={KEY}] {DEBIAN}/ bookworm main contrib # the archive
\tdeb  {SECURITY}   bookworm-security   main
deb {DEBIAN} bookworm-updates main
"""
DEB822 = f"""# comment
Types: deb deb-src
URIs: {DEBIAN} http://second.example/debian
Suites: trixie trixie-updates
# http://snapshot.example/debian
Components: main contrib
Signed-By: {KEY}

Types: deb
URIs: {SECURITY}/
Suites: trixie-security
Components: main
Signed-By: {KEY}
"""
VENDORS = {
    "a-vendor.list": "deb [signed-by=/etc/apt/keyrings/vendor.gpg] https://vendor.example/linux/debian bookworm main\n",
    "browser.list": "deb [arch=amd64] https://dl.browser.example/deb/ stable main\n",
    "containers.list": "deb https://containers.example/linux/debian bookworm stable\n",
    "js.sources": "Types: deb\nURIs: https://js.example/debian\nSuites: sid\nComponents: main\nSigned-By:\n ---PGP\n",
    "flat.list": "deb https://flat.example/debian ./\ndeb cdrom:[Debian GNU/Linux 12 _x_]/ bookworm main\n",
    "latin.list": "# für alle\ndeb https://pg.example/apt bookworm-pgdg main\n",
    "backup.list.save": "deb http://old.example/debian bookworm main\n",
}


@pytest.fixture(autouse=True)
def no_mirror_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LABS_DEBIAN_MIRROR", raising=False)


def etc(root: Path, files: dict[str, str]) -> Path:
    (root / "sources.list.d").mkdir(exist_ok=True)
    for name, text in files.items():
        (root / ("" if name == "sources.list" else "sources.list.d") / name).write_text(text, encoding="latin-1")
    return root


@pytest.mark.parametrize(
    "files",
    [
        {"sources.list": ONE_LINE},
        {"debian.list": ONE_LINE},
        {"debian.sources": DEB822},
        {"sources.list": ONE_LINE, **VENDORS},
        {"z.sources": DEB822, **VENDORS},
        {"z.sources": DEB822.replace(f"Signed-By: {KEY}\n", ""), **VENDORS},
        {"debian.sources": DEB822.replace("Types", "Enabled: no\nTypes").replace(DEBIAN, "x"), "z.list": ONE_LINE},
    ],
    ids=["sources.list", "list", "deb822", "with vendors", "deb822 with vendors", "without keys", "disabled"],
)
def test_the_machines_mirror(tmp_path: Path, files: dict[str, str]) -> None:
    assert machine_mirror(etc(tmp_path, files)) == Mirror(DEBIAN, SECURITY)


@pytest.mark.parametrize("word", ["no", "No", "false", "off", "disable", "without"])
def test_disabled_stanzas(tmp_path: Path, word: str) -> None:
    with pytest.raises(LabError, match="no Debian archive"):
        machine_mirror(etc(tmp_path, {"x.sources": DEB822.replace("Types", f"Enabled: {word}\nTypes")}))


@pytest.mark.parametrize("word", ["yes", "true", "on"])
def test_enabled_stanzas(tmp_path: Path, word: str) -> None:
    text = DEB822.replace("Types", f"Enabled: {word}\nTypes")
    assert machine_mirror(etc(tmp_path, {"x.sources": text})).main == DEBIAN


@pytest.mark.parametrize(
    "files",
    [{}, VENDORS, {"sources.list": "deb http://ubuntu.example/ubuntu noble main universe\n"}, {"x.sources": ""}],
    ids=["nothing", "vendors", "ubuntu", "empty"],
)
def test_no_debian_archive_is_told_with_the_mend(tmp_path: Path, files: dict[str, str]) -> None:
    with pytest.raises(LabError, match="no Debian archive in this machine's apt sources; set LABS_DEBIAN_MIRROR"):
        machine_mirror(etc(tmp_path, files))


def test_a_mirror_of_an_odd_name_is_taken_if_there_is_no_better(tmp_path: Path) -> None:
    files = {"sources.list": "deb http://mirror.example/pub bookworm main\n"}
    assert machine_mirror(etc(tmp_path, files)) == Mirror("http://mirror.example/pub", "")
    files |= {"z.list": ONE_LINE}
    assert machine_mirror(etc(tmp_path, files)).main == DEBIAN


@pytest.mark.parametrize(
    "given, security",
    [
        (f"{DEBIAN}/", SECURITY),
        (DEBIAN, SECURITY),
        ("http://mirror.example/deb", ""),
        ("file:/srv/debian", "file:/srv/debian-security"),
    ],
)
def test_a_mirror_that_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, security: str) -> None:
    monkeypatch.setenv("LABS_DEBIAN_MIRROR", given)
    assert machine_mirror(etc(tmp_path, {"sources.list": ONE_LINE})) == Mirror(given.rstrip("/"), security)


def stanza(name: str, version: str, **more: str) -> str:
    fields = {
        "Package": name,
        "Version": version,
        "Size": "123",
        "SHA256": "ab" * 32,
        "Description": "x\n more",
        **more,
    }
    return "".join(f"{key}: {value}\n" for key, value in fields.items())


LISTS = {
    "bookworm": stanza("runc", "1.1.5+ds1-1", Depends="libc6 (>= 2.34),\n libseccomp2")
    + "\n" + stanza("runc-doc", "1") + "\n" + stanza("linux-image-6.1.0-57-cloud-amd64", "6.1.192-3"),
    "sid": stanza("linux-modules-7.2.12+deb14-cloud-amd64", "7.2.12-1") + "\n" + stanza("bash", "5") + "\n\n",
    "trixie": "",
}  # fmt: skip


class FakeApt(Archive):
    """apt-get's part played by files of a folder; `online` tells whether an update succeeds."""

    def __init__(self, root: Path) -> None:
        super().__init__(Store(root))
        self.online = True
        self.asked: list[str] = []
        self.lists = LISTS
        self.deb = b"a package"

    def sources(self, suites: tuple[str, ...]) -> str:
        return f"deb {DEBIAN} {suites[0]} main\n"

    def _apt(self, *arguments: str, cwd: Path | None = None) -> str:
        self.asked.append(arguments[0])
        if arguments[0] == "update" and not self.online:
            raise LabError("the archive did not give it: E: no route")
        if arguments[0] == "download" and cwd is not None:
            (cwd / "runc_1.1.5.deb").write_bytes(self.deb)
        if arguments[0] == "indextargets":
            for suite, text in self.lists.items():
                (self.root / suite).write_text(text)
            return "".join(f"{suite}|{self.root / suite}\n" for suite in self.lists)
        return ""


@pytest.fixture
def apt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeApt:
    helper = tmp_path / "apt-helper"
    helper.write_text('#!/bin/sh\n[ "$1" = cat-file ] && exec cat "$2"\n')
    helper.chmod(0o755)
    monkeypatch.setattr(debian, "APT_HELPER", str(helper))
    return FakeApt(tmp_path / "store")


def again(apt: FakeApt, *, age: float = 0, online: bool = True) -> FakeApt:
    """Another process, when the lists are of that age in seconds."""
    index = apt.root / "index.json"
    if index.exists():
        os.utime(index, (time.time() - age,) * 2)
    other = FakeApt(apt.store.root)
    other.online = online
    return other


def names(packages: list[Package]) -> list[str]:
    return [package.name for package in packages]


def test_the_lists_are_read_with_what_the_lab_may_ask_for(apt: FakeApt) -> None:
    assert names(apt.packages()) == [
        "runc", "linux-image-6.1.0-57-cloud-amd64", "linux-modules-7.2.12+deb14-cloud-amd64",
    ]  # fmt: skip
    runc = apt.packages()[0]
    assert (runc.version, runc.suite, runc.size, runc.sha256) == ("1.1.5+ds1-1", "bookworm", 123, "ab" * 32)
    assert "libseccomp2" in runc.depends
    assert apt.asked == ["update", "indextargets"]


def test_the_lists_are_asked_for_once_a_day(apt: FakeApt) -> None:
    first = apt.packages()
    young = again(apt, age=debian.MAX_AGE - 60)
    assert young.packages() == first and young.asked == []
    old = again(apt, age=debian.MAX_AGE + 60)
    assert old.packages() == first and old.asked == ["update", "indextargets"]
    assert again(apt).packages() == first


def test_they_can_be_asked_for_now(apt: FakeApt) -> None:
    apt.packages()
    apt.lists = {"sid": stanza("crun", "1.21-1")}
    apt.refresh()
    assert names(apt.packages()) == ["crun"]


def test_offline_the_old_lists_are_used_and_it_says_so(apt: FakeApt, caplog: pytest.LogCaptureFixture) -> None:
    first = apt.packages()
    other = again(apt, age=10 * debian.MAX_AGE, online=False)
    with caplog.at_level(logging.WARNING, "labs"):
        assert other.packages() == first
    assert "the archive cannot be asked (the archive did not give it: E: no route); its lists of 20" in caplog.text


def test_offline_without_lists_is_an_error(apt: FakeApt) -> None:
    with pytest.raises(LabError, match="E: no route"):
        again(apt, online=False).packages()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"packages": [{"name": "x"}]}', '{"packages": [{"unknown": 1}]}'])
def test_lists_of_another_version_of_the_lab_are_read_anew(apt: FakeApt, text: str) -> None:
    first = apt.packages()
    (apt.root / "index.json").write_text(text)
    assert again(apt).packages() == first
    (apt.root / "index.json").write_text(text)
    with pytest.raises(LabError, match="E: no route"):
        again(apt, online=False).packages()


@pytest.mark.parametrize(
    "odd",
    [
        {"name": "-oDir::Bin::Methods=/tmp/x"},
        {"version": "1 -y"},
        {"suite": "sid main\ndeb-src [trusted=yes] http://x.example"},
        {"name": 3},
    ],
)
def test_lists_that_no_lab_saved(apt: FakeApt, tmp_path: Path, odd: dict[str, object]) -> None:
    """They lie in a run's folder, which may come from elsewhere; apt gets their words."""
    apt.packages()
    told = json.loads((apt.root / "index.json").read_text())
    told["packages"][0] |= odd
    (tmp_path / "lists").write_text(json.dumps(told))
    with pytest.raises(LabError, match="is not of this version of the lab"):
        Archive.as_of(apt.store, tmp_path / "lists")


def test_a_package_is_fetched_once(apt: FakeApt) -> None:
    package = Package("runc", "1.1.5", "bookworm", hashlib.sha256(apt.deb).hexdigest(), len(apt.deb), "")
    assert apt.fetch(package).read_bytes() == apt.deb
    assert again(apt).fetch(package) == apt.fetch(package)
    assert apt.asked == ["download"]


def test_another_file_than_the_lists_tell_is_refused(apt: FakeApt) -> None:
    package = Package("runc", "1.1.5", "bookworm", "00" * 32, 9, "")
    with pytest.raises(LabError, match=r"runc 1.1.5: downloaded file is not what the archive lists"):
        apt.fetch(package)
    assert apt.store.entries() == [] and not list((apt.store.root / "tmp").iterdir())


def test_sources_name_the_archives_key_and_leave_out_what_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(debian, "keyring", lambda: KEY)
    monkeypatch.setattr(debian, "machine_mirror", lambda: Mirror(DEBIAN, SECURITY))
    archive = Archive(Store(tmp_path))
    both = archive.sources(("bookworm", "bookworm-security"))
    assert (
        both
        == f"deb [signed-by={KEY}] {DEBIAN} bookworm main\ndeb [signed-by={KEY}] {SECURITY} bookworm-security main\n"
    )
    monkeypatch.setattr(debian, "machine_mirror", lambda: Mirror(DEBIAN, ""))
    assert archive.sources(("bookworm", "bookworm-security")) == both.splitlines(keepends=True)[0]


def test_the_machines_apt_is_left_alone(apt: FakeApt) -> None:
    apt.packages()
    lines = (apt.root / "apt.conf").read_text().splitlines()
    for key in ("Dir::State", "Dir::State::lists", "Dir::State::status", "Dir::Cache", "Dir::Etc::SourceList"):
        (line,) = [line for line in lines if line.startswith(f"{key} ")]
        assert str(apt.root) in line
    assert 'Dir::Etc::SourceParts "/dev/null";' in lines


def test_a_missing_keyring_names_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debian.catalog, "read", lambda name: {"keyring": "/no/such.gpg"})
    with pytest.raises(BadInput, match=r"/no/such.gpg is missing; apt-get install debian-archive-keyring"):
        keyring()


def test_the_index_is_replaced_whole(apt: FakeApt) -> None:
    apt.packages()
    assert len(json.loads((apt.root / "index.json").read_text())["packages"]) == 3
    assert not list(apt.root.glob("*.part"))
