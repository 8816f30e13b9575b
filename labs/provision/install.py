"""A kernel for one boot on a machine that already runs: put beside its own, and taken away again.

What the machine boots by default is never changed. GRUB and systemd-boot can boot another entry once: when that kernel
panics, or is switched off, the next boot is the machine's own again. Debian and Ubuntu are tried; systemd-boot, and the
Fedora family's names (grub2-*, dracut), are written down here and not tried.
"""

from __future__ import annotations

import io
import json
import re
import shlex
import tarfile
from dataclasses import dataclass
from pathlib import Path

from labs.errors import LabError
from labs.guest import Guest

HOME = "/boot/cgroup-lab"  # the kernel and its initramfs; what else was made is listed in `made` there
SBIN = "export PATH=$PATH:/usr/sbin:/sbin\n"  # not every sshd gives it to root
BEGIN, END = "# begin cgroup-lab", "# end cgroup-lab"

INSPECT = f"""{SBIN}
show boot_id cat /proc/sys/kernel/random/boot_id
show release uname -r
show parameters cat /proc/cmdline
show consent cat /etc/cgroup-lab-consent
show virtualization systemd-detect-virt
show loader sh -c {
    shlex.quote('''
if command -v grub-reboot && grep -q custom.cfg /boot/grub/grub.cfg; then echo grub
elif command -v grub2-reboot && [ -d /boot/grub2 ]; then echo grub2
elif bootctl is-installed; then echo systemd-boot; fi | tail -n 1''')
}
show initramfs sh -c 'command -v mkinitramfs || command -v dracut'
show busybox sh -c 'command -v busybox'
show leftover ls -d {HOME}
show lab ls -d /lab
"""

# The machine's own configuration but for what makes it slow. MODULES=dep: the drivers of the devices that `/` lies on,
# as /sys tells them (initramfs.conf(5)); MODULES=most where that finds none, as for a root on ZFS or over the network.
# In /lab, since hooks must be executable and /run and /tmp may forbid that. OUT, RELEASE.
MKINITRAMFS = """
set -e
rm -rf /lab/initramfs-tools; mkdir -p /lab; cp -a /etc/initramfs-tools /lab/
for modules in dep most; do
    printf '%s\\n' MODULES=$modules COMPRESS=gzip COMPRESSLEVEL=1 > /lab/initramfs-tools/conf.d/zz-cgroup-lab
    if mkinitramfs -d /lab/initramfs-tools -o "$1" "$2"; then rm -r /lab/initramfs-tools; exit; fi
done
exit 1
"""


@dataclass(frozen=True)
class Loader:
    """How a boot loader is told to boot an entry once; both scripts are idempotent. %s: parameters of the kernel."""

    arm: str
    disarm: str


def _grub(folder: str, prefix: str) -> Loader:
    configuration, environment = f"{folder}/custom.cfg", f"{folder}/grubenv"
    disarm = f"""
        if [ -f {configuration} ]; then sed -i '/^{BEGIN}$/,/^{END}$/d' {configuration}; fi
        if [ -f {configuration} ] && [ ! -s {configuration} ]; then rm {configuration}; fi
        if [ -f {environment} ]; then {prefix}-editenv {environment} unset next_entry; fi"""
    arm = f"""{disarm}
        uuid=$({prefix}-probe --target=fs_uuid {HOME}); path=$({prefix}-mkrelpath {HOME})
        {{ echo '{BEGIN}'; echo 'menuentry "cgroup-lab" --id cgroup-lab {{'
           echo "search --no-floppy --fs-uuid --set=root $uuid"
           echo "linux $path/vmlinuz "%s; echo "initrd $path/initrd"; echo '}}'; echo '{END}'; }} >> {configuration}
        {prefix}-reboot --boot-directory=/boot cgroup-lab"""
    return Loader(arm, disarm)


LOADERS = {
    "grub": _grub("/boot/grub", "grub"),
    "grub2": _grub("/boot/grub2", "grub2"),
    "systemd-boot": Loader(
        f"""esp=$(bootctl -x); cp {HOME}/vmlinuz $esp/cgroup-lab-vmlinuz; cp {HOME}/initrd $esp/cgroup-lab-initrd
        printf '%%s\\n' 'title cgroup-lab' 'linux /cgroup-lab-vmlinuz' 'initrd /cgroup-lab-initrd' "options "%s \
            > $esp/loader/entries/cgroup-lab.conf
        bootctl set-oneshot cgroup-lab.conf""",
        "esp=$(bootctl -x); bootctl set-oneshot ''; rm -f $esp/cgroup-lab-* $esp/loader/entries/cgroup-lab.conf",
    ),
}


def inspect(machine: Guest, name: str) -> dict[str, str]:
    """Facts of the machine as it is; LabError when it may not, or cannot, be used."""
    found = machine.sections(INSPECT)
    if not found["consent"]:
        said = f"echo yes > /etc/cgroup-lab-consent # on {name}: it will be rebooted into other kernels"
        raise LabError(f"{name} has no consent file", mend=said)
    for what, package in (("loader", "GRUB with custom.cfg, or systemd-boot"), ("initramfs", "initramfs-tools")):
        if not found[what]:
            raise LabError(f"{name}: there is no {what} that the lab can use", mend=f"it needs {package}")
    if found["lab"] and not found["leftover"]:
        raise LabError(f"{name} has a folder /lab of its own", mend="rename it: the lab makes and removes one")
    if not found["busybox"]:
        raise LabError(f"{name}: busybox is not installed", mend="apt-get install busybox-static")
    return found


def own_parameters(line: str) -> list[str]:
    """The parameters of the running kernel that another one is to have too; LabError for one that cannot be passed."""
    words = [word for word in line.split() if not word.startswith(("BOOT_IMAGE=", "initrd="))]
    strange = [word for word in words if not re.fullmatch(r"[\w.,:=/@%+-]+", word)]
    if strange:
        raise LabError(f"boot parameter {strange[0]!r} of the machine cannot be passed on")
    return words


def install(machine: Guest, facts: dict[str, str], kernel: Path, parameters: tuple[str, ...]) -> None:
    """Put the kernel of the folder `kernel` there, and have it booted once, at the next boot."""
    release = json.loads((kernel / "facts.json").read_text())["release"]
    if not release:
        raise LabError("the kernel does not tell its release", mend="a machine needs one that does")
    modules = kernel / "root/lib/modules" / release
    target, config = f"/lib/modules/{release}", f"/boot/config-{release}"
    made = [path for path in (target, config) if machine.run(f"test -e {shlex.quote(path)}").code]
    machine.must(f"mkdir -p {HOME}; printf '%s\\n' {shlex.join(made)} > {HOME}/made")
    machine.put((kernel / "vmlinuz").read_bytes(), f"{HOME}/vmlinuz")
    if config in made:
        machine.put(_config(kernel), config)
    if target in made:
        machine.must(f"mkdir -p {shlex.quote(target)}")
        if modules.is_dir():
            machine.must(f"tar -xz -C {shlex.quote(target)}", 600, stdin=_packed(modules))
        machine.must(f"{SBIN}depmod {shlex.quote(release)}", 300)
    else:
        _same(machine, release, kernel)
    make = f"sh -c {shlex.quote(MKINITRAMFS)} mkinitramfs" if "mkinitramfs" in facts["initramfs"] else "dracut --force"
    machine.must(f"{SBIN}{make} {HOME}/initrd {shlex.quote(release)}", 600)
    words = [*own_parameters(facts["parameters"]), *parameters]
    machine.must(f"set -e\n{SBIN}" + LOADERS[facts["loader"]].arm % shlex.quote(" ".join(dict.fromkeys(words))))


def _config(kernel: Path) -> bytes:
    """What mkinitramfs looks at to see how an initramfs may be packed; it makes none without."""
    path = kernel / "config"
    return path.read_bytes() if path.exists() else b"CONFIG_RD_GZIP=y\n"


def _same(machine: Guest, release: str, kernel: Path) -> None:
    """The machine has a kernel of that release: its modules fit only when it is the very same."""
    wanted = json.loads((kernel / "facts.json").read_text())["sha256"]
    told = machine.run(f"sha256sum < {shlex.quote(f'/boot/vmlinuz-{release}')}").out.split()
    if told[:1] != [wanted]:
        raise LabError(
            f"the machine has another kernel that is called {release}", mend="its modules would be overwritten"
        )


def _packed(folder: Path) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", compresslevel=1) as tar:
        tar.add(folder, arcname=".", filter=lambda entry: None if entry.name in ("./build", "./source") else entry)
    return out.getvalue()


def remove(machine: Guest, loader: str) -> None:
    """Take away all that `install` has made; what a run that was killed has left, too."""
    machine.must(f"""set -e
        {SBIN}
        {LOADERS[loader].disarm}
        if [ -f {HOME}/made ]; then
            while read -r made; do
                case $made in /lib/modules/?* | /boot/config-?*) rm -rf "$made" ;; esac
            done < {HOME}/made
        fi
        rm -rf /lab {HOME}""")
