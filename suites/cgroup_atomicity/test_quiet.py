"""After all else in the cell: what did the kernel complain of since it was booted?"""

from __future__ import annotations

import time

from labs.casebook import Bench
from labs.invariant.kernel_health import quiet_kernel


def test_quiet_kernel(bench: Bench, judge):
    events = bench.complaints()
    lines = bench.booted.guest.console.kernel_lines
    judge(quiet_kernel(events, seconds=time.monotonic() - bench.began, lines=lines))
