"""One boot of a cell that measures and ends. What runs is proven to be what was asked, as for any guest of the lab."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from labs.compare.guards import HostState, guest_trouble, host_trouble
from labs.console import ConsoleWatch
from labs.errors import LabError
from labs.guest import failure
from labs.prepare import Artifacts
from labs.probe.samples import Measure, Samples, parse, plan
from labs.provision.accel import VIRTUAL_TIME
from labs.provision.measuring import sent_by, spec_of
from labs.provision.qemu import arguments

CONSOLE = "console.log"


@dataclass(frozen=True)
class Boot:
    """What one boot measured; `trouble`: why it does not count, or ''."""

    samples: Samples
    trouble: str
    host: dict[str, Any]


def command_line(artifacts: Artifacts, seed: int) -> list[str]:
    """QEMU's arguments, without the paths of one boot."""
    return arguments(spec_of(artifacts.kernel.vmlinuz, artifacts.accelerator.name, seed), Path("/tmp"), Path("/tmp"))


def measured(
    artifacts: Artifacts, measures: Sequence[Measure], seed: int, logs: Path, parameters: Mapping[str, str] = {}
) -> Boot:
    """Boot the cell and measure. Raises KernelFailed, GuestLost, LabError; `logs` gets the console.

    A complaint of the kernel is a failure. `parameters`: module parameters beside, or instead of, those that the cell's
    planted defects have.
    """
    spec = spec_of(artifacts.kernel.vmlinuz, artifacts.accelerator.name, seed)
    switches = {**artifacts.found.switches, **parameters}
    before = HostState.now()
    data = sent_by(spec, artifacts.agent, plan(measures, seed, switches), logs)
    after = HostState.now()
    samples = parse(data, measures, switches)
    _verify(artifacts, samples.facts, spec.command_line())
    samples.facts["accelerator"] = artifacts.accelerator.name
    samples.facts["seed"] = seed
    _quiet(logs / CONSOLE)
    trouble = guest_trouble(samples.facts)
    if artifacts.accelerator != VIRTUAL_TIME:
        trouble = trouble or host_trouble(before, after, len(os.sched_getaffinity(0)))
    return Boot(samples, trouble, {"before": asdict(before), "after": asdict(after)})


def _verify(artifacts: Artifacts, facts: dict[str, Any], parameters: Sequence[str]) -> None:
    kernel = artifacts.kernel
    if kernel.build_id and facts["build_id"] != kernel.build_id:
        raise LabError(f"the guest runs another kernel: build-id is {facts['build_id']}, asked was {kernel.build_id}")
    told = str(facts.get("parameters", "")).split()
    absent = [word for word in parameters if word not in told]
    if absent:
        raise LabError(f"boot parameters did not reach the guest: {' '.join(absent)}")


def _quiet(console: Path) -> None:
    """KernelFailed for the kernel's first complaint, GuestLost where it is known to be the emulator's doing."""
    watch = ConsoleWatch(console)
    watch.poll()
    defects = [event for event in watch.events() if event.defect]
    if defects:
        raise failure("kernel complained", defects[0], defects)
