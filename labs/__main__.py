"""The `labs` command: parses and calls, decides nothing."""

from __future__ import annotations

import json
import logging
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from labs import cleaning, doctor, prepare
from labs.applicability import rows, targets, unsound
from labs.commandline import Group, as_json, cell_options, matrix_options, show
from labs.errors import BadInput
from labs.matrix import Cell, one_cell
from labs.matrixfile import asked
from labs.promise.families import FAMILIES
from labs.promise.faults import tallies
from labs.provision import qemu
from labs.provision.hosts import provider_for
from labs.series import Applicability, read
from labs.source.debian import Archive
from labs.source.kernels import Kernel, archive_kernels
from labs.source.runtimes import archive_runtimes
from labs.store import Store
from labs.version import upstream_of

log = logging.getLogger("labs")


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Validation lab for kernel and container-runtime patches.

    Example: labs boot --kernel 6.1 -- uname -r
    """
    logging.basicConfig(level=logging.INFO, format="labs: %(message)s", stream=sys.stderr)


@main.command("doctor")
@as_json
def doctor_(as_json: bool) -> None:
    """Tell what this host can do; exit 0 if the main job can run, else 3.

    Example: labs doctor --json
    """
    findings = doctor.examine(Store.of_user())
    show([{**asdict(f), "mend": "" if f.ok else f.mend} for f in findings], as_json)
    bad = [finding for finding in findings if not finding.ok]
    for finding in bad:
        print(f"labs: {finding.name}: {finding.found}; {finding.mend}", file=sys.stderr)
    sys.exit(3 if bad else 0)


def _kernel_note(kernel: Kernel) -> str:
    if kernel.missing:
        return f"cannot boot: {kernel.missing} is not in the archive"
    return "without modules: the archive no longer has them" if kernel.bare else ""


@main.command()
@click.option("--available", is_flag=True, help="All that the archive offers, oldest first.")
@click.option("--refresh", is_flag=True, help="Ask the archive now, whatever the age of its lists.")
@as_json
def kernels(available: bool, refresh: bool, as_json: bool) -> None:
    """List kernels: the newest of each line, or all.

    Example: labs kernels --available
    """
    archive = Archive(Store.of_user())
    if refresh:
        archive.refresh()
    found = archive_kernels(archive)
    if not available:
        newest = {upstream_of(kernel.version)[:2]: kernel for kernel in found if not kernel.missing}
        found = list(newest.values())
    show(
        [
            {
                "line": ".".join(str(part) for part in upstream_of(kernel.version)[:2]),
                "version": kernel.version,
                "release": kernel.release,
                "suite": kernel.suite,
                "note": _kernel_note(kernel),
            }
            for kernel in found
        ],
        as_json,
    )


@main.command()
@click.option("--available", is_flag=True, help="The same list: packaged runtimes are all that there are.")
@as_json
def runtimes(available: bool, as_json: bool) -> None:
    """List packaged runtimes and the root image that each runs in.

    Example: labs runtimes --json
    """
    found = archive_runtimes(Archive(Store.of_user()))
    show([{"name": r.name, "version": r.version, "image": r.image} for r in found], as_json)


@main.command("promises")
@click.option("--recorded", type=click.Path(path_type=Path), default=Path("suites/selftest/data/promises"))
@as_json
def promises_(recorded: Path, as_json: bool) -> None:
    """List the promises with the faults that were planted in recorded outcomes of each, and how many were caught.

    Example: labs promises
    """
    if not recorded.is_dir():
        raise BadInput(f"{recorded}: no recorded outcomes", mend="run it in the lab's checkout, or name their folder")
    told: list[dict[str, Any]] = []
    for family, promises in FAMILIES.items():
        path = recorded / f"{family}.json"
        saved = json.loads(path.read_text()) if path.exists() else {}
        for tally in tallies(promises, saved):
            told.append({"family": family, "promise": tally.promise, "planted": tally.planted, "caught": tally.caught})
    show(told, as_json)
    missed = [row["promise"] for row in told if not 0 < row["planted"] == row["caught"]]
    if missed:
        print(f"labs: a fault was not caught, or none is recorded: {', '.join(missed)}", file=sys.stderr)
    sys.exit(4 if missed else 0)


@main.command("cells")
@cell_options
@matrix_options
@as_json
def cells_(matrix: Path | None, set_: str, as_json: bool, **axes: Any) -> None:
    """List the cells that these options make, or a matrix file; of that also those left out, each with the reason.

    Example: labs cells --matrix ci/matrix.toml --set nightly
    """
    rows = [row.to_json() for row in asked(matrix, set_, **axes)]
    short = [{"id": row["id"], "excluded": row["excluded"], "note": row["note"]} for row in rows]
    show(rows if as_json else short if matrix else [{"id": row["id"]} for row in rows], as_json)


@main.group("series")
def series_() -> None:
    """Series of patches.

    Example: labs series check patches/kernel/cpu-max-atomic
    """


@series_.command()
@click.argument("specs", nargs=-1, required=True, metavar="SERIES...")
@click.option("--kernel", "kernels", multiple=True, help="6.1, 6.1.187, tree:PATH, git:REPO#REV; default: every line.")
@click.option("--runtime", "runtimes", multiple=True, help="runc, runc@1.1.15, runc@v1.2.0; default: all of runc.")
@as_json
def check(specs: Sequence[str], kernels: Sequence[str], runtimes: Sequence[str], as_json: bool) -> None:
    """Tell which patches fit which trees: a row a patch and target. Exit 2 for a malformed series, 1 for a misfit.

    Example: labs series check fix.mbox --kernel 6.1 --kernel 6.12
    """
    store = Store.of_user()
    archive = Archive(store)
    found: list[Applicability] = []
    for spec in specs:
        series = read(spec)
        wrong = unsound(series)
        meant = targets(series, kernels, runtimes, store, archive) if not wrong else ()
        found += wrong or [row for target in meant for row in rows(series, target)]
    show([asdict(row) for row in found], as_json)
    states = {row.state.split(" ")[0] for row in found}
    sys.exit(2 if "malformed" in states else 0 if states <= {"clean", "offset", "already"} else 1)


class BeforeDashes(click.Command):
    """A command whose words after `--` are another program's, whatever they look like."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        at = args.index("--") if "--" in args else len(args)
        ctx.obj = args[at + 1 :]
        return super().parse_args(ctx, args[:at])


def _prepared(cell: Cell) -> prepare.Artifacts:
    store = Store.of_user()
    archive = Archive(store)
    return prepare.prepare(prepare.find(cell, archive), store, archive)


@main.command()
@cell_options
@click.argument("cell", required=False)
def build(cell: str | None, **axes: Any) -> None:
    """Make or find the artifacts of a CELL (an id of `labs cells`, or its options); print their digests and paths.

    Example: labs build 6.1_runc_cpu-max-atomic.patched
    """
    artifacts = _prepared(one_cell(cell or "", **axes))
    paths = {"vmlinuz": artifacts.kernel.vmlinuz, "initramfs": artifacts.initrd, "image": artifacts.root}
    print(json.dumps({**artifacts.to_json(), "paths": {k: str(v) for k, v in paths.items()}}, indent=1))


@main.command(cls=BeforeDashes, options_metavar="[OPTIONS]", epilog="Words after -- are the command to run.")
@cell_options
@click.option("--virtual-time", is_flag=True, help="One vCPU whose clock follows its instructions.")
@click.option("--qemu-args", is_flag=True, help="Print the exact QEMU command; do not boot.")
@click.option("--gdb", type=click.IntRange(1024, 65535), metavar="PORT", help="Open QEMU's gdb stub on 127.0.0.1:PORT.")
@click.option("--ssh", "hosts", multiple=True, metavar="USER@HOST:PORT", help="A machine that already runs.")
@click.argument("cell", required=False)
@click.pass_obj
def boot(
    command: Sequence[str],
    /,
    cell: str | None,
    virtual_time: bool,
    qemu_args: bool,
    gdb: int | None,
    hosts: Sequence[str],
    **axes: Any,
) -> None:
    """Boot a CELL (an id of `labs cells`, or its options) and run what stands after `--`; without it, open a shell.

    Example: labs boot 6.12_runc -- cat /proc/version
    """
    axes["provider"] = provider_for(axes["provider"], hosts)
    named = one_cell(cell or "", **axes)
    provider_for(named.provider, hosts)
    if named.provider != "qemu" and (qemu_args or gdb):
        option = "--qemu-args" if qemu_args else "--gdb"
        raise BadInput(f"{option}: provider {named.provider} has no QEMU of the lab's own", mend="--provider qemu")
    artifacts = _prepared(named)
    artifacts = prepare.in_virtual_time(artifacts) if virtual_time else artifacts
    spec = prepare.machine(artifacts, gdb=gdb or 0, hosts=hosts)
    if qemu_args:
        print(shlex.join(qemu.arguments(spec, Path("/tmp"), Path("/tmp"))))
        return
    if gdb:
        log.info("gdb: target remote 127.0.0.1:%d (symbols: %s)", gdb, artifacts.kernel.system_map or "none")
    with prepare.boot(artifacts, spec=spec) as booted:
        if not command:
            sys.exit(booted.guest.session.shell())
        result = booted.guest.run(shlex.join(command), 3600)
        sys.stdout.buffer.write(result.stdout)
        sys.stderr.buffer.write(result.stderr)
    sys.exit(result.code)


@main.command()
@click.option("--dry-run", is_flag=True, help="Only tell what would go.")
@click.option("--record", "records", type=click.Path(path_type=Path), show_default="records")
def clean(dry_run: bool, records: Path | None) -> None:
    """Remove the store's entries, records, and leftover guests that carry the lab's mark; nothing else.

    Example: labs clean --dry-run
    """
    if records and not records.is_dir():
        raise BadInput(f"{records}: no such folder of records")
    for line in cleaning.clean(Store.of_user(), records or Path("records"), dry_run=dry_run):
        print(line)


if __name__ == "__main__":
    main()
