"""Commits of a repository as mails, in the form that git format-patch gives them wherever it runs."""

from __future__ import annotations

from pathlib import Path

from labs.errors import BadInput, CommandFailed
from labs.git import borrowed, git


def _commit(repository: Path, name: str) -> str:
    if name.startswith("-") or not name.strip():
        raise BadInput(f"git: not the name of a commit: {name!r}", mend="write git:REPOSITORY#A..B")
    try:
        return git(repository, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
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
    with borrowed(repository, first) as own:
        merges = git(own, "rev-list", "--merges", f"{first}..{last}").split()
        if merges:
            raise BadInput(f"git: {old}..{new} holds a merge, {merges[0][:12]}", mend="rebase it, or name the parts")
        out = own / "mbox"
        words = ["format-patch", "--stdout", "--no-numbered", "--full-index", "--binary", f"{first}..{last}"]
        git(own, *words, stdout=out)
        data = out.read_bytes()
    if not data:
        raise BadInput(f"git: no commit in {old}..{new}", mend="the range is A..B: commits that B has and A has not")
    return data
