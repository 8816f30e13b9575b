"""Content-named directories, whole or absent, shared by checkouts and parallel runs.

An entry's name is the hash of its recipe (all that went into it), so equal inputs meet in one place and nothing is
ever changed in place. A build works in a temporary folder and is renamed at the end; a killed build leaves a folder
under tmp/ that nobody reads and the next build of that name removes.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, ClassVar

from labs.errors import BadInput, LabError, NoSpace

log = logging.getLogger("labs")

SIZE_CAP = 20 * 2**30  # bytes; beyond it the entries that were used longest ago go
NO_RECORDS, NO_REPORT = "name another folder with --record", "name another folder with --report"
SPARE = 32 * 2**20  # bytes; with less than that free, tools of others fail in words of their own


def digest(value: Any) -> str:
    """Stable hash of a JSON-able value, 16 hex digits."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def file_digest(path: Path) -> str:
    """sha256 of a file, hex."""
    with path.open("rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()


def kept_digest(path: Path) -> str:
    """sha256 of a large file of an entry, hex; worked out once and kept beside it, for entries never change."""
    kept = path.with_name(f"{path.name}.sha256")
    if not kept.exists():
        part = kept.with_name(f"{kept.name}.{os.getpid()}")
        part.write_text(file_digest(path))
        part.replace(kept)
    return kept.read_text()


def usable(folder: Path, mend: str, what: str = "") -> Path:
    """The folder, made where it is missing and seen to take a file; BadInput with `mend` when it does not."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass  # it may be there and not writable, as another user's
    except OSError as error:
        kind = NoSpace if error.errno in (errno.ENOSPC, errno.EDQUOT) else BadInput
        raise kind(f"{what or folder} cannot be used: {error.strerror}", mend=mend) from None
    return folder


class Store:
    """One folder of entries: `<kind>/<hash>/`, each with its `recipe.json`."""

    _in_use: ClassVar[dict[Path, IO[bytes]]] = {}  # shared locks, kept until this process ends

    def __init__(self, root: Path) -> None:
        self.root = root
        for part in ("tmp", "locks"):
            usable(root / part, "set LABS_STORE", f"store {root}")

    @classmethod
    def of_user(cls) -> Store:
        """LABS_STORE, or `cgroup-lab` in the user's cache folder."""
        cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        return cls(Path(os.environ.get("LABS_STORE") or Path(cache) / "cgroup-lab").absolute())

    @contextlib.contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """Hold the exclusive lock called `name`; waits for other processes, and says so."""
        with (self.root / "locks" / name).open("ab") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                log.info("waiting for another process that makes %s", name)
                fcntl.flock(handle, fcntl.LOCK_EX)
            yield

    def build(self, kind: str, recipe: Mapping[str, Any], make: Callable[[Path], None], what: str = "") -> Path:
        """Path of the entry that `recipe` names; `make(folder)` fills it when it does not exist yet.

        The entry stays in use (safe from `shrink`) until this process ends. Raises what `make` raises; NoSpace when
        the disk is full. Either way nothing half-made is left.
        """
        name = digest({"kind": kind, **recipe})
        final = self.root / kind / name
        self._use(f"{kind}-{name}")  # before it is looked for: no other process may shrink it away in between
        if not (final / "recipe.json").exists():
            with self.lock(f"{kind}-{name}.build"):
                if not (final / "recipe.json").exists():
                    self._make(final, recipe, make, what or f"{kind} {name}")
        os.utime(final)
        return final

    def _make(self, final: Path, recipe: Mapping[str, Any], make: Callable[[Path], None], what: str) -> None:
        prefix = f"{final.parent.name}-{final.name}."
        for stale in (self.root / "tmp").glob(f"{prefix}*"):
            remove_tree(stale)
        part = self.root / "tmp" / f"{prefix}{os.getpid()}"
        began = time.monotonic()
        log.info("making %s", what)
        try:
            self.need(SPARE, what)
            part.mkdir()
            make(part)
            (part / "recipe.json").write_text(json.dumps(recipe, indent=1, sort_keys=True))
            final.parent.mkdir(exist_ok=True)
            remove_tree(final)  # without its recipe it is no entry: someone was killed while removing it
            part.rename(final)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise NoSpace(f"no space left in {self.root} while making {what}", mend="run: labs clean") from None
            raise
        except LabError as error:  # a tool that met a full disk says so in its own words, if at all
            if not isinstance(error, NoSpace) and shutil.disk_usage(self.root).free < SPARE:
                raise NoSpace(
                    f"no space left in {self.root} while making {what}: {error}", mend="run: labs clean"
                ) from None
            raise
        finally:
            remove_tree(part)
        log.info("made %s in %.1f s", what, time.monotonic() - began)
        self.shrink(SIZE_CAP)

    def need(self, size: int, what: str) -> None:
        """NoSpace when the disk has less than `size` bytes left for `what`."""
        free = shutil.disk_usage(self.root).free
        if free < size:
            raise NoSpace(
                f"{self.root} has {free >> 20} MiB left, {what} needs {size >> 20}",
                mend="run: labs clean, or set LABS_STORE",
            )

    def _use(self, name: str) -> None:
        path = self.root / "locks" / f"{name}.use"
        if path not in self._in_use:
            handle = path.open("ab")
            fcntl.flock(handle, fcntl.LOCK_SH)
            self._in_use[path] = handle

    def entries(self) -> list[tuple[Path, int]]:
        """(folder, bytes) of each entry, the one used longest ago first."""
        folders = [recipe.parent for recipe in self.root.glob("*/*/recipe.json") if recipe.parent.parent.name != "tmp"]
        return [(folder, tree_size(folder)) for folder in sorted(folders, key=lambda folder: folder.stat().st_mtime)]

    def shrink(self, cap: int, *, dry_run: bool = False) -> list[Path]:
        """Remove entries until at most `cap` bytes are left; never one that a process uses. Returns what went."""
        entries = self.entries()
        size = sum(bytes_ for _, bytes_ in entries)
        gone = []
        for folder, bytes_ in entries:
            if size <= cap:
                break
            name = f"{folder.parent.name}-{folder.name}"
            with (self.root / "locks" / f"{name}.use").open("ab") as handle:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    continue
                if not dry_run:
                    (folder / "recipe.json").unlink(missing_ok=True)  # first: without it the entry does not exist
                    remove_tree(folder)
            gone.append(folder)
            size -= bytes_
        return gone


def tree_size(folder: Path) -> int:
    """Bytes on disk of all files below a folder (sparse files count what they occupy)."""
    return sum(path.lstat().st_blocks * 512 for path in folder.rglob("*") if not path.is_dir())


def _open(folder: Path) -> None:
    with contextlib.suppress(OSError):
        if not folder.is_symlink():
            folder.chmod(0o700)


def remove_tree(path: Path) -> None:
    """Remove a tree if it is there; unreadable folders inside are opened first."""
    if path.is_dir() and not path.is_symlink():
        _open(path)
        for folder, folders, _ in os.walk(path):
            for name in folders:
                _open(Path(folder, name))  # before the walk looks into it
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
