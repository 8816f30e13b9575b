"""The lab's own SSH keys: one pair that guests accept, one that guests show."""

from __future__ import annotations

from pathlib import Path

from labs.command import run
from labs.deadline import Deadline
from labs.store import Store


def guest_keys(store: Store) -> Path:
    """Folder with `client`, `client.pub`, `host` and `host.pub`, made once per store and never sent anywhere."""

    def make(folder: Path) -> None:
        for name in ("client", "host"):
            argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", f"cgroup-lab {name}", "-f", str(folder / name)]
            run(argv, Deadline(30, "making SSH keys"))

    return store.build("keys", {"for": "guests"}, make, "SSH keys of the lab")
