"""Packages of the Debian archive, through an apt root of the lab's own.

The machine's apt configuration tells which mirror to use; its lists, cache and status are never touched. apt checks
the archive's signatures when it fetches the lists, and each package against them.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from debian.deb822 import Deb822, Packages

from labs import catalog
from labs.command import run
from labs.deadline import Deadline
from labs.errors import BadInput, CommandFailed, LabError
from labs.store import Store, file_digest, remove_tree

log = logging.getLogger("labs")
T = TypeVar("T")

LISTS_SIZE = 150 * 2**20  # bytes, with what apt needs beside them while it unpacks
MAX_AGE = 24 * 3600  # seconds after which the lists are asked for anew
APT_HELPER = "/usr/lib/apt/apt-helper"
PLAIN = re.compile(r"[a-z0-9][A-Za-z0-9.+:~/-]*")  # a name, version or suite: no option of apt, no line of its sources
ALIASES = {"oldstable", "stable", "testing", "unstable"}
CODENAMES = {"bullseye", "bookworm", "trixie", "forky", "sid", *ALIASES}


@dataclass(frozen=True)
class Package:
    """One binary package of the archive, as its signed lists describe it."""

    name: str
    version: str
    suite: str
    sha256: str
    size: int  # bytes
    depends: str  # the control field as it stands


@dataclass(frozen=True)
class Mirror:
    """Where the archive is. `security` may be empty: then the security suites are left out."""

    main: str
    security: str


def machine_mirror(etc: Path = Path("/etc/apt")) -> Mirror:
    """The mirror that the machine's own sources name, or LABS_DEBIAN_MIRROR (for machines that are not Debian)."""
    given = os.environ.get("LABS_DEBIAN_MIRROR", "").rstrip("/")
    if given:
        return Mirror(given, re.sub(r"/debian$", "/debian-security", given) if given.endswith("/debian") else "")
    main = security = ""
    for source in sorted(_configured(etc), key=lambda source: source.doubt):
        pocket = source.suite.partition("-")[2]
        if source.doubt == 3:
            break
        if pocket.startswith("security"):
            security = security or source.uri
        elif not pocket:
            main = main or source.uri
    if not main:
        raise LabError(
            "no Debian archive in this machine's apt sources",
            mend="set LABS_DEBIAN_MIRROR to the address of a Debian mirror (ends in /debian)",
        )
    return Mirror(main, security)


@dataclass(frozen=True)
class _Source:
    """One repository of the machine's apt configuration; `signed_by` as it stands there, or empty."""

    uri: str
    suite: str
    components: str
    signed_by: str

    @property
    def doubt(self) -> int:
        """How unlikely it is to be Debian's archive; 3: it is not. Other vendors name their suites as Debian does: the
        key tells them apart, else the address, else that few of them use the names of releases."""
        codename = self.suite.partition("-")[0]
        if codename not in CODENAMES or "main" not in self.components.split():
            return 3
        if self.signed_by:
            return 0 if "debian-archive" in self.signed_by else 3
        return 1 if "debian" in self.uri else 2 if codename not in ALIASES else 3


def _configured(etc: Path) -> Iterator[_Source]:
    """Every enabled binary source, one-line and deb822 style (sources.list(5))."""
    for path in [etc / "sources.list", *sorted((etc / "sources.list.d").glob("*.list"))]:
        for line in path.read_text(errors="replace").splitlines() if path.exists() else []:
            match = re.match(r"\s*deb\s+(?:\[([^]]*)\]\s+)?(\S+)\s+(\S+)([^#]*)", line)
            if match:
                key = re.search(r"signed-by=(\S+)", match[1] or "", re.I)
                yield _Source(match[2].rstrip("/"), match[3], match[4], key[1] if key else "")
    for path in sorted((etc / "sources.list.d").glob("*.sources")):
        for stanza in Deb822.iter_paragraphs(path.read_text(errors="replace").splitlines()):
            enabled = stanza.get("Enabled", "yes").lower() not in ("no", "false", "without", "off", "disable")
            if "deb" in stanza.get("Types", "").split() and enabled:
                for uri, suite in itertools.product(stanza.get("URIs", "").split(), stanza.get("Suites", "").split()):
                    components, key = stanza.get("Components", ""), stanza.get("Signed-By", "").strip()
                    yield _Source(uri.rstrip("/"), suite, components, key)


class Archive:
    """The lab's view of the archive. Lists are fetched once a day at most, and used as they are when offline."""

    def __init__(self, store: Store, root: Path | None = None) -> None:
        self.store = store
        self.root = root or store.root / "apt"
        self._packages: list[Package] | None = None
        self._derived: tuple[list[Package] | None, dict[Callable[[Archive], Any], Any]] = (None, {})

    @classmethod
    def as_of(cls, store: Store, lists: Path) -> Archive:
        """The archive as it was when `lists` was saved, whatever has come or gone since."""
        archive = cls(store)
        archive._packages = _read_index(lists)
        if archive._packages is None:
            raise LabError(f"{lists} is not of this version of the lab", mend="start a new run")
        return archive

    def lists(self) -> bytes:
        """All packages as they are now, for `as_of`."""
        return _index(self.packages())

    def once(self, derive: Callable[[Archive], T]) -> T:
        """What `derive` makes of the packages, made once for as long as they stay as they are."""
        if self._derived[0] is not self._packages:
            self._derived = (self.packages(), {})
        kept = self._derived[1]
        if derive not in kept:
            kept[derive] = derive(self)
        made: T = kept[derive]
        return made

    def packages(self) -> list[Package]:
        """Every package that the lab may ask for, over all suites."""
        if self._packages is None:
            self.root.mkdir(exist_ok=True)
            index = self.root / "index.json"
            with self.store.lock("apt"):
                if _read_index(index) is None or time.time() - index.stat().st_mtime > MAX_AGE:
                    self._refresh(index)
                self._packages = _read_index(index) or []
        return self._packages

    def refresh(self) -> None:
        """Ask the archive now, whatever the age of the lists."""
        self.root.mkdir(exist_ok=True)
        with self.store.lock("apt"):
            self._refresh(self.root / "index.json")
        self._packages = None

    def sources(self, suites: tuple[str, ...]) -> str:
        """Lines of a sources.list for those suites, signed by the Debian archive's key only."""
        mirror = machine_mirror()
        table = catalog.read("archive")
        lines = []
        for suite in suites:
            uri = mirror.security if suite in table["security"] else mirror.main
            if uri:
                lines.append(f"deb [signed-by={keyring()}] {uri} {suite} main")
        return "\n".join(lines) + "\n"

    def fetch(self, package: Package) -> Path:
        """The package's .deb in the store. Its sha256 is the one of the signed lists."""

        def make(folder: Path) -> None:
            self._apt("download", f"{package.name}={package.version}", cwd=folder)
            debs = list(folder.glob("*.deb"))
            if [file_digest(deb) for deb in debs] != [package.sha256]:
                raise LabError(f"{package.name} {package.version}: downloaded file is not what the archive lists")
            debs[0].rename(folder / "package.deb")

        what = f"{package.name} {package.version} ({package.size / 1e6:.0f} MB, {package.suite})"
        recipe = {"name": package.name, "version": package.version, "sha256": package.sha256}
        return self.store.build("deb", recipe, make, what) / "package.deb"

    def fetch_source(self, package: Package) -> Path:
        """A folder with the package's source, as its .dsc lists it; apt compares every file with the signed lists."""
        version = re.sub(r"\+b\d+$", "", package.version)  # of a rebuild without a change

        def make(folder: Path) -> None:
            apart = Archive(self.store, folder / "apt")  # lists of sources are large, and seldom asked for
            apart._write_configuration(re.sub(r"^deb ", "deb-src ", self.sources((package.suite,)), flags=re.M))
            apart._apt("update", "-q", "-o", "APT::Update::Error-Mode=any")
            apart._apt("source", "--download-only", f"{package.name}={version}", cwd=folder)
            remove_tree(folder / "apt")

        recipe = {"name": package.name, "version": version, "suite": package.suite}
        return self.store.build("source", recipe, make, f"source of {package.name} {version} ({package.suite})")

    def _refresh(self, index: Path) -> None:
        table = catalog.read("archive")
        log.info("asking the Debian archive for its lists (%s)", ", ".join(table["main"] + table["security"]))
        try:
            self.store.need(LISTS_SIZE, "fetching the archive's lists")  # apt waits for ever on a full disk
            self._write_configuration(self.sources((*table["main"], *table["security"])))
            self._apt("update", "-q", "-o", "APT::Update::Error-Mode=any")
            packages = list(self._read_lists(re.compile(_wanted())))
        except LabError as error:
            if _read_index(index) is None:
                raise
            log.warning("the archive cannot be asked (%s); its lists of %s are used", error, _when(index))
            return
        part = index.with_suffix(".part")
        part.write_bytes(_index(packages))
        part.replace(index)

    def _write_configuration(self, sources: str) -> None:
        for folder in ("lists/partial", "cache/archives/partial", "state"):
            (self.root / folder).mkdir(parents=True, exist_ok=True)
        (self.root / "status").touch()
        (self.root / "sources.list").write_text(sources)
        settings = {
            "Dir::State": self.root / "state",
            "Dir::State::lists": self.root / "lists",
            "Dir::State::status": self.root / "status",
            "Dir::Cache": self.root / "cache",
            "Dir::Etc::SourceList": self.root / "sources.list",
            "Dir::Etc::SourceParts": "/dev/null",
            "Dir::Etc::Preferences": "/dev/null",
            "Dir::Etc::PreferencesParts": "/dev/null",
            "APT::Architecture": "amd64",
            "APT::Architectures": "amd64",
            "APT::Sandbox::User": "",  # the lab's folders are not readable by _apt
            "APT::Update::Post-Invoke-Success": "",
            "Acquire::Languages": "none",
            "Acquire::Retries": "2",
            "Acquire::http::Timeout": "20",
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled": "false",
            "Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled": "false",
        }
        lines = [f'{key} "{value}";' for key, value in settings.items()]
        (self.root / "apt.conf").write_text("#clear APT::Update::Post-Invoke-Success;\n" + "\n".join(lines) + "\n")

    def _apt(self, *arguments: str, cwd: Path | None = None) -> str:
        deadline = Deadline(900, f"apt-get {arguments[0]}")
        env = {"APT_CONFIG": str(self.root / "apt.conf")}
        try:
            return run(["apt-get", "-q", *arguments], deadline, cwd=cwd, env=env).out
        except CommandFailed as error:
            causes = [line for line in error.evidence.splitlines() if line.startswith("E:")] or [str(error)]
            raise LabError(
                f"the archive did not give it: {causes[0]}",
                mend="check the network and the machine's apt sources, then: labs kernels --available --refresh",
                evidence=error.evidence,
            ) from None

    def _read_lists(self, wanted: re.Pattern[str]) -> Iterator[Package]:
        listing = self._apt("indextargets", "--format", "$(RELEASE)|$(FILENAME)", "Created-By: Packages")
        env = {"APT_CONFIG": str(self.root / "apt.conf")}
        for row in listing.splitlines():
            suite, _, path = row.partition("|")
            text = run([APT_HELPER, "cat-file", path], Deadline(120, "reading the archive's lists"), env=env).out
            for stanza in text.split("\n\n"):
                name = stanza[len("Package: ") : stanza.find("\n")]
                if wanted.fullmatch(name):
                    yield _package(Packages(stanza), suite)


def _package(fields: Any, suite: str) -> Package:
    return Package(
        name=fields["Package"],
        version=fields["Version"],
        suite=suite,
        sha256=fields["SHA256"],
        size=int(fields["Size"]),
        depends=fields.get("Depends", ""),
    )


def _index(packages: Sequence[Package]) -> bytes:
    return json.dumps({"wanted": _wanted(), "packages": [asdict(package) for package in packages]}).encode()


def _read_index(index: Path) -> list[Package] | None:
    """None when there is none, or one that another version of the lab wrote, for other packages, or no lab did."""
    try:
        told = json.loads(index.read_text())
        found = [Package(**row) for row in told["packages"]]
        sound = all(PLAIN.fullmatch(part) for one in found for part in (one.name, one.version, one.suite))
        return found if sound and told["wanted"] == _wanted() else None
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _wanted() -> str:
    return str(catalog.read("archive")["packages"])


def _when(path: Path) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(path.stat().st_mtime))


def keyring() -> str:
    """Path of the Debian archive's public keys; BadInput tells how to get them."""
    path = str(catalog.read("archive")["keyring"])
    if not Path(path).exists():
        raise BadInput(f"{path} is missing", mend="apt-get install debian-archive-keyring")
    return path


def unpack(deb: Path, folder: Path) -> None:
    """Extract a package's files below `folder` (dpkg-deb keeps paths inside it)."""
    run(["dpkg-deb", "-x", str(deb), str(folder)], Deadline(300, f"unpacking {deb}"))
