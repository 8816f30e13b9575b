"""A tree as a patch sees it: files read from disk on demand, changes kept in memory, never through a symbolic link."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from labs.errors import BadInput
from labs.series.values import LINK

LIMIT = 64 << 20  # bytes of one file


class Outside(Exception):
    """A path that leads beyond a symbolic link: out of the tree, perhaps."""


class Unfit(Exception):
    """A path where the tree has something else than a file in a folder."""


@dataclass(frozen=True)
class Entry:
    """A file: its bytes, or where it points if `mode` is git's mode of a link; else `mode` has permission bits."""

    data: bytes
    mode: int

    @property
    def is_link(self) -> bool:
        return self.mode == LINK

    @property
    def executable(self) -> bool:
        return not self.is_link and bool(self.mode & 0o100)


class View:
    """A tree with changes that are not on disk yet; `changed` maps a path to its Entry, or to None where it goes."""

    def __init__(self, root: Path) -> None:
        if not root.is_dir():
            raise BadInput(f"{root}: no such tree")
        self.root = root
        self.changed: dict[str, Entry | None] = {}
        self._folders: frozenset[str] = frozenset()  # that changes have been in
        self._seen: dict[str, Entry | None] = {}

    def with_changes(self, changes: dict[str, Entry | None]) -> View:
        """A view with more changes; what was read from disk is shared."""
        made = View(self.root)
        made._seen = self._seen
        made.changed = {**self.changed, **changes}
        made._folders = self._folders.union(*(map(str, PurePosixPath(path).parents) for path in changes))
        return made

    def get(self, path: str) -> Entry | None:
        """The file at `path`, None where there is none; Outside or Unfit where the way is barred."""
        for parent in list(PurePosixPath(path).parents)[-2::-1]:
            self._check_folder(str(parent))
        if path in self._folders and any(self.changed[one] for one in self.changed if one.startswith(f"{path}/")):
            raise Unfit(f"{path} is a folder")
        if path in self.changed:
            return self.changed[path]
        if path not in self._seen:
            self._seen[path] = self._load(path)
        return self._seen[path]

    def on_disk(self, path: str) -> Entry | None:
        """The file as it was read for a view of this tree; None where there was none."""
        return self._seen.get(path)

    def _check_folder(self, path: str) -> None:
        if path in self.changed:
            entry = self.changed[path]
            if entry is not None:
                kind = Outside if entry.is_link else Unfit
                raise kind(f"{path} is a {'symbolic link' if entry.is_link else 'file'}, not a folder")
            return
        try:
            mode = os.lstat(self.root / path).st_mode
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise Unfit(f"{path} cannot be read: {error.strerror}") from None
        if stat.S_ISLNK(mode):
            raise Outside(f"{path} is a symbolic link: the patch would write beyond it")
        if not stat.S_ISDIR(mode):
            raise Unfit(f"{path} is not a folder")

    def _load(self, path: str) -> Entry | None:
        full = self.root / path
        try:
            status = os.lstat(full)
            if stat.S_ISLNK(status.st_mode):
                return Entry(os.fsencode(os.readlink(full)), LINK)
            if not stat.S_ISREG(status.st_mode):
                raise Unfit(f"{path} is not a file")
            if status.st_size > LIMIT:
                raise Unfit(f"{path} is larger than {LIMIT >> 20} MiB")
            return Entry(full.read_bytes(), stat.S_IMODE(status.st_mode))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise Unfit(f"{path} cannot be read: {error.strerror}") from None


def link_danger(path: str, target: bytes) -> str:
    """Why a symbolic link must not be made, or nothing: what it points to stays inside the tree.

    `..` counts only where it leads: behind a name it would go up from wherever a link of that name points, now or
    after a later patch. The folders that a link itself is in are no links: View lets none be one.
    """
    to = os.fsdecode(target)
    parts = [part for part in to.split("/") if part not in ("", ".")]
    up = next((count for count, part in enumerate(parts) if part != ".."), len(parts))
    if not to or "\0" in to or to.startswith("/") or up >= len(PurePosixPath(path).parts):
        return f"symbolic link {path} to {to!r} leaves the tree"
    if ".." in parts[up:]:
        return f"symbolic link {path} to {to!r} has '..' behind a name, which may be a link out of the tree"
    return ""
