"""A kernel tree small enough to build in a second: real make, compiler, linker and Kconfig lines, a real bzImage."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

MAKEFILE = """\
VERSION = 6
PATCHLEVEL = 1
SUBLEVEL = 192
NAME = small

allnoconfig:
\t@python3 /src/scripts/kconfig.py $(KCONFIG_ALLCONFIG) > $(O)/.config
olddefconfig:
\t@python3 /src/scripts/kconfig.py $(O)/.config > $(O)/new && mv $(O)/new $(O)/.config
$(O)/%.o: %.c include/lab.h
\t@mkdir -p $(dir $@)
\t@echo "  CC      $<"
\tgcc -g0 -O2 -Iinclude -c -o $@ $<
bzImage: $(O)/kernel/main.o $(O)/kernel/sched/core.o
\t@mkdir -p $(O)/arch/x86/boot
\tld --build-id=sha1 -e start -o $(O)/vmlinux $^
\tnm -n $(O)/vmlinux > $(O)/System.map
\tpython3 /src/scripts/bzimage.py $(O)/vmlinux $(O)/arch/x86/boot/bzImage
"""
KCONFIG = """\
config CGROUPS
\tbool "groups"

config MEMCG
\tbool "memory"
\tdepends on CGROUPS

config DEBUG_EXTRA
\tbool "extra"
"""
KCONFIG_PY = """\
import re, sys
known, name = {}, ""
for line in open("/src/Kconfig"):
    words = line.split()
    if words[:1] == ["config"]:
        name = words[1]
        known[name] = ""
    elif words[:2] == ["depends", "on"]:
        known[name] = words[2]
asked = dict(re.findall(r"^CONFIG_(\\w+)=(.*)$", open(sys.argv[1]).read(), re.M))
for name, needs in known.items():
    if name in asked and (not needs or needs in asked):
        print(f"CONFIG_{name}={asked[name]}")
    else:
        print(f"# CONFIG_{name} is not set")
"""
BZIMAGE_PY = """\
import gzip, struct, sys
payload = gzip.compress(open(sys.argv[1], "rb").read(), mtime=0)
setup = bytearray(5 * 512)
setup[0x1F1] = 4
setup[0x202:0x206] = b"HdrS"
struct.pack_into("<H", setup, 0x20E, 0x100)
setup[0x300:0x309] = b"6.1.192 x"
struct.pack_into("<II", setup, 0x248, 0, len(payload))
open(sys.argv[2], "wb").write(bytes(setup) + payload)
"""
CORE = """\
#include "lab.h"

int quota(int period)
{
\treturn period * 2;
}

int burst(int period)
{
\treturn period / LIMIT;
}
"""
FILES = {
    "Makefile": MAKEFILE,
    "Kconfig": KCONFIG,
    "scripts/kconfig.py": KCONFIG_PY,
    "scripts/bzimage.py": BZIMAGE_PY,
    "include/lab.h": "#define LIMIT 3\n",
    "kernel/main.c": "int quota(int), burst(int);\nvoid start(void) { quota(burst(1)); }\n",
    "kernel/sched/core.c": CORE,
}


def write_tree(folder: Path) -> Path:
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def git(folder: Path, *words: str) -> str:
    who = {f"GIT_{role}_{what}": "a@b" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    env = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1", **who}
    return subprocess.run(
        ["git", "-C", str(folder), *words], env=env, check=True, capture_output=True, text=True
    ).stdout


def patch(folder: Path, path: str, old: str, new: str, subject: str = "change it") -> Path:
    """A patch file that turns `old` into `new` in one file of the tree, as git writes it."""
    tree = write_tree(folder / "made")
    git(tree, "init", "-q")
    git(tree, "add", "-A")
    git(tree, "commit", "-qm", "base")
    text = (tree / path).read_text()
    assert old in text
    (tree / path).write_text(text.replace(old, new))
    git(tree, "commit", "-qam", subject)
    return Path(git(tree, "format-patch", "-1", "--no-signature", "-o", str(folder)).strip())
