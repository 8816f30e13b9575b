"""From a cell to a guest: find what it names, make the artifacts, boot, and prove that what runs is what was asked."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from labs.build.agent import agent
from labs.build.image import root_image
from labs.build.initramfs import initramfs
from labs.build.kernel import KernelArtifacts, kernel_artifacts
from labs.build.keys import guest_keys
from labs.errors import LabError
from labs.guest import Asked, Guest
from labs.matrix import Cell
from labs.provision import qemu
from labs.provision.accel import Accelerator, accelerator, qemu_version
from labs.source.debian import Archive
from labs.source.kernels import Kernel, find_kernel
from labs.source.runtimes import Runtime, find_runtime
from labs.store import Store, file_digest
from labs.version import RuntimeVersion

AGENT = "/lab/agent"  # in the guest, put there by its init


@dataclass(frozen=True)
class Found:
    """A cell whose names all point somewhere; nothing has been made yet."""

    cell: Cell
    kernel: Kernel
    runtime: Runtime


@dataclass(frozen=True)
class Artifacts:
    """All that a guest of this cell is started from."""

    found: Found
    kernel: KernelArtifacts
    initrd: Path
    root: Path
    agent: Path
    keys: Path
    accelerator: Accelerator

    def to_json(self) -> dict[str, Any]:
        """Names, versions and digests, for the record."""
        kernel, runtime = self.found.kernel, self.found.runtime
        return {
            "kernel": {
                "asked": kernel.asked,
                "version": kernel.version,
                "suite": kernel.suite,
                "packages": {p.name: p.sha256 for p in kernel.packages},
                "vmlinuz_sha256": self.kernel.sha256,
                "build_id": self.kernel.build_id,
            },
            "runtime": {
                "asked": runtime.asked,
                "version": runtime.version,
                "image": runtime.image,
                "package_sha256": runtime.package.sha256 if runtime.package else "",
                "file_sha256": file_digest(runtime.path) if runtime.path else "",
            },
            "image": self.root.parent.name,
            "initramfs": self.initrd.parent.name,
            "agent_sha256": file_digest(self.agent),
            "qemu": qemu_version(),
            "accelerator": {"name": self.accelerator.name, "reason": self.accelerator.reason},
        }


@dataclass(frozen=True)
class Booted:
    """A guest of a cell, and what was read back from it. `runtime` is the program's path in the guest."""

    guest: Guest
    artifacts: Artifacts
    runtime: str
    facts: dict[str, Any] = field(default_factory=dict)


def find(cell: Cell, archive: Archive) -> Found:
    """BadInput, before anything is made or booted, when a name points nowhere."""
    return Found(cell, find_kernel(cell.kernel, archive), find_runtime(cell.runtime, archive))


def prepare(found: Found, store: Store, archive: Archive) -> Artifacts:
    """Make or find every artifact of the cell."""
    kernel = kernel_artifacts(store, archive, found.kernel)
    program = agent(store)
    return Artifacts(
        found=found,
        kernel=kernel,
        initrd=initramfs(store, archive, kernel, program),
        root=root_image(store, archive, found.runtime.image),
        agent=program,
        keys=guest_keys(store),
        accelerator=accelerator(store, archive, kernel),
    )


def machine(artifacts: Artifacts, *, gdb: int = 0, parameters: tuple[str, ...] = ()) -> qemu.MachineSpec:
    return qemu.MachineSpec(
        kernel=artifacts.kernel.vmlinuz,
        initrd=artifacts.initrd,
        root=artifacts.root,
        accelerator=artifacts.accelerator.name,
        parameters=parameters,
        gdb=gdb,
    )


@contextlib.contextmanager
def boot(artifacts: Artifacts, logs: Path | None = None, spec: qemu.MachineSpec | None = None) -> Iterator[Booted]:
    """A guest of the cell with its runtime in place; LabError when it is not what was asked for."""
    spec = spec or machine(artifacts)
    with qemu.boot(spec, artifacts.keys, logs) as guest:
        facts = guest.facts()
        release = artifacts.kernel.release if artifacts.found.kernel.packages else ""
        guest.verify(Asked(release, artifacts.kernel.build_id, spec.command_line()), facts)
        runtime, told = _install_runtime(guest, artifacts.found.runtime)
        yield Booted(guest, artifacts, runtime, {**facts, **told})


def _install_runtime(guest: Guest, runtime: Runtime) -> tuple[str, dict[str, Any]]:
    """The runtime's path in the guest, and its version and sha256 as the guest tells them."""
    path = f"/lab/{runtime.name}"
    if runtime.path:
        guest.put(runtime.path.read_bytes(), path, 0o755)
    else:
        path = guest.must(f"PATH=$PATH:/usr/sbin command -v {runtime.name}").strip()
    told = guest.must(f"{path} --version; sha256sum {path}; dpkg-query -W -f '${{Version}}' {runtime.name}")
    version = RuntimeVersion.parse(told)
    sha256, package = told.splitlines()[-2].split()[0], told.splitlines()[-1]
    if runtime.package and package != runtime.version:
        raise LabError(f"the guest has {runtime.name} {package}, asked was {runtime.version}")
    return path, {"runtime": {"name": runtime.name, "version": version.version, "package": package, "sha256": sha256}}
