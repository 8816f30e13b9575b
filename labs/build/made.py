"""What a build left in a folder that it could write to. It ran code that nobody vouches for: a name that should be a
file may be a link to something of the host, a pipe that never ends, or larger than memory."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from labs.errors import LabError
from labs.store import remove_tree

LIMIT = 1 << 30  # bytes of one file that is kept
TEXT_LIMIT = 16 << 20


@dataclass(frozen=True)
class Made:
    """`folder` itself is the lab's. `whose` names the build in messages; `fault` is raised for what should not be."""

    folder: Path
    whose: str
    fault: type[LabError] = LabError

    @contextlib.contextmanager
    def open(self, name: str, limit: int = LIMIT) -> Iterator[IO[bytes]]:
        """A regular file of at most `limit` bytes, for reading; no part of `name` may be a link."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with contextlib.ExitStack() as opened:
            at = os.open(self.folder, flags)
            opened.callback(os.close, at)
            for part in Path(name).parts:
                try:
                    at = os.open(part, flags, dir_fd=at)
                except OSError as error:
                    why = "it is a symbolic link" if error.errno == errno.ELOOP else error.strerror
                    raise self.fault(f"{self.whose}: its build left no file {name}: {why}") from None
                opened.callback(os.close, at)
            status = os.fstat(at)
            if not stat.S_ISREG(status.st_mode) or status.st_size > limit:
                raise self.fault(f"{self.whose}: its build left no file {name} of {limit >> 20} MiB at most")
            yield opened.enter_context(open(at, "rb", closefd=False))

    def text(self, name: str) -> str:
        with self.open(name, TEXT_LIMIT) as file:
            return file.read(TEXT_LIMIT).decode(errors="replace")

    def keep(self, name: str, target: Path) -> None:
        """Copy a file to a new one, `target`."""
        with self.open(name) as file, target.open("xb") as out:
            shutil.copyfileobj(file, out)

    def put(self, name: str, text: str) -> None:
        """Write a file that builds read, in the place of whatever stands there."""
        remove_tree(self.folder / name)
        with (self.folder / name).open("x") as out:
            out.write(text)

    def plain(self) -> None:
        """Take out all links (modules have two, to where they were built); refuse anything but folders and files."""
        for folder, folders, files in os.walk(self.folder):
            for path in (Path(folder, name) for name in (*folders, *files)):
                if path.is_symlink():
                    path.unlink()
                elif not path.is_dir() and not path.is_file():
                    name = path.relative_to(self.folder)
                    raise self.fault(f"{self.whose}: its build left {name}, which is no file and no folder")
