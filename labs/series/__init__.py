"""Series of patches: read, checked, examined against trees, applied. Nothing here trusts a patch tool's exit code.

    read(spec, stdin=None) -> tuple[Series, ...]     a file, mbox, folder, quilt list, git:REPO#A..B, `-`; A+B gives two
    by_component(series) -> dict[str, Series]        those for one component joined in order
    Series.for_version("6.1.192-3") -> Series        the patches of that branch
    lint(series) -> tuple[Problem, ...]              file, line, what, mend; empty for a sound series
    examine(series, tree, target="") -> tuple[Applicability, ...]    a row a patch; nothing is written
    apply(series, tree, fuzz=0) -> Applied           all of it, or an error and the tree as before

Errors: BadInput (a name points nowhere), Malformed (a BadInput with `problems`), DoesNotApply (a fail). In the order in
which data flows:

    identity    patch-id, blob hashes                 values      Series, Patch, FileDiff, Hunk, Problem
    names       file names in diffs                   plain       encodings and line ends of the input
    hunks       one hunk, counted                     binary      git's binary data
    draft       a file's part, checked                diff        a body of text -> FileDiffs
    mail        mbox -> mails                         subject     [PATCH k/N]
    gather      bytes of a file -> patches            quilt       lists of patches
    manifest    series.toml                           git         a range of commits
    spec        what a person names -> Series         tree        a tree with changes in memory
    sections    functions of hunks                    place       where one hunk fits
    content     all hunks of a file                   step        one patch on a tree
    examining   a series on a tree                    applying    the same, written
"""

from labs.series.applying import Applied, apply
from labs.series.content import Landing
from labs.series.examining import Applicability, examine, lint
from labs.series.spec import read
from labs.series.values import Branch, FileDiff, Hunk, Malformed, Patch, Problem, Series, Where, by_component

__all__ = [
    "Applicability",
    "Applied",
    "Branch",
    "FileDiff",
    "Hunk",
    "Landing",
    "Malformed",
    "Patch",
    "Problem",
    "Series",
    "Where",
    "apply",
    "by_component",
    "examine",
    "lint",
    "read",
]
