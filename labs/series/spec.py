"""What a person names -> Series: a file, a folder, a list, standard input, a range of commits, or several with `+`."""

from __future__ import annotations

import dataclasses
import difflib
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from types import MappingProxyType
from typing import IO

from labs.errors import BadInput
from labs.series.gather import gather, nothing, ordered
from labs.series.git import mbox
from labs.series.manifest import NAME, Manifest, read_manifest
from labs.series.quilt import Entry, Listed, guards, quilt
from labs.series.values import Branch, Patch, Problem, Series, Where

LIMIT = 64 << 20  # bytes of one input
FILES = 10_000  # in one folder
SUFFIXES = (".patch", ".diff", ".mbox", ".mbx", ".eml")
_RANGE = re.compile(r"git:(.+)#(.+?)\.\.([^.].*)")
LISTS = {"series": quilt, "series.conf": guards}
RUNTIME_FOLDERS = {"libcontainer": "runc", "libcrun": "crun"}


def read(spec: str, stdin: IO[bytes] | None = None) -> tuple[Series, ...]:
    """Every series that `spec` names, as `patches/kernel/x+patches/runc/y`; `-` is standard input.

    BadInput where a name points nowhere. What is wrong inside a file becomes a Problem of its patch.
    """
    return tuple(_one(part, stdin) for part in _parts(spec))


def _parts(spec: str) -> list[str]:
    """Split at each `+` that parts names: `runc-1.1.15+ds1.patch` is one file, if it is there."""
    words = spec.split("+")
    best: list[list[str] | None] = [None] * len(words) + [[]]  # at i: words[i:] as parts that all exist, if they can be
    for start in range(len(words) - 1, -1, -1):
        for end in range(start + 1, len(words) + 1):
            name, rest = "+".join(words[start:end]), best[end]
            if best[start] is None and rest is not None and _exists(name):
                best[start] = [name, *rest]
    return best[0] or words


def _exists(name: str) -> bool:
    found = _RANGE.fullmatch(name)
    return name == "-" or Path(found[1] if found else name or "?").exists()


def _one(part: str, stdin: IO[bytes] | None) -> Series:
    if part == "-":
        data = (stdin or sys.stdin.buffer).read(LIMIT + 1)
        return _from_data(_bounded(data, "standard input"), "stdin")
    if part.startswith("git:"):
        found = _RANGE.fullmatch(part)
        if not found:
            raise BadInput(f"{part}: not a range of commits", mend="write git:REPOSITORY#A..B")
        return _from_data(mbox(Path(found[1]), found[2], found[3]), f"{found[2]}..{found[3]}")
    path = Path(part or "?")
    if path.is_dir():
        return _from_folder(path)
    if not path.is_file():
        if path.exists():
            raise BadInput(f"{part}: neither a file nor a folder", mend=WAYS)
        raise BadInput(f"{part or 'an empty name'}: no such series", mend=_nearest(path))
    if path.name == NAME:
        return _from_folder(path.parent)
    if path.name in LISTS:
        return _from_list(path, Manifest(), path.parent.resolve().name)
    return _from_data(_load(path), str(path))


WAYS = "name a patch file, an mbox, a folder, a quilt series, git:REPOSITORY#A..B, or - for standard input"


def _nearest(path: Path, otherwise: str = WAYS) -> str:
    names = sorted(one.name for one in path.parent.iterdir()) if path.parent.is_dir() else []
    near = difflib.get_close_matches(path.name, names, n=3, cutoff=0.5)
    if near:
        return f"nearest: {', '.join(str(path.parent / name) for name in near)}"
    return otherwise


def _bounded(data: bytes, name: str) -> bytes:
    if len(data) > LIMIT:
        raise BadInput(f"{name}: larger than {LIMIT >> 20} MiB", mend="give the patches only")
    return data


def _load(path: Path) -> bytes:
    """The bytes of a file; BadInput where it cannot be read or is too large to be patches."""
    try:
        if not path.is_file():
            raise BadInput(f"{path}: is no file")  # reading from a pipe would never end
        with path.open("rb") as file:
            return _bounded(file.read(LIMIT + 1), str(path))
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}") from None


def _from_data(data: bytes, name: str) -> Series:
    gathered = gather(data, name)
    if not gathered.found:
        gathered = dataclasses.replace(nothing(data, name), notes=gathered.notes)
    patches, problems = ordered(gathered.found, name)
    stem = name if ".." in name else Path(name).stem
    return _series(stem, Path(name).parent, Manifest(title=gathered.title), patches, problems, gathered.notes)


def _from_folder(folder: Path) -> Series:
    """A folder with series.toml that names files; else with a list; else all the patch files in it."""
    manifest, name = Manifest(), folder.resolve().name
    if (folder / NAME).is_file():
        text = _load(folder / NAME).decode(errors="replace")
        manifest = read_manifest(text, str(folder / NAME))
    if manifest.entries or manifest.branches:
        patches, problems, notes = _entries(folder, manifest.entries)
        return _series(name, folder, manifest, patches, problems, notes)
    for list_name in ("series", "patches/series", "series.conf", "patches/series.conf"):
        if (folder / list_name).is_file():
            return _from_list(folder / list_name, manifest, name)
    files = sorted((one for one in folder.iterdir() if one.suffix in SUFFIXES), key=lambda one: _natural(one.name))
    if not files:
        raise BadInput(
            f"{folder}: no patches in it", mend=f"it may hold a list called series, or {', '.join(SUFFIXES)}"
        )
    if len(files) > FILES:
        raise BadInput(f"{folder}: more than {FILES} files", mend="name the folder of one series")
    gathered = [gather(_load(file), str(file)) for file in files]
    found = [one for each in gathered for one in each.found]
    title = next((each.title for each in gathered if each.title), "")
    manifest = dataclasses.replace(manifest, title=manifest.title or title)
    patches, problems = ordered(found or nothing(b"", str(folder)).found, str(folder))
    return _series(name, folder, manifest, patches, problems, tuple(note for each in gathered for note in each.notes))


def _natural(name: str) -> list[tuple[int, str]]:
    """Sort key in which `2-a` comes before `10-b`."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d{1,18})", name)]


def _from_list(path: Path, manifest: Manifest, name: str) -> Series:
    listed: Listed = LISTS[path.name](_load(path).decode(errors="replace"), str(path))
    patches, problems, notes = _entries(path.parent, listed.entries)
    problems = (*listed.problems, *problems)
    if not patches and not problems:
        problems = (Problem(Where(str(path)), "no patch in the list", "name one patch file a line"),)
    return _series(name, path.parent, manifest, patches, problems, (*listed.disabled, *notes))


def _entries(folder: Path, entries: Sequence[Entry]) -> tuple[tuple[Patch, ...], tuple[Problem, ...], tuple[str, ...]]:
    """The patches of a list in its order, which overrides what subjects say; a missing file is a problem."""
    patches: list[Patch] = []
    problems: list[Problem] = []
    notes: list[str] = []
    for entry in entries:
        path = folder / entry.file
        if not path.is_file():
            problems.append(Problem(entry.where, f"{entry.file}: no such file", _nearest(path, "put it there")))
            continue
        data = _load(path)
        gathered = gather(data, str(path), entry.strip)
        notes += gathered.notes
        found = [one.patch for one in gathered.found or nothing(data, str(path)).found]
        patches += [patch.reversed() for patch in reversed(found)] if entry.reverse else found
    return tuple(patches), tuple(problems), tuple(notes)


def _series(
    name: str,
    folder: Path,
    manifest: Manifest,
    patches: tuple[Patch, ...],
    problems: tuple[Problem, ...],
    notes: tuple[str, ...],
) -> Series:
    branches = []
    for row in manifest.branches:
        own, wrong, told = _entries(folder, row.entries)
        branches.append(Branch(row.low, row.high, own))
        problems, notes = (*problems, *wrong), (*notes, *told)
    title = manifest.title or (patches[0].subject if len(patches) == 1 else name)
    every = [*patches, *(patch for branch in branches for patch in branch.patches)]
    return Series(
        name=name,
        patches=patches,
        title=title,
        component=manifest.component or _component(folder, every),
        intent=manifest.intent,
        mends=manifest.mends,
        breaks=manifest.breaks,
        upstream=manifest.upstream,
        parameters=MappingProxyType(dict(manifest.parameters)),
        line_endings=manifest.line_endings,
        branches=tuple(branches),
        problems=problems,
        notes=notes,
    )


def _component(folder: Path, patches: Sequence[Patch]) -> str:
    """`patches/<component>/<series>` says it; else the files do; else it is the kernel."""
    above = folder.resolve().parents
    if len(above) > 1 and above[1].name == "patches":
        return above[0].name
    paths = [one.path for patch in patches for one in patch.files]
    folders = {part for path in paths for part in path.split("/")}
    named = next((runtime for part, runtime in RUNTIME_FOLDERS.items() if part in folders), "")
    return named or ("runc" if any(path.endswith(".go") for path in paths) else "kernel")
