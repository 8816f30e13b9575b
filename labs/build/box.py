"""The Vagrant box: the packages of the root image and a boot loader, on a disk with one partition."""

from __future__ import annotations

import os
import shutil
import struct
from pathlib import Path

from labs import catalog
from labs.build.image import bootstrap, pinned_packages, unpacked
from labs.build.keys import guest_keys
from labs.command import run
from labs.deadline import Deadline
from labs.source.debian import Archive
from labs.store import Store, digest

RECIPE = 1  # raise it when the steps below change
TOP = Path(__file__).parents[2] / "vagrant"
SSHD = Path(__file__).parent / "guest/sshd.conf"
SECTOR = 512
START = 2048  # sector where the partition begins: the boot loader's core lies before it
SIZE = 2 * 2**30  # of the disk, as vagrant/box/metadata.json tells Vagrant; sparse

# In: unpacked tree, files laid over it, keys, sshd.conf. grub-mkimage is the box's own, so that the host needs none.
FURNISH = r"""
cp -dr "$2/." "$1/"
echo lab > "$1/etc/hostname"; : > "$1/etc/machine-id"
mkdir -p "$1/root/.ssh"; chmod 700 "$1/root" "$1/root/.ssh"; cp "$3/client.pub" "$1/root/.ssh/authorized_keys"
cp "$3/host" "$1/etc/ssh/lab_host_key"; chmod 600 "$1/etc/ssh/lab_host_key"
mkdir -p "$1/etc/ssh/sshd_config.d"; cp "$4" "$1/etc/ssh/sshd_config.d/lab.conf"
chroot "$1" grub-mkimage -O i386-pc -o /boot/grub/core.img -p '(hd0,msdos1)/boot/grub' \
    biosdisk part_msdos ext2 normal linux configfile loadenv serial terminal test echo search search_fs_uuid
chroot "$1" grub-editenv /boot/grub/grubenv create
"""


def box(store: Store, archive: Archive, name: str) -> Path:
    """box.img (qcow2), with metadata.json beside it, as Vagrant unpacks a box; of the image called `name`."""
    row = catalog.image(name)
    source = TOP / "box"
    more = [line for line in (source / "packages.txt").read_text().splitlines() if not line.startswith("#")]
    packages = [*pinned_packages(archive, name), *more]
    keys = guest_keys(store)
    recipe = {"recipe": RECIPE, "image": name, "suites": row.suites, "packages": packages, "keys": keys.name}

    def make(folder: Path) -> None:
        bootstrap(archive.sources(row.suites), row.suites[0], packages, folder / "root.tar")
        with unpacked(folder / "root.tar") as (tree, as_root):
            argv = [*as_root, "sh", "-euc", FURNISH, "sh", str(tree), str(source / "root"), str(keys), str(SSHD)]
            run(argv, Deadline(60, "furnishing the box"))
            _write_disk(tree, as_root, folder / "disk.raw")
        (folder / "root.tar").unlink()
        argv = ["qemu-img", "convert", "-O", "qcow2", str(folder / "disk.raw"), str(folder / "box.img")]
        run(argv, Deadline(120, "writing the box"))
        (folder / "disk.raw").unlink()
        shutil.copy(source / "metadata.json", folder)

    return store.build("box", {**recipe, "files": _files(source)}, make, f"Vagrant box {name} (mmdebstrap)") / "box.img"


def _files(folder: Path) -> str:
    found = sorted(path for path in folder.rglob("*") if path.is_symlink() or path.is_file())
    told = {str(p.relative_to(folder)): os.readlink(p) if p.is_symlink() else p.read_text() for p in found}
    return digest({**told, "sshd": SSHD.read_text(), "furnish": FURNISH})


def _write_disk(tree: Path, as_root: tuple[str, ...], disk: Path) -> None:
    """A BIOS disk: GRUB's first sector with the partition table in it, GRUB's core behind it, one ext4 partition."""
    boot = bytearray((tree / "usr/lib/grub/i386-pc/boot.img").read_bytes())
    core = (tree / "boot/grub/core.img").read_bytes()
    assert len(core) < (START - 1) * SECTOR
    # bootable, type 0x83 (Linux), first and last place in the old cylinder form (none), first sector, sectors
    boot[446:510] = struct.pack("<B3sB3sII48x", 0x80, bytes(3), 0x83, bytes(3), START, SIZE // SECTOR - START)
    with disk.open("wb") as out:
        out.truncate(SIZE)
        out.write(boot + core)  # boot.img looks for the core in the second sector, and the core for its rest behind
    where = ["-E", f"offset={START * SECTOR}", "-L", "root", "-d", str(tree), str(disk)]
    argv = ["mke2fs", "-q", "-F", "-t", "ext4", "-m", "0", *where, f"{(SIZE - START * SECTOR) >> 10}k"]
    run([*as_root, *argv], Deadline(300, "writing the box"))
