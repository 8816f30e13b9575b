"""A series into a tree: all of it, or nothing and the tree as before.

Files are never written in place: a new one is made and renamed over the old one, so hard links to a shared pristine
tree keep the old content.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath

from labs.errors import DoesNotApply, LabError
from labs.series.content import Landing
from labs.series.examining import Applicability, lint, rows_of, steps
from labs.series.tree import Entry, Outside, Unfit, View
from labs.series.values import Malformed, Problem, Series, Where, require_patches


@dataclass(frozen=True)
class Applied:
    """What a series did to a tree: a row a patch, where every hunk landed, and the files that changed."""

    rows: tuple[Applicability, ...]
    landings: tuple[Landing, ...]
    files: tuple[str, ...]


def apply(series: Series, tree: Path, fuzz: int = 0) -> Applied:
    """Apply every patch that the tree has not yet; those that it has are rows `already applied`.

    Raises Malformed for input that no tree could take, DoesNotApply where a patch does not fit, needs more fuzz than
    `fuzz`, or all are there already; the tree is then as before, byte for byte.
    """
    require_patches(series)
    if problems := lint(series):
        raise Malformed(problems)
    before = View(tree)
    done, view = steps(series, before)
    rows = rows_of(series, done, str(tree))
    evidence = "\n".join(f"{row.patch}: {row.state}: {row.detail}" for row in rows)
    for row, one in zip(rows, done, strict=True):
        if not one.applicable and one.state != "already applied":
            if one.state == "malformed":
                raise Malformed((Problem(Where(row.patch), one.detail, "the tree is as before"),))
            what = f"{row.patch}: {row.state}: {row.detail}"
            raise DoesNotApply(what, mend="the tree is as before", evidence=evidence)
        if one.fuzz > fuzz:
            what = f"{row.patch}: fits only with fuzz {one.fuzz}, allowed is {fuzz}"
            raise DoesNotApply(what, mend="make the patch anew for this tree, or allow fuzz", evidence=evidence)
    if not view.changed:
        what = f"series {series.name}: the tree has all of it already"
        raise DoesNotApply(what, mend="base and patched would be the same", evidence=evidence)
    changes = {path: entry for path, entry in view.changed.items() if entry != before.on_disk(path)}
    _commit(tree, changes)
    landings = tuple(landing for one in done for landing in one.landings)
    return Applied(rows, landings, tuple(sorted(changes)))


def _commit(tree: Path, changes: dict[str, Entry | None]) -> None:
    """Write every file beside the tree's, then swap all by renames; any failure, Ctrl-C too, swaps them back."""
    undo: list[Callable[[], object]] = []
    try:
        with tempfile.TemporaryDirectory(prefix=".cgroup-lab-", dir=tree, ignore_cleanup_errors=True) as folder:
            work = Path(folder)
            for number, (path, entry) in enumerate(changes.items()):
                if entry is not None:
                    _stage(work / f"new-{number}", entry, tree / path)
            try:
                for number, (path, entry) in enumerate(changes.items()):
                    _swap(tree, path, work / f"new-{number}" if entry else None, work / f"old-{number}", undo)
                _verify(tree, changes)
            except BaseException:
                for action in reversed(undo):
                    action()
                raise
    except (OSError, Outside, Unfit) as error:
        raise LabError(f"{tree}: cannot be changed: {error}", mend="the tree is as before") from None
    for path, entry in changes.items():
        if entry is None:
            _drop_empty(tree, path)


def _stage(path: Path, entry: Entry, old: Path) -> None:
    """A new file with the content and mode, owned like the one that it will replace."""
    if entry.is_link:
        os.symlink(os.fsdecode(entry.data), path)
        return
    path.write_bytes(entry.data)
    with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
        status = os.lstat(old)
        os.chown(path, status.st_uid, status.st_gid)
    path.chmod(entry.mode)


def _swap(tree: Path, path: str, new: Path | None, aside: Path, undo: list[Callable[[], object]]) -> None:
    """Put `new` (None: nothing) in the place of a file, which moves aside; each step is noted in `undo` first.

    Undoing a step that was not made does nothing.
    """
    full = tree / path
    for parent in reversed(PurePosixPath(path).parents[:-1]):
        if new is not None and not (tree / parent).is_dir():
            undo.append(partial(_drop_folder, tree / parent))
            (tree / parent).mkdir()
    if os.path.lexists(full):
        undo.append(lambda: aside.rename(full) if os.path.lexists(aside) else None)
        full.rename(aside)
    if new is not None:
        undo.append(lambda: full.unlink(missing_ok=True))
        new.rename(full)


def _drop_folder(folder: Path) -> None:
    if folder.is_dir():
        folder.rmdir()


def _verify(tree: Path, changes: dict[str, Entry | None]) -> None:
    """Read back what was written: the files of the patch, with the bytes and modes that were meant."""
    after = View(tree)
    for path, entry in changes.items():
        if after.get(path) != entry:
            raise LabError(f"{tree / path}: is not what was written", mend="does something else write there?")


def _drop_empty(tree: Path, path: str) -> None:
    """Folders that lost their last file go, as in git."""
    for parent in list(PurePosixPath(path).parents)[:-1]:
        try:
            (tree / parent).rmdir()
        except OSError:
            return
