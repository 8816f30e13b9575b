"""What can go wrong, in kinds. Each kind knows its exit code; a person sees one line: what, where, the mend."""

from __future__ import annotations

import os
import traceback

TRACEBACK = "LABS_TRACEBACK"  # set in the environment: the traceback of what nobody foresaw is shown, too


class LabError(Exception):
    """Infrastructure trouble: no boot, no space, no network. Never a verdict on the kernel under test."""

    exit_code = 3

    def __init__(self, what: str, *, mend: str = "", evidence: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.mend = mend
        self.evidence = evidence  # raw text (console tail, tool output) that backs `what`; kept in the record
        self.attempts = 1  # how often it was tried before it was given up

    def __str__(self) -> str:
        return f"{self.what}; {self.mend}" if self.mend else self.what


class BadInput(LabError):
    """The person asked for something that does not exist or is malformed."""

    exit_code = 2


class MissingProgram(LabError):
    """A program the lab calls is not installed; `mend` names the package that brings it."""


class CommandFailed(LabError):
    """A host program ended with a code that was not expected."""


class DeadlineExpired(LabError):
    """A wait reached its deadline."""


class NoSpace(LabError):
    """Memory, disk or ports do not suffice for what was planned."""


class GuestLost(LabError):
    """The guest ended or stopped answering, and its kernel did not say why."""


class KernelFailed(LabError):
    """The kernel under test panicked, oopsed or hung: its own failure (`fail`), never infrastructure."""

    exit_code = 1


class SeriesFailed(LabError):
    """The series under test fails before any guest is started (`fail`); its base is sound."""

    exit_code = 1


class DoesNotApply(SeriesFailed):
    """A patch does not fit the tree it was meant for; the tree is as it was."""


class DoesNotCompile(SeriesFailed):
    """The base compiles, the patched tree does not."""


def foreseen(error: Exception) -> LabError:
    """Any error as one of the lab's: a path that this user may not use is bad input, all else infrastructure."""
    if isinstance(error, LabError):
        return error
    if os.environ.get(TRACEBACK):
        traceback.print_exception(error)
    if isinstance(error, OSError) and error.strerror:
        kind = BadInput if isinstance(error, PermissionError) else LabError
        return kind(": ".join(str(part) for part in (error.filename, error.strerror) if part is not None))
    what = " ".join(f"{type(error).__name__}: {error}".split())
    return LabError(what, mend=f"with {TRACEBACK}=1 it is told where")
