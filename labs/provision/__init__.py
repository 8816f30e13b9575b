"""Machines: the host's accelerator and budget, and the providers that turn a cell into a guest."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labs.source.debian import Archive
from labs.store import Store

logging.getLogger("vagrant").setLevel(logging.CRITICAL)  # python-vagrant complains when it is merely imported

# A provider's module is imported on use: each brings libraries of its own.
PROVIDERS = {"qemu": "labs.provision.qemu", "vagrant": "labs.provision.vagrantbox", "ssh": "labs.provision.ssh"}


@dataclass(frozen=True)
class Provider:
    """How a cell becomes a machine."""

    disk: Callable[[Store, Archive, str], Path | None]  # of the image with that name; None: the machine has its own
    boot: Callable[..., AbstractContextManager[Any]]  # (MachineSpec, keys, logs or None) -> Guest
    parameters: tuple[str, ...] = ()  # of the kernel, beside the lab's
    programs: tuple[str, ...] = ()  # on the host, beside those that every provider needs
    has_runtimes: bool = True  # its disk holds the packaged runtimes


def provider_of(name: str) -> Provider:
    found: Provider = importlib.import_module(PROVIDERS[name]).PROVIDER
    return found
