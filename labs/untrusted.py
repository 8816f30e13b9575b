"""Files that others may have changed: read without trust, and whatever that raises told with its place."""

from __future__ import annotations

import errno
import gzip
import io
import os
import stat
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from labs.errors import BadInput, LabError

JSON = 16 << 20  # bytes of JSON, unpacked: the largest that a run leaves has 1 MiB, and objects take 25 times as much
LINES = 64 << 20  # bytes of a log that grows by lines, each of which is an object by itself
COLUMNS = 1 << 30  # bytes that one file of columns may unpack to: of --full on a fast host some 300 MB


@contextmanager
def reading(place: str) -> Iterator[None]:
    """Whatever is raised within becomes BadInput with its place: for bytes that nobody has foreseen, json, zipfile and
    numpy raise nearly anything (RecursionError, MemoryError, NotImplementedError, RuntimeError, ...), and so may we."""
    try:
        yield
    except LabError:
        raise
    except Exception as error:
        raise BadInput(f"{place}: {error!r}") from None


def read(path: Path, limit: int = JSON) -> bytes:
    """A plain file's bytes. OSError for a link, which may lead anywhere, and for a FIFO or device, which may never end;
    ValueError for more than `limit` bytes."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "is no plain file")
        if status.st_size > limit:
            raise ValueError(f"{path.name} is larger than {limit >> 20} MiB")
        return file.read(limit)


def unpacked(path: Path) -> bytes:
    """What a gzip file of JSON holds; as `read`."""
    data = gzip.GzipFile(fileobj=io.BytesIO(read(path))).read(JSON + 1)
    if len(data) > JSON:
        raise ValueError(f"{path.name} unpacks to more than {JSON >> 20} MiB")
    return data


def columns(path: Path) -> dict[str, Any]:
    """The arrays of an .npz file, by name; as `read`. No pickle is ever read."""
    file = io.BytesIO(read(path, COLUMNS))
    with zipfile.ZipFile(file) as archive:
        if sum(member.file_size for member in archive.infolist()) > COLUMNS:
            raise ValueError(f"{path.name} unpacks to more than {COLUMNS >> 20} MiB")
    file.seek(0)
    with np.load(file, allow_pickle=False) as arrays:
        return dict(arrays)


def meta(arrays: dict[str, Any]) -> bytes:
    """The JSON that stands beside columns, as bytes in a column of its own."""
    if (data := arrays["meta"]).nbytes > JSON:
        raise ValueError(f"meta is larger than {JSON >> 20} MiB")
    return bytes(data)


def inside(folder: Path, name: str) -> Path:
    """The file of that name in a folder that others have written; BadInput when it would be elsewhere, or is none."""
    with reading(name[:80]):
        path = folder / name
        if Path(name).is_absolute() or not path.resolve().is_relative_to(folder.resolve()):
            raise BadInput(f"{name}: leads out of the record")
        if not path.is_file():
            raise BadInput(f"{name}: no such file")
        return path
