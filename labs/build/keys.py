"""The lab's own SSH keys: one pair that guests accept, one that guests show."""

from __future__ import annotations

from pathlib import Path

from labs.command import run
from labs.deadline import Deadline
from labs.store import Store


def guest_keys(store: Store) -> Path:
    """Folder with `client`, `host`, their `.pub` halves and a `known_hosts` for people; made once per store."""

    def make(folder: Path) -> None:
        for name in ("client", "host"):
            argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", f"cgroup-lab {name}", "-f", str(folder / name)]
            run(argv, Deadline(30, "making SSH keys"))
        (folder / "known_hosts").write_text(f"cgroup-lab {(folder / 'host.pub').read_text()}")

    return store.build("keys", {"for": "guests", "recipe": 2}, make, "SSH keys of the lab")
