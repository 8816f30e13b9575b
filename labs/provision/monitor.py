"""QMP for callers in several threads.

The protocol's event loop lives in a thread of its own: a Ctrl-C in a caller leaves no coroutine half done, and a QEMU
that does not answer is waited for with patience that has an end.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from qemu.qmp import QMPClient, QMPError

PATIENCE = 3.0  # seconds for one question
QMP_TROUBLE = (QMPError, OSError, EOFError)  # a time-out is an OSError
logging.getLogger("qemu.qmp").setLevel(logging.CRITICAL)  # the lab tells causes in one line of its own


class Monitor:
    """A connection to QEMU's monitor; `ask` raises one of QMP_TROUBLE."""

    def __init__(self) -> None:
        self._client = QMPClient("qemu")
        self._loop = asyncio.new_event_loop()
        self._turn = asyncio.Lock()  # nobody disconnects while an interrupted attempt to connect still cleans up
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def connect(self, path: Path) -> None:
        """Connect and negotiate; may be tried again after it has failed."""
        self._wait(lambda: self._client.connect(str(path)))

    def ask(self, command: str, **arguments: object) -> Any:
        """What QEMU returns for one command."""
        return self._wait(lambda: self._client.execute(command, arguments))

    def close(self) -> None:
        """End the connection and the thread; safe to call twice."""
        if self._loop.is_closed():
            return
        with contextlib.suppress(*QMP_TROUBLE):
            self._wait(self._client.disconnect)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _wait(self, begin: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        async def patiently() -> Any:
            async with asyncio.timeout(PATIENCE), self._turn:
                return await begin()

        future = asyncio.run_coroutine_threadsafe(patiently(), self._loop)
        try:
            return future.result()
        finally:
            future.cancel()  # of a caller that was interrupted
