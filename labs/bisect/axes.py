"""Which axis was asked for; kernels and runtimes of the archive, and runc's releases as Go modules."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from labs.bisect.axis import Axis, Wish, cut
from labs.bisect.commits import git_axis
from labs.bisect.parts import cell_axis, config_axis, series_axis
from labs.errors import BadInput
from labs.matrix import Cell
from labs.source.debian import Archive
from labs.source.kernels import archive_kernels, find_kernel
from labs.source.runtimes import archive_runtimes, find_runtime, module_versions

AXES = ("kernel", "runtime", "series", "git", "config", "cell")


def axis_of(wish: Wish, archive: Archive, folder: Path) -> Axis:
    """The axis between the ends that `wish` names. `folder` takes what must be written, as prefixes of a series.

    BadInput when an end is not on the axis, the ends are one, or their order contradicts `wish.first`.
    """
    if wish.axis == "series":
        return series_axis(wish, archive, folder)
    if wish.axis == "git":
        return git_axis(wish)
    if wish.axis == "config":
        return config_axis(wish, folder)
    if wish.axis == "cell":
        return cell_axis(wish)
    if not wish.good or not wish.bad:
        raise BadInput(f"--axis {wish.axis} needs both ends", mend="give --good and --bad")
    if wish.series:
        raise BadInput(f"--axis {wish.axis} compares what is packaged, without a series", mend="leave --series out")
    names = kernel_names(archive) if wish.axis == "kernel" else runtime_names(archive, wish)
    find = find_kernel if wish.axis == "kernel" else find_runtime
    ends = [getattr(find(end, archive), "version", "") for end in (wish.good, wish.bad)]
    between, low = cut(list(names), ends[0], ends[1], wish.first)
    cells = {
        version: Cell(version, wish.runtime) if wish.axis == "kernel" else Cell(wish.kernel, names[version])
        for version in between
    }
    return Axis({version: dataclasses.replace(cell, variant=wish.variant) for version, cell in cells.items()}, low)


def kernel_names(archive: Archive) -> dict[str, str]:
    """Package version -> kernel name, in kernel order: each that can be booted, once."""
    return {kernel.version: kernel.version for kernel in archive_kernels(archive) if not kernel.missing}


def runtime_names(archive: Archive, wish: Wish) -> dict[str, str]:
    """Version -> runtime name, oldest first: packages of the runtime that both ends name, or runc's Go modules."""
    ends = [find_runtime(end, archive) for end in (wish.good, wish.bad)]
    if len({end.name for end in ends}) > 1 or len({bool(end.module) for end in ends}) > 1:
        mend = "name two packages of runc or of crun, or two modules as runc@v1.2.0"
        raise BadInput("the ends are versions of different runtimes", mend=mend)
    if ends[0].module:
        return {version: f"runc@{version}" for version in module_versions()}
    kinds = {end.name for end in ends}
    return {each.version: f"{each.name}@{each.version}" for each in archive_runtimes(archive) if each.name in kinds}
