"""Commits of a repository as mails, read without running anything that the repository or its owner set up.

The user's repository is only asked for the names of two commits. The diffs are made in an empty repository of our
own that borrows its objects: no hook, filter, textconv, external diff, pager or format option of anybody is there.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from labs import command
from labs.deadline import Deadline
from labs.errors import BadInput, CommandFailed

SECONDS = 120.0
# Nothing of the caller's environment: GIT_DIR, GIT_EXTERNAL_DIFF, GIT_CONFIG_COUNT and more would change what git does.
_CLEAN = {
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


def _git(repository: Path, *words: str, ceiling: Path, stdout: Path | None = None) -> str:
    """Run git on a repository; `safe.directory` is given because nothing of the repository gets to run."""
    command.which("git")
    environment = {**_CLEAN, "PATH": os.environ.get("PATH", os.defpath), "GIT_CEILING_DIRECTORIES": str(ceiling)}
    options = ["-c", "safe.directory=*", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null"]
    argv = ["env", "-i", *(f"{name}={value}" for name, value in environment.items())]
    argv += ["git", *options, "-C", str(repository), *words]
    return command.run(argv, Deadline(SECONDS, f"git {words[0]}"), stdout=stdout).out.strip()


def _commit(repository: Path, name: str) -> str:
    if name.startswith("-") or not name.strip():
        raise BadInput(f"git: not the name of a commit: {name!r}", mend="write git:REPOSITORY#A..B")
    try:
        return _git(repository, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}", ceiling=repository.parent)
    except CommandFailed as error:
        raise BadInput(f"git: no commit {name!r} in {repository}", evidence=error.evidence) from None


def mbox(repository: Path, old: str, new: str) -> bytes:
    """The commits of `old..new`, oldest first, as git format-patch writes them; BadInput where there are none.

    A range with a merge is refused: format-patch leaves merges out, and with them what the merge itself changed.
    """
    if not repository.is_dir():
        raise BadInput(f"git: no folder {repository}")
    repository = repository.resolve()
    first, last = _commit(repository, old), _commit(repository, new)
    shared = _git(repository, "rev-parse", "--git-path", "objects", ceiling=repository.parent)
    shallow = repository / _git(repository, "rev-parse", "--git-path", "shallow", ceiling=repository.parent)
    with tempfile.TemporaryDirectory(prefix="cgroup-lab-series-") as folder:
        own = Path(folder) / "own.git"
        kind = "sha256" if len(first) == 64 else "sha1"
        _git(Path(folder), "init", "-q", "--bare", "--template=", f"--object-format={kind}", "own.git", ceiling=own)
        (own / "objects/info").mkdir(exist_ok=True)
        (own / "objects/info/alternates").write_text(f"{(repository / shared).resolve()}\n")
        if shallow.is_file():
            (own / "shallow").write_bytes(shallow.read_bytes())
        merges = _git(own, "rev-list", "--merges", f"{first}..{last}", ceiling=own.parent).split()
        if merges:
            raise BadInput(f"git: {old}..{new} holds a merge, {merges[0][:12]}", mend="rebase it, or name the parts")
        out = Path(folder) / "mbox"
        words = ["format-patch", "--stdout", "--no-numbered", "--full-index", "--binary", f"{first}..{last}"]
        _git(own, *words, ceiling=own.parent, stdout=out)
        data = out.read_bytes()
    if not data:
        raise BadInput(f"git: no commit in {old}..{new}", mend="the range is A..B: commits that B has and A has not")
    return data
