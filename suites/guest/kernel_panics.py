"""A pytest plugin (`-p kernel_panics`): the kernel of the 6.12 cells finds no root file system, and panics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from labs import prepare

machine: Callable[..., Any] = prepare.machine


def that_panics(artifacts: prepare.Artifacts, *args: Any, **kwargs: Any) -> Any:
    parameters = ("rdinit=/absent", "root=/dev/absent") if artifacts.found.cell.kernel == "6.12" else ()
    return machine(artifacts, *args, parameters=parameters, **kwargs)


prepare.machine = that_panics
