"""ContainerStep: one command of a container runtime, as the guest saw it run."""

from __future__ import annotations

from dataclasses import dataclass

STEPS = ("create", "start", "state", "kill", "delete")  # a container's whole life, in order

# Exit codes of the agent's own checks after a step whose command gave 0 (agent/containers.c).
OWN_CODES = {200: "the runtime does not report it as running", 201: "its processes did not end in time"}


@dataclass(frozen=True)
class ContainerStep:
    """One call of the runtime for one container; `worker` is the parallel caller that made it.

    `start` and `end` are ns on the guest's CLOCK_MONOTONIC. `code` is the exit code or one of OWN_CODES; negative:
    ended by that signal, as when our deadline struck.
    """

    container: str
    worker: int
    step: str
    start: int
    end: int
    code: int
    stderr: str
