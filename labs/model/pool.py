"""The acts that random sequences are drawn from: themes, groups, and texts to write."""

from __future__ import annotations

import functools

from labs.model.act import TREE_FILES, Act
from labs.model.files import FILES

PROCESSES = 3  # of a sequence
MIB = 1 << 20
# Texts to write; memory limits stay far above what a few idle processes use, so that nothing is reclaimed or killed.
_SIZES = ("max", str(64 * MIB), str(64 * MIB + 4095), "0x8000000", "256M", "1g", "123456789", "foo", "-1", "64Q", "7 8")
_FLAGS = ("0", "1", "2", "-1", "x")
VALUES: dict[str, tuple[str, ...]] = {
    "cpu.weight": ("1", "2", "99", "100", "777", "0x64", "0144", "+5", "10000", "0", "10001", "-1", "foo", " 7"),
    "cpu.weight.nice": ("-20", "-7", "-1", "0", "1", "13", "19", "-21", "20", "x"),
    "cpu.idle": _FLAGS,
    "cpu.max": (
        "max", "max 50000", "20000", "30000 100000", "70000 200000", "50000 1000000", "1000 1000", "80000 junk",
        "400000 100000", "999", "50000 999", "50000 1000001", "0", "foo",
    ),
    "cpu.max.burst": ("0", "500", "1000", "9000", "20000", "45000", "0x1000", "400001", "-1", "foo"),
    "io.weight": ("1", "100", "default 1", "default 250", "10000", "default 10001", "0", "default", "foo", "77 junk"),
    "memory.min": ("0", *_SIZES),
    "memory.low": ("0", *_SIZES),
    "memory.high": _SIZES,
    "memory.max": _SIZES,
    "memory.swap.max": ("0", *_SIZES),
    "memory.oom.group": _FLAGS,
    "pids.max": ("max", "0", "1", "2", "3", "4194304", "4194305", "-1", "foo", "99999999999999999999"),
    "cgroup.max.descendants": ("max", "0", "1", "2", "2147483647", "2147483648", "-1", "foo"),
    "cgroup.max.depth": ("max", "0", "1", "2", "-1", "foo"),
    "cgroup.freeze": _FLAGS,
}  # fmt: skip
SUBTREE = (
    "+cpu", "-cpu", "+memory", "-memory", "+pids", "-pids", "+cpu +memory +io", "-cpu -memory -io", "+cpu +bogus",
    "+cpu -cpu", "-pids +pids", "+io +pids", "cpu", "+freezer", "+perf_event", "+hugetlb", "+memory +misc",
)  # fmt: skip
# Groups beside '', outer ones first; mostly few, so that acts meet.
PLACES: tuple[tuple[str, ...], ...] = ((), (), (), ("a",), ("a",), ("a", "b"), ("a", "a/c"), ("a", "b", "a/c"))
# Hypothesis draws what is simple more often, so the first one comes three times as often as the others.
THEMES = ("processes", "tree", "tree", *dict.fromkeys(file.family for file in FILES.values()))


@functools.lru_cache(maxsize=4096)
def pool(themes: tuple[str, ...], places: tuple[str, ...], focus: str | None, files: frozenset[str]) -> tuple[Act, ...]:
    """All acts of the themes on '' and `places`, or on the group `focus` those that matter for one group only.

    Files that this kernel's groups lack are left out.
    """
    acts: list[Act] = []
    for group in ("", *places):
        for theme in themes:
            if focus in (None, group) or theme not in FILES or theme in TREE_FILES:
                acts += _theme(theme, group)
    return tuple(act for act in acts if act.file not in FILES or not files or act.file in files)


def _theme(theme: str, group: str) -> list[Act]:
    if theme == "tree":
        made = [Act("mkdir", group), Act("rmdir", group)] * 4 if group else []
        read = [Act("read", group, file) for file in ("cgroup.controllers", "cgroup.subtree_control", "cgroup.stat")]
        return [*made, *read, *(Act("write", group, "cgroup.subtree_control", text) for text in SUBTREE)]
    if theme == "processes":
        read = [Act("read", group, file) for file in ("cgroup.events", "pids.current", "cgroup.type")]
        moved = [Act(name, group, process=p) for name in ("spawn", "attach") for p in range(PROCESSES)]
        ended = [Act("end", process=p) for p in range(PROCESSES)]
        return [*moved, *ended, *read, Act("members", group), Act("kill", group)]
    acts = []
    for file in FILES.values():
        if file.family == theme:
            acts += [Act("write", group, file.name, text) for text in VALUES[file.name]]
            acts += [Act("read", group, file.name)] * (len(VALUES[file.name]) // 3)
    return acts
