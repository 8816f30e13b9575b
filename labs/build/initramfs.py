"""The initramfs: busybox, the few modules that a guest needs, the lab's init and keys. One a kernel."""

from __future__ import annotations

import lzma
import re
from importlib.resources import files
from pathlib import Path

from labs import catalog
from labs.build.kernel import KernelArtifacts
from labs.build.keys import guest_keys
from labs.command import run
from labs.deadline import Deadline
from labs.errors import LabError
from labs.source.debian import Archive, unpack
from labs.store import Store, digest, remove_tree

SCRIPTS = ("init", "rc", "serve", "inittab.net", "inittab.serial", "sshd.conf")
KEY_FILES = {"keys/authorized_keys": "client.pub", "keys/host_key": "host"}  # in the initramfs -> of the lab
MODULE_BYTES = 256 << 20  # at most, unpacked
MODES = {"init": 0o755, "rc": 0o755, "serve": 0o755}


def busybox(store: Store, archive: Archive) -> Path:
    """A static busybox, from the newest package of the archive that the machine is configured with."""
    packages = [package for package in archive.packages() if package.name == "busybox-static"]
    if not packages:
        raise LabError("the archive has no busybox-static")
    deb = archive.fetch(packages[0])

    def make(folder: Path) -> None:
        unpack(deb, folder / "tree")
        found = [path for path in (folder / "tree").rglob("busybox") if path.is_file() and path.parent.name == "bin"]
        found[0].rename(folder / "busybox")
        remove_tree(folder / "tree")

    return store.build("busybox", {"sha256": packages[0].sha256}, make) / "busybox"


def initramfs(store: Store, archive: Archive, kernel: KernelArtifacts, agent: Path | None) -> Path:
    """The cpio file for this kernel, with the agent; without one it only says that it reached init, and powers off."""
    scripts = {name: (files("labs.build") / "guest" / name).read_text() for name in SCRIPTS}
    wanted = [] if agent is None else catalog.read("guest")["modules"]
    keys = guest_keys(store)
    box = busybox(store, archive)

    def make(folder: Path) -> None:
        root = folder / "root"
        for part in ("bin", "proc", "sys", "dev", "modules"):
            (root / part).mkdir(parents=True)
        (root / "bin/busybox").write_bytes(box.read_bytes())
        (root / "bin/busybox").chmod(0o755)
        for name, text in scripts.items():
            (root / name).write_text(text)
            (root / name).chmod(MODES.get(name, 0o644))
        if agent:
            (root / "agent").write_bytes(agent.read_bytes())
            (root / "agent").chmod(0o755)
            (root / "keys").mkdir()
            for name, source in KEY_FILES.items():
                (root / name).write_bytes((keys / source).read_bytes())
        _add_modules(kernel, wanted, root / "modules")
        pack(root, folder / "initrd")
        remove_tree(root)

    recipe = {
        "kernel": kernel.sha256,
        "scripts": digest(scripts),
        "modules": wanted,
        "keys": keys.name,
        "busybox": box.parent.name,
        "agent": agent.parent.name if agent else "",
    }
    return store.build("initramfs", recipe, make, f"initramfs of {kernel.release}") / "initrd"


def measuring_initramfs(agent: Path, plan: str, folder: Path) -> Path:
    """A cpio file in `folder` for a guest that does nothing but measure: the agent as its first process, and a plan."""
    root = folder / "root"
    for part in ("proc", "sys", "dev"):
        (root / part).mkdir(parents=True)
    (root / "agent").write_bytes(agent.read_bytes())
    (root / "agent").chmod(0o755)
    (root / "plan").write_text(plan)
    pack(root, folder / "initrd")
    return folder / "initrd"


def _add_modules(kernel: KernelArtifacts, wanted: list[str], folder: Path) -> None:
    """Copy modules with all that they depend on, uncompressed, and write the order in which to load them."""
    order: list[str] = []
    for name in wanted if (kernel.modules / "lib/modules" / kernel.release).is_dir() else []:
        argv = ["modprobe", "-d", str(kernel.modules), "-S", kernel.release, "--show-depends", name]
        done = run(argv, Deadline(20, f"looking for module {name}"), expect=None)  # absent: built in, or not there
        for path in re.findall(r"^insmod (\S+)", done.out, re.M):
            source = Path(path)
            target = source.name.removesuffix(".xz")
            if target not in order:
                data = source.read_bytes()
                (folder / target).write_bytes(
                    lzma.LZMADecompressor().decompress(data, MODULE_BYTES) if source.suffix == ".xz" else data
                )
                order.append(target)
    (folder / "order").write_text("".join(f"{name}\n" for name in order))


def pack(root: Path, target: Path) -> None:
    """A tree as a cpio file; equal trees give equal files, but for times."""
    names = sorted(str(path.relative_to(root)) for path in root.rglob("*"))
    argv = ["cpio", "--quiet", "--create", "--format=newc", "--owner=0:0", "--reproducible"]
    run(argv, Deadline(60, "packing the initramfs"), stdin="\n".join(names).encode(), stdout=target, cwd=root)
