"""The user's git repositories, read without running anything that a repository or its owner set up.

A repository is only asked for names of objects. What git would convert, filter or compare is done in an empty
repository of our own that borrows its objects: no hook, filter, textconv, external diff or format option is there.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from labs import command
from labs.deadline import Deadline

SECONDS = 600.0  # a kernel's tree is exported in a minute
# Nothing of the caller's environment: GIT_DIR, GIT_EXTERNAL_DIFF, GIT_CONFIG_COUNT and more would change what git does.
CLEAN = {
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_ALLOW_PROTOCOL": "none",  # a partial clone must not fetch
    "GIT_NO_LAZY_FETCH": "1",
    "HOME": "/nonexistent",
    "LC_ALL": "C.UTF-8",
}


def git(repository: Path, *words: str, ceiling: Path | None = None, stdout: Path | None = None) -> str:
    """Run git on a repository; `safe.directory` is given because nothing of the repository gets to run."""
    command.which("git")
    environment = {
        **CLEAN,
        "PATH": os.environ.get("PATH", os.defpath),
        "GIT_CEILING_DIRECTORIES": str(ceiling or repository.parent),
    }
    options = ["-c", "safe.directory=*", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null"]
    argv = ["env", "-i", *(f"{name}={value}" for name, value in environment.items())]
    argv += ["git", *options, "-C", str(repository), *words]
    return command.run(argv, Deadline(SECONDS, f"git {words[0]}"), stdout=stdout).out.strip()


def user() -> str:
    """Name and address of whoever works here, as git would write them into a commit; '' when it knows none."""
    told = [
        command.run(["git", "config", "--global", "--get", f"user.{name}"], Deadline(20, "git config"), expect=None)
        for name in ("name", "email")
    ]
    name, email = (one.out.strip() for one in told)
    return f"{name} <{email}>" if name and email else ""


@contextlib.contextmanager
def borrowed(repository: Path, commit: str) -> Iterator[Path]:
    """A bare repository with the objects of another, and nothing else of it; `commit` is any of its full names."""
    shared = git(repository, "rev-parse", "--git-path", "objects")
    shallow = repository / git(repository, "rev-parse", "--git-path", "shallow")
    with tempfile.TemporaryDirectory(prefix="cgroup-lab-git-") as folder:
        own = Path(folder) / "own.git"
        kind = "sha256" if len(commit) == 64 else "sha1"
        git(Path(folder), "init", "-q", "--bare", "--template=", f"--object-format={kind}", "own.git", ceiling=own)
        (own / "objects/info").mkdir(exist_ok=True)
        (own / "objects/info/alternates").write_text(f"{(repository / shared).resolve()}\n")
        if shallow.is_file():
            (own / "shallow").write_bytes(shallow.read_bytes())
        yield own
