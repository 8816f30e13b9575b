"""After all else in the cell: what did the kernel complain of since it was booted?"""

from __future__ import annotations

import time

from labs.casebook import Bench
from labs.invariant.kernel_health import quiet_kernel


def test_quiet_kernel(bench: Bench, judge):
    console = bench.booted.guest.console
    console.poll()
    judge(quiet_kernel(console.events(), seconds=time.monotonic() - bench.began, lines=console.kernel_lines))
