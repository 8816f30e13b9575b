"""Kernels from source: config, compile and link in a sandbox; a series is built upon the objects of its base."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from labs.build.kconfig import Config, missing
from labs.build.kernel import KernelArtifacts, read_image
from labs.build.made import Made
from labs.build.sandbox import Sandbox, tail
from labs.command import run, which
from labs.deadline import Deadline
from labs.errors import BadInput, DoesNotCompile, LabError, SeriesFailed
from labs.series import Applied, Series, apply
from labs.source.trees import KernelSource, advance
from labs.store import Store, digest, file_digest, remove_tree

log = logging.getLogger("labs")

RECIPE = 1  # raise it when the steps below change
CONFIG_SECONDS, BUILD_SECONDS = 300, 3 * 3600
LOG_BYTES = 32 << 20  # of the end of a log that are read; a whole kernel's log has two
# Equal sources must give equal binaries: no date, no host and no user in them.
REPRODUCIBLE = {
    "KBUILD_BUILD_TIMESTAMP": "Thu Jan  1 00:00:00 UTC 1970",
    "KBUILD_BUILD_USER": "lab",
    "KBUILD_BUILD_HOST": "lab",
    "KBUILD_BUILD_VERSION": "1",
}
COMPILED = re.compile(r"^  (?:CC|AS|LD|AR|HOSTCC)\b", re.M)
ERROR = re.compile(
    r"^(?:/src/|\.\./src/)?(?P<file>[\w./+-]+\.[chS]):(?P<line>\d+):(?:\d+:)? (?:fatal )?error: (?P<text>.*)$", re.M
)


@dataclass(frozen=True)
class Plan:
    """All that decides what a built kernel is. `series` is empty for the base."""

    source: KernelSource
    tree: Path
    config: Config
    series: tuple[Series, ...] = ()

    @property
    def base(self) -> Plan:
        return Plan(self.source, self.tree, self.config)

    def recipe(self) -> dict[str, object]:
        """What names the result: sources, patches, config, compiler. Equal recipes are equal kernels."""
        return {
            "recipe": RECIPE,
            "source": self.source.digest,
            "series": [hashlib.sha256(patch.raw).hexdigest() for series in self.series for patch in series.patches],
            "config": digest([self.config.text, self.config.whole]),
            "compiler": compiler(),
        }


def compiler() -> str:
    """First lines of the compiler's and the linker's own words."""
    words = [run([tool, "--version"], Deadline(20, f"asking {tool}")).out for tool in ("gcc", "ld")]
    return "; ".join(text.splitlines()[0] for text in words)


def built_kernel(store: Store, plan: Plan) -> KernelArtifacts:
    """The kernel of a plan, built now if it never was.

    LabError when the base does not build; SeriesFailed when the base builds and the series does not apply or compile.
    """
    if plan.source.base and not plan.series:
        folder = _advanced(store, plan, _objects(store, Plan(plan.source.base, plan.tree, plan.config)))
    else:
        objects = _objects(store, plan.base)
        folder = objects if not plan.series else _patched(store, plan, objects)
    facts = json.loads((folder / "facts.json").read_text())
    return KernelArtifacts(folder, facts["release"], facts["build_id"], facts["sha256"])


def _objects(store: Store, plan: Plan) -> Path:
    """The base: its kernel, and all objects, upon which patched ones are built."""

    def make(folder: Path) -> None:
        (folder / "objects").mkdir()
        build = _Build(store, plan, plan.tree, folder)
        build.configure()
        build.compile()
        build.collect(folder)

    return store.build("built", plan.recipe(), make, f"kernel {plan.source.origin}, {plan.config.name}")


def _patched(store: Store, plan: Plan, base: Path) -> Path:
    def make(folder: Path) -> None:
        tree = folder / "tree"
        # hard links: a tree of 80,000 files in seconds; a patched file is a new one, never a changed one
        run(["cp", "-al", str(plan.tree), str(tree)], Deadline(300, "linking the tree"))
        applied = [apply(series, tree) for series in plan.series]
        run(
            ["cp", "-a", "--reflink=auto", str(base / "objects"), str(folder / "objects")],
            Deadline(300, "copying objects"),
        )
        build = _Build(store, plan, tree, folder)
        build.compile(_blame(applied))
        build.collect(folder)
        remove_tree(tree)
        remove_tree(folder / "objects")

    names = " + ".join(series.name for series in plan.series)
    recipe = {**plan.recipe(), "base": base.name}
    folder = store.build("patched", recipe, make, f"kernel {plan.source.origin}, {plan.config.name}, with {names}")
    if json.loads((folder / "facts.json").read_text())["build_id"] == _build_id(base):
        log.warning("%s makes the same binary as its base: it changes nothing that is built", names)
    return folder


def _advanced(store: Store, plan: Plan, base: Path) -> Path:
    """A commit upon the objects of another one: what changed between the two is made again. `plan.tree` is the other's.

    SeriesFailed when it does not compile.
    """

    def make(folder: Path) -> None:
        tree = folder / "tree"
        run(["cp", "-al", str(plan.tree), str(tree)], Deadline(300, "linking the tree"))
        changed = advance(plan.source, tree)
        run(
            ["cp", "-a", "--reflink=auto", str(base / "objects"), str(folder / "objects")],
            Deadline(300, "copying objects"),
        )
        build = _Build(store, plan, tree, folder)
        build.configure()  # Kconfig itself may have changed
        build.compile(lambda file, line: "" if file in changed else " (in a file that did not change)")
        build.collect(folder)
        remove_tree(tree)
        remove_tree(folder / "objects")

    recipe = {**plan.recipe(), "base": base.name}
    return store.build("patched", recipe, make, f"kernel {plan.source.origin}, {plan.config.name}")


def _build_id(folder: Path) -> str:
    return str(json.loads((folder / "facts.json").read_text())["build_id"])


def _cache(plan: Plan) -> str:
    """Which compiler cache a build has: one for all that the archive signs; a local tree, a repository or a release has
    its own. A build runs what its tree says, and could leave objects in a cache that are meant for others.

    A build with a series reads the one of its base and writes to none: it compiles little, upon the objects of its
    base, and no name, place or combination of patches tells who wrote them.
    """
    source = plan.source
    return "base" if source.signed else f"own-{digest(str(source.path or source.digest))}"


class _Build:
    """One build in a sandbox: sources at /src, objects at /objects, so that paths in binaries never differ."""

    def __init__(self, store: Store, plan: Plan, tree: Path, folder: Path) -> None:
        self.plan = plan
        self.folder = folder
        self.objects = folder / "objects"
        self.log = folder / "build.log"
        cache = store.root / "ccache" / _cache(plan)
        cache.mkdir(parents=True, exist_ok=True)
        self.env = {**REPRODUCIBLE, "CCACHE_DIR": "/ccache", "CCACHE_TEMPDIR": "/tmp", "CCACHE_MAXSIZE": "1G"}
        read, write = {"/src": tree}, {"/objects": self.objects}
        if plan.series:
            read["/ccache"] = cache
            self.env |= {"CCACHE_READONLY": "1", "CCACHE_NOSTATS": "1"}
        else:
            write["/ccache"] = cache
        self.sandbox = Sandbox(read, write)
        self.whose = " + ".join(series.name for series in plan.series) or plan.source.origin
        self.fault = SeriesFailed if plan.series else LabError
        self.made = Made(self.objects, self.whose, self.fault)
        self.tree = tree

    def _make(self, target: Sequence[str], deadline: Deadline, progress: Callable[[], str] | None = None) -> int:
        argv = ["make", "-C", "/src", "O=/objects", "ARCH=x86_64", f"-j{os.cpu_count() or 1}", *target]
        return self.sandbox.run(argv, deadline, self.log, cwd="/src", env=self.env, progress=progress)

    def configure(self) -> None:
        """Write .config and prove it; BadInput lists what is missing."""
        config, deadline = self.plan.config, Deadline(CONFIG_SECONDS, "configuring the kernel")
        self.made.put("asked.config", config.text)
        if config.whole:
            self.made.put(".config", config.text)
            code = self._make(["olddefconfig"], deadline)
        else:
            code = self._make(["KCONFIG_ALLCONFIG=/objects/asked.config", "allnoconfig"], deadline)
        if code != 0:
            raise LabError(f"{self.plan.source.origin}: its configuration fails", evidence=tail(self.log))
        problems = missing(config, self.made.text(".config"), self.tree)
        if problems:
            more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
            raise BadInput(f"config {config.name}: {problems[0]}{more}", evidence="\n".join(problems))

    def compile(self, blame: Callable[[str, int], str] | None = None) -> None:
        """Make bzImage and modules. `blame` words which patch changed a line; with it a failure is the series' own."""
        targets = ["bzImage"]
        if "CONFIG_MODULES=y" in self.made.text(".config"):
            targets.append("modules")
        deadline = Deadline(BUILD_SECONDS, f"building {self.plan.source.origin}")
        if self._make(targets, deadline, self._progress) == 0:
            return
        words = tail(self.log, LOG_BYTES)
        found = ERROR.search(words)
        where = f"{found['file']}:{found['line']}: {found['text']}" if found else _last_error(words)
        if blame is None:
            raise LabError(f"{self.plan.source.origin} does not compile: {where}", evidence=tail(self.log))
        guilty = blame(found["file"], int(found["line"])) if found else ""
        raise DoesNotCompile(f"{self.whose} does not compile, its base does: {where}{guilty}", evidence=tail(self.log))

    def _progress(self) -> str:
        done = len(COMPILED.findall(tail(self.log, LOG_BYTES)))
        return f"kernel {self.plan.source.version}, {self.plan.config.name}: {done} objects made"

    def collect(self, folder: Path) -> None:
        """Keep what a guest and a reader need."""
        for name, kept in (("arch/x86/boot/bzImage", "vmlinuz"), (".config", "config"), ("System.map", "System.map")):
            self.made.keep(name, folder / kept)
        (folder / "root").mkdir()
        try:
            image = read_image(folder / "vmlinuz")
        except BadInput as error:
            raise self.fault(f"{self.whose}: its build made no kernel: {error}") from None
        if (self.objects / "modules.order").exists():
            self._modules(folder / "root", image.release)
        facts = {"release": image.release, "build_id": image.build_id, "sha256": file_digest(folder / "vmlinuz")}
        facts |= {"config_sha256": file_digest(folder / "config"), "compiler": compiler()}
        (folder / "facts.json").write_text(json.dumps(facts))

    def _modules(self, root: Path, release: str) -> None:
        """In the sandbox, depmod too: what was installed may have links in it, and depmod writes beside it."""
        sandbox = Sandbox(self.sandbox.read, {**self.sandbox.write, "/modules": root}, self.sandbox.root)
        argv = ["make", "-C", "/src", "O=/objects", "ARCH=x86_64", "INSTALL_MOD_PATH=/modules", "modules_install"]
        deadline = Deadline(900, "installing modules")
        if sandbox.run(argv, deadline, self.log, cwd="/src", env={**self.env, "DEPMOD": "true"}) != 0:
            raise self.fault(f"{self.whose}: the modules cannot be installed", evidence=tail(self.log))
        argv = [which("depmod"), "-b", "/modules", release]
        if Sandbox({}, {"/modules": root}).run(argv, Deadline(120, "depmod"), self.log) != 0:
            raise self.fault(f"{self.whose}: depmod fails", evidence=tail(self.log))
        Made(root, self.whose, self.fault).plain()


def _last_error(words: str) -> str:
    lines = [line for line in words.splitlines() if "error" in line.lower() or "***" in line]
    return lines[-1] if lines else "it says nothing"


def _blame(applied: Sequence[Applied]) -> Callable[[str, int], str]:
    """Words for the hunk that is nearest above a line, by where hunks landed."""
    landings = [landing for one in applied for landing in one.landings]

    def words(file: str, line: int) -> str:
        above = [landing for landing in landings if landing.path == file and landing.line <= line]
        if not above:
            return " (in lines that no patch changed)"
        nearest = max(above, key=lambda landing: landing.line)
        return f" (nearest hunk: {nearest.hunk}" + (f", in {nearest.function})" if nearest.function else ")")

    return words
