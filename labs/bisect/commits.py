"""The git axis: the commits of a local kernel tree between two revisions, each built upon the older end's objects."""

from __future__ import annotations

import os
from pathlib import Path

from labs.bisect.axis import Axis, Wish, cut
from labs.errors import BadInput, CommandFailed
from labs.git import git
from labs.matrix import Cell

SHORT = 12  # digits of a commit's name


def git_axis(wish: Wish) -> Axis:
    """Commits from the older end to the newer one, oldest first; of a merge its first parent is followed.

    `wish.kernel` names the repository, as `git:/src/linux`. BadInput when neither end is an ancestor of the other.
    """
    path = Path(os.path.expanduser(wish.kernel.removeprefix("git:").partition("#")[0])).absolute()
    if not wish.kernel.startswith("git:") or not path.is_dir():
        raise BadInput(f"--axis git needs a repository, not {wish.kernel}", mend="give --kernel git:/src/linux")
    good, bad = (_commit(path, end) for end in (wish.good, wish.bad))
    old, new = (good, bad) if _leads_to(path, good, bad) else (bad, good)
    if not _leads_to(path, old, new):
        raise BadInput(f"neither {wish.good} nor {wish.bad} is an ancestor of the other", mend="name ends of one line")
    between = [old, *git(path, "rev-list", "--first-parent", "--reverse", f"{old}..{new}").split()]
    _, low = cut(between, good, bad, wish.first)
    kernels = {name[:SHORT]: f"git:{path}#{old[:SHORT]}..{name[:SHORT]}" for name in between}
    kernels[old[:SHORT]] = f"git:{path}#{old[:SHORT]}"
    cells = {name: Cell(kernel, wish.runtime, variant=wish.variant) for name, kernel in kernels.items()}
    titles = {name: git(path, "show", "-s", "--format=%s", name) for name in cells}
    return Axis(cells, low, titles)


def _commit(path: Path, name: str) -> str:
    if not name:
        raise BadInput("--axis git needs both ends", mend="give --good and --bad")
    try:
        return git(path, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    except CommandFailed:
        raise BadInput(f"{path} has no commit {name}") from None


def _leads_to(path: Path, old: str, new: str) -> bool:
    try:
        git(path, "merge-base", "--is-ancestor", old, new)
    except CommandFailed:
        return False
    return True
