"""Where the installed `labs` begins: Ctrl-C ends it in one line also while its modules load."""

from __future__ import annotations

import importlib
import sys


def main() -> None:
    try:
        command = importlib.import_module("labs.__main__").main
    except KeyboardInterrupt:
        print("labs: interrupted", file=sys.stderr)
        sys.exit(130)
    command()
