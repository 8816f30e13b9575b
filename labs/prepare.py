"""From a cell to a guest: find what it names, make the artifacts, boot, and prove that what runs is what was asked."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from labs.build.agent import agent
from labs.build.initramfs import initramfs
from labs.build.kbuild import Plan, built_kernel
from labs.build.kconfig import Config, distro_config, find_config
from labs.build.kernel import KernelArtifacts, kernel_artifacts
from labs.build.keys import guest_keys
from labs.build.runtime import built_runtime, packaged_runtime
from labs.command import which
from labs.errors import BadInput, LabError
from labs.guest import Asked, Guest
from labs.matrix import Cell, series_of
from labs.provision import provider_of, qemu
from labs.provision.accel import VIRTUAL_TIME, Accelerator, accelerator, qemu_version
from labs.series import Series
from labs.source.debian import Archive
from labs.source.kernels import Kernel, find_kernel
from labs.source.runtimes import Runtime, find_runtime
from labs.source.trees import KernelSource, find_source, kernel_tree
from labs.store import Store, file_digest, kept_digest
from labs.version import RuntimeVersion

BOOLEAN = {"1": "Y", "0": "N"}  # how a parameter of type bool is read (kernel/params.c, param_get_bool)
AGENT = "/lab/agent"  # in the guest, put there by its init where the lab made it


@dataclass(frozen=True)
class Found:
    """A cell whose names all point somewhere; nothing has been made yet.

    With a `source` the kernel is built, with `config`. `series` are all of the cell's, for the versions that it has;
    whether they are applied is the cell's role.
    """

    cell: Cell
    kernel: Kernel
    runtime: Runtime
    source: KernelSource | None = None
    config: Config | None = None
    series: tuple[Series, ...] = ()

    @property
    def applied(self) -> tuple[Series, ...]:
        return () if self.cell.role == "base" else self.series

    def applied_to(self, component: str) -> tuple[Series, ...]:
        return tuple(one for one in self.applied if one.component == component)

    @property
    def switches(self) -> dict[str, str]:
        """Module parameter -> value that switches a planted defect on in this cell."""
        on = self.cell.role == "patched"
        return {name: str(value) for one in self.series if on for name, value in one.parameters.items()}

    @property
    def mends(self) -> frozenset[str]:
        """Invariants that must hold in this cell, and ids of known defects that it must not have any more."""
        return frozenset(name for one in self.applied if one.intent != "defect" for name in one.mends)


@dataclass(frozen=True)
class Artifacts:
    """All that a guest of this cell is started from."""

    found: Found
    kernel: KernelArtifacts
    initrd: Path
    root: Path | None  # None: a machine that already runs has its own
    agent: Path
    keys: Path
    accelerator: Accelerator
    runtime: Path | None = None  # put into the guest; None: the root image has it

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
                **self._built(),
            },
            "runtime": {
                "asked": runtime.asked,
                "version": runtime.version,
                "image": runtime.image,
                "package_sha256": runtime.package.sha256 if runtime.package else "",
                "file_sha256": file_digest(self.runtime) if self.runtime else "",
            },
            "image": self.root.parent.name if self.root else "",
            "initramfs": self.initrd.parent.name,
            "agent_sha256": file_digest(self.agent),
            "image_sha256": kept_digest(self.root) if self.root else "",
            "initramfs_sha256": file_digest(self.initrd),
            "qemu": qemu_version(),
            "accelerator": {"name": self.accelerator.name, "reason": self.accelerator.reason},
        }

    def _built(self) -> dict[str, Any]:
        """What a built kernel was made from; empty for the archive's binary."""
        found, folder = self.found, self.kernel.folder
        if not found.source or not found.config:
            return {}
        made = json.loads((folder / "facts.json").read_text())
        return {
            "source": found.source.origin,
            "source_digest": found.source.digest,
            "config": found.config.name,
            "config_sha256": made["config_sha256"],
            "compiler": made["compiler"],
            "series": {one.name: one.id for one in found.applied},
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
    series = series_of(cell.series) if cell.series else ()
    runtime = find_runtime(cell.runtime, archive)
    for one in series:
        if one.component not in ("kernel", "runc"):
            raise BadInput(f"series {one.name}: component {one.component} cannot be built", mend="kernel or runc")
        if one.component == "runc" and (runtime.name != "runc" or runtime.path):
            raise BadInput(f"series {one.name} is for runc, the cell has {runtime.asked}", mend="--runtime runc")
    source = _source(cell, any(one.component == "kernel" for one in series), archive)
    series = tuple(_fitting(one, source, runtime) for one in series)
    if source is None:
        return Found(cell, find_kernel(cell.kernel, archive), runtime, series=series)
    config = _config(cell, source)
    kernel = Kernel(cell.kernel, version=source.version)
    return Found(cell, kernel, runtime, source, config, series)


def _fitting(series: Series, source: KernelSource | None, runtime: Runtime) -> Series:
    return series.for_version(
        source.version if series.component == "kernel" and source else runtime.version.lstrip("v")
    )


def _source(cell: Cell, patched: bool, archive: Archive) -> KernelSource | None:
    """Where the kernel is built from; None when the archive's own binary is meant."""
    if patched or cell.variant or cell.kernel.startswith(("tree:", "git:")):
        return find_source(cell.kernel, archive)
    if re.fullmatch(r"\d+\.\d+\.\d+(@sha256:.*)?", cell.kernel):
        try:
            find_kernel(cell.kernel, archive)
        except BadInput:
            return find_source(cell.kernel, archive)
    return None


def _config(cell: Cell, source: KernelSource) -> Config:
    config = find_config(cell.variant or "default")
    if config.name == "distro" and not source.package:
        raise BadInput(f"variant distro: {source.origin} is not the archive's", mend="name a version of the archive")
    return config


def _kernel(found: Found, store: Store, archive: Archive) -> KernelArtifacts:
    if not found.source or not found.config:
        return kernel_artifacts(store, archive, found.kernel)
    config = found.config
    if config.name == "distro":
        assert found.source.package
        binary = kernel_artifacts(store, archive, find_kernel(found.source.package.version, archive))
        config = distro_config((binary.folder / "config").read_text())
    series = found.applied_to("kernel")
    tree = kernel_tree(store, archive, found.source if series else found.source.base or found.source)
    return built_kernel(store, Plan(found.source, tree, config, series))


def _runtime(found: Found, store: Store, archive: Archive) -> Path | None:
    """The runtime's program where it is built or given; None: the root image has it."""
    series = found.applied_to("runc")
    if found.runtime.package and not series and not provider_of(found.cell.provider).has_runtimes:
        return packaged_runtime(store, archive, found.runtime)
    if found.runtime.module or any(one.component == "runc" for one in found.series):
        return built_runtime(store, archive, found.runtime, series)
    return found.runtime.path


def prepare(found: Found, store: Store, archive: Archive) -> Artifacts:
    """Make or find every artifact of the cell."""
    provider = provider_of(found.cell.provider)
    for name in provider.programs:
        which(name)
    kernel = _kernel(found, store, archive)
    program = agent(store)
    return Artifacts(
        found=found,
        kernel=kernel,
        initrd=initramfs(store, archive, kernel, program),
        root=provider.disk(store, archive, found.runtime.image),
        agent=program,
        keys=guest_keys(store),
        accelerator=accelerator(store, archive, kernel),
        runtime=_runtime(found, store, archive),
    )


def in_virtual_time(artifacts: Artifacts) -> Artifacts:
    """The same, for a guest of one vCPU whose clock follows its instructions."""
    if artifacts.found.cell.provider != "qemu":
        raise BadInput(f"virtual time: not with provider {artifacts.found.cell.provider}", mend="--provider qemu")
    return replace(artifacts, accelerator=VIRTUAL_TIME)


def machine(
    artifacts: Artifacts,
    sizes: Mapping[str, int] | None = None,
    *,
    gdb: int = 0,
    parameters: tuple[str, ...] = (),
    hosts: Sequence[str] = (),
) -> qemu.MachineSpec:
    """`sizes`: cpus and memory_mb, where they are not the lab's own; `hosts`: machines that already run."""
    return qemu.MachineSpec(
        kernel=artifacts.kernel.vmlinuz,
        initrd=artifacts.initrd,
        root=artifacts.root,
        accelerator=artifacts.accelerator.name,
        parameters=(*provider_of(artifacts.found.cell.provider).parameters, *parameters),
        gdb=gdb,
        hosts=tuple(hosts),
        **{**(sizes or {}), **({"cpus": 1} if artifacts.accelerator == VIRTUAL_TIME else {})},
    )


@contextlib.contextmanager
def boot(artifacts: Artifacts, logs: Path | None = None, spec: qemu.MachineSpec | None = None) -> Iterator[Booted]:
    """A guest of the cell with its runtime in place; LabError when it is not what was asked for."""
    spec = spec or machine(artifacts)
    with provider_of(artifacts.found.cell.provider).boot(spec, artifacts.keys, logs) as guest:
        facts = guest.facts()
        if artifacts.found.cell.provider == "qemu":
            facts["qemu_arguments"] = qemu.arguments(spec, Path("FOLDER"), Path("BOOT"))
        release = artifacts.kernel.release if artifacts.found.kernel.packages else ""
        guest.verify(Asked(release, artifacts.kernel.build_id, spec.command_line()), facts)
        facts |= verify_config(guest, artifacts.kernel.folder / "config") if artifacts.found.source else {}
        if spec.hosts:
            guest.put(artifacts.agent.read_bytes(), AGENT, 0o755)
        runtime, told = _install_runtime(guest, artifacts)
        facts |= told | switch_on(guest, artifacts.found.switches) | _series(artifacts.found.applied)
        yield Booted(guest, artifacts, runtime, facts)


def verify_config(guest: Guest, built: Path) -> dict[str, Any]:
    """The digest of the config that the running kernel tells; LabError when it is not the one that was built."""
    told = guest.run("test ! -e /proc/config.gz || busybox zcat /proc/config.gz | sha256sum").out.split()
    if told and told[0] != file_digest(built):
        raise LabError(f"the guest runs another config: its sha256 is {told[0]}, built was {file_digest(built)}")
    return {"config_sha256": told[0]} if told else {}


def _series(applied: Sequence[Series]) -> dict[str, Any]:
    names, ids = "+".join(one.name for one in applied), "+".join(one.id for one in applied)
    return {"series": {"name": names, "patch_id": ids}} if applied else {}


def switch_on(guest: Guest, switches: dict[str, str]) -> dict[str, Any]:
    """Set the module parameters of planted defects; LabError when the kernel that runs has none of that name."""
    for name, value in switches.items():
        module, _, parameter = name.partition(".")
        path = shlex.quote(f"/sys/module/{module}/parameters/{parameter}")
        told = guest.must(f"echo {shlex.quote(value)} > {path} && cat {path}").strip()
        if told not in (value, BOOLEAN.get(value)):
            raise LabError(f"parameter {name} is {told} after {value} was written to it")
    return {"switches": switches} if switches else {}


def _install_runtime(guest: Guest, artifacts: Artifacts) -> tuple[str, dict[str, Any]]:
    """The runtime's path in the guest, and its version and sha256 as the guest tells them."""
    runtime = artifacts.found.runtime
    path = f"/lab/{runtime.name}"
    if artifacts.runtime:
        guest.put(artifacts.runtime.read_bytes(), path, 0o755)
    else:
        path = guest.must(f"PATH=$PATH:/usr/sbin command -v {runtime.name}").strip()
    told = guest.sections(
        f"show version {path} --version\nshow sum sha256sum {path}\n"
        f"show package dpkg-query -W -f '${{Version}}' {runtime.name}\n"
    )
    if not told["version"] or not told["sum"]:
        said = guest.run(f"{path} --version").err.strip() or "without a word"
        raise LabError(f"{runtime.name} does not run in the guest: {said}")
    version = RuntimeVersion.parse(told["version"])
    sha256, package = told["sum"].split()[0], told["package"]
    if runtime.package and not artifacts.runtime and package != runtime.version:
        raise LabError(f"the guest has {runtime.name} {package}, asked was {runtime.version}")
    return path, {"runtime": {"name": runtime.name, "version": version.version, "package": package, "sha256": sha256}}
