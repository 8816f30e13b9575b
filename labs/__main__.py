"""The `labs` command: parses and calls, decides nothing."""

from __future__ import annotations

import logging
import shlex
import sys
from collections.abc import Callable
from typing import Any

import click

from labs import prepare
from labs.errors import LabError
from labs.matrix import cells
from labs.source.debian import Archive
from labs.store import Store

log = logging.getLogger("labs")


class Group(click.Group):
    """Every failure ends in one line on standard error and the exit code of its kind."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().main(*args, **{**kwargs, "standalone_mode": False})
        except click.ClickException as error:
            error.show()
            sys.exit(2)
        except LabError as error:
            for line in error.evidence.splitlines()[-20:]:
                print(f"  | {line}", file=sys.stderr)
            print(f"labs: {error}", file=sys.stderr)
            sys.exit(error.exit_code)
        except (KeyboardInterrupt, click.Abort):
            print("labs: interrupted", file=sys.stderr)
            sys.exit(130)


def cell_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--provider", default="qemu", show_default=True),
        click.option("--runtime", "runtimes", multiple=True, help="runc, crun, runc@1.1.15, path:/x/runc"),
        click.option("--kernel", "kernels", multiple=True, help="6.1, 6.12.57, 6.1.192-3, path:/x/bzImage"),
    ):
        command = option(command)
    return command


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Validation lab for kernel and container-runtime patches.

    Example: labs boot --kernel 6.1 -- uname -r
    """
    logging.basicConfig(level=logging.INFO, format="labs: %(message)s", stream=sys.stderr)


@main.command(context_settings={"ignore_unknown_options": False})
@cell_options
@click.option("--qemu-args", is_flag=True, help="Print the exact QEMU command and do not boot.")
@click.argument("command", nargs=-1)
def boot(
    kernels: tuple[str, ...], runtimes: tuple[str, ...], provider: str, qemu_args: bool, command: tuple[str, ...]
) -> None:
    """Boot a cell and run COMMAND in it; its exit code is given back.

    Example: labs boot --kernel 6.12 -- cat /proc/version
    """
    (cell,) = cells(kernels, runtimes, provider)
    store = Store.of_user()
    archive = Archive(store)
    artifacts = prepare.prepare(prepare.find(cell, archive), store, archive)
    with prepare.boot(artifacts) as booted:
        result = booted.guest.run(shlex.join(command), 3600)
        sys.stdout.buffer.write(result.stdout)
        sys.stderr.buffer.write(result.stderr)
    sys.exit(result.code)


if __name__ == "__main__":
    main()
