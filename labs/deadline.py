"""One deadline for a whole piece of work, handed down to every wait inside it."""

from __future__ import annotations

import time
from collections.abc import Callable

from labs.errors import DeadlineExpired

# Measured: a Debian cloud kernel reaches init 4 to 8 times later under TCG than the same kernel under KVM does.
EMULATION_FACTOR = 8.0
# In virtual time one thread of the host does what two do otherwise, and to wait takes as long as to work.
FACTORS = {"tcg": EMULATION_FACTOR, "icount": 2.5 * EMULATION_FACTOR}


class Deadline:
    """A moment on the monotonic clock after which waiting is an error.

    >>> Deadline(60, "boot").remaining() <= 60
    True
    """

    def __init__(self, seconds: float, what: str) -> None:
        self.seconds = seconds
        self.what = what
        self._end = time.monotonic() + seconds

    @classmethod
    def scaled(cls, seconds: float, what: str, accelerator: str) -> Deadline:
        """A deadline meant for hardware virtualisation, stretched when the guest is emulated."""
        return cls(seconds * FACTORS.get(accelerator, 1.0), what)

    def remaining(self) -> float:
        """Seconds left, never negative."""
        return max(0.0, self._end - time.monotonic())

    @property
    def expired(self) -> bool:
        return time.monotonic() >= self._end

    def check(self, evidence: str = "") -> None:
        """Raise DeadlineExpired once the moment has passed."""
        if self.expired:
            raise DeadlineExpired(f"{self.what}: not done after {self.seconds:.0f} s", evidence=evidence)

    def wait_for(self, ready: Callable[[], bool], poll: float = 0.02) -> None:
        """Poll `ready` until it is true; DeadlineExpired when it never becomes so."""
        while not ready():
            self.check()
            time.sleep(min(poll, self.remaining()))
