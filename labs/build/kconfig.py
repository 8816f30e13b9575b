"""Kernel configs: what is asked for, merged from fragments or a file, and the proof that all of it survived.

Kconfig silently drops what a tree does not know or whose dependencies are not met; so after every run of it the result
is read again and compared.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from labs import catalog
from labs.errors import BadInput

LINE = re.compile(r"(?:(CONFIG_\w+)=(.*)|# (CONFIG_\w+) is not set)")
RUNS = re.compile(r"^(CONFIG_\w+)=.*[$`]", re.M)  # make and shells of the build expand values
OPTIONAL = "# where it exists"
MUST = "# must survive"  # line of a config of its own, after which every option is looked up in the result
# A guest of the lab cannot be reached or judged without these; a user's own config must have them too.
REQUIRED = (
    "CONFIG_64BIT", "CONFIG_PRINTK", "CONFIG_SERIAL_8250_CONSOLE", "CONFIG_BLK_DEV_INITRD", "CONFIG_DEVTMPFS",
    "CONFIG_EXT4_FS", "CONFIG_UNIX", "CONFIG_INET", "CONFIG_CGROUPS", "CONFIG_MEMCG", "CONFIG_FAIR_GROUP_SCHED",
    "CONFIG_CFS_BANDWIDTH", "CONFIG_BLK_CGROUP", "CONFIG_CGROUP_PIDS", "CONFIG_CGROUP_FREEZER",
)  # fmt: skip
# What the archive's own config asks for that only its own builders can give: signing keys, and debug data that is slow.
DISTRO_CHANGES = """\
# CONFIG_MODULE_SIG is not set
CONFIG_SYSTEM_TRUSTED_KEYS=""
CONFIG_SYSTEM_REVOCATION_KEYS=""
# CONFIG_DEBUG_INFO_BTF is not set
CONFIG_DEBUG_INFO_NONE=y
"""


@dataclass(frozen=True)
class Config:
    """What is asked for. `text` is merged over nothing (`whole` false: all else off) or is a config of its own."""

    name: str
    text: str
    whole: bool = False

    def wanted(self) -> dict[str, str]:
        """Option -> value that must come out; 'n' for off."""
        return {name: value for name, value, optional in options(self.text) if not optional}


def options(text: str) -> Iterator[tuple[str, str, bool]]:
    """(option, value, optional) of each line; the value of an option that is off is 'n'."""
    optional = False
    for line in text.splitlines():
        optional = line.startswith(OPTIONAL) or (optional and bool(line.strip()))
        found = LINE.fullmatch(line.strip())
        if found:
            yield found[1] or found[3], found[2] if found[1] else "n", optional


def find_config(variant: str) -> Config:
    """The config that `--variant` names; BadInput names those that exist. "distro" needs `distro_config`."""
    if variant.startswith("config:"):
        path = Path(variant.removeprefix("config:")).expanduser()
        if not path.is_file():
            raise BadInput(f"variant {variant}: no such file")
        text = path.read_text(errors="replace")
        if not any(options(text)):
            raise BadInput(f"variant {variant}: no line of it is a kernel option")
        if found := RUNS.search(text):
            raise BadInput(f"variant {variant}: the value of {found[1]} holds $ or `: the build would run it")
        return Config(variant, text, whole=True)
    rows = catalog.read("variants")["variant"]
    if variant not in rows:
        raise BadInput(f"variant {variant}: not known", mend=f"one of: {', '.join(rows)}, config:PATH")
    folder = files("labs.catalog") / "kconfig"
    return Config(variant, "\n".join((folder / f"{name}.config").read_text() for name in rows[variant]["fragments"]))


def distro_config(text: str) -> Config:
    """The archive's own config, apart from what only its builders can do."""
    return Config("distro", f"{text}\n{DISTRO_CHANGES}", whole=True)


def missing(asked: Config, result: str, tree: Path) -> list[str]:
    """What was asked for and is not in the resulting .config, each with its reason.

    Of a whole config only options that a guest needs, or that stand after `MUST`, are told: its own build would drop
    the others too.
    """
    got = {name: value for name, value, _ in options(result)}
    wanted = asked.wanted() if not asked.whole else _essential(asked)
    problems = []
    for name, value in wanted.items():
        have = got.get(name, "n")
        if have != value and not (value == "m" and have == "y"):
            problems.append(f"{name} is {have}, asked was {value}: {_reason(name, tree)}")
    return problems


def _essential(asked: Config) -> dict[str, str]:
    given = asked.wanted()
    must = {name: value for name, value, _ in options(asked.text.partition(MUST)[2])}
    return {name: "y" for name in REQUIRED if given.get(name) != "m"} | must


def _reason(name: str, tree: Path) -> str:
    """Why Kconfig dropped an option, as far as its definition tells."""
    symbol = re.compile(rf"^(?:menu)?config {re.escape(name.removeprefix('CONFIG_'))}$", re.M)
    for path in _kconfig_files(tree):
        text = path.read_text(errors="replace")
        found = symbol.search(text)
        if found:
            body = re.split(r"^(?:menu)?config |^(?:end)?menu", text[found.end() :], maxsplit=1, flags=re.M)[0]
            needs = [" ".join(line.split()) for line in re.findall(r"^\s+(depends on .*)$", body, re.M)]
            where = f"{path.relative_to(tree)}:{text[: found.start()].count(chr(10)) + 1}"
            return f"{where}: {'; '.join(needs) or 'another option decides it'}"
    return "this tree has no such option"


def _kconfig_files(tree: Path) -> Iterator[Path]:
    """Of one architecture, those most likely to be asked for first; never through a link out of the tree."""
    tops = ("init", "kernel", "arch/x86", "lib", "mm", "block", "net", "fs", "drivers", "security", "crypto")
    inside = tree.resolve()
    for pattern in (*(f"{top}/**/Kconfig*" for top in tops), "Kconfig*", "*/Kconfig*", "sound/**/Kconfig*"):
        for path in sorted(tree.glob(pattern)):
            if path.is_file() and path.resolve().is_relative_to(inside):
                yield path
