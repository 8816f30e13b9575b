"""What the commands of `labs` share: how they end, the options that name cells, how rows are shown."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from labs.errors import foreseen

# Commands that bring large libraries (plots, statistics): imported when they are asked for, so that no other waits.
ON_USE = {
    "bisect": ("labs.bisect.ask", "bisect_"),
    "capsule": ("labs.signoff.capsules", "capsule_"),
    "compare": ("labs.compare.ask", "compare"),
    "ci": ("labs.run_commands", "ci"),
    "diff": ("labs.run_commands", "diff"),
    "run": ("labs.run.ask", "run_"),
    "history": ("labs.run_commands", "history"),
    "index": ("labs.run_commands", "index"),
    "judge": ("labs.bisect.judge", "judge"),
    "prove": ("labs.prove.command", "prove"),
    "replay": ("labs.signoff.capsules", "replay"),
    "signoff": ("labs.signoff.command", "signoff"),
    "summary": ("labs.run_commands", "summary"),
    "verify": ("labs.signoff.command", "verify_"),
}


class Group(click.Group):
    """Every failure ends in one line on standard error and the exit code of its kind."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), *(ON_USE if ctx.parent is None else ())])

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if ctx.parent is None and name in ON_USE:
            module, attribute = ON_USE[name]
            command: click.Command = getattr(importlib.import_module(module), attribute)
            return command
        return super().get_command(ctx, name)

    def main(self, *args: Any, **kwargs: Any) -> Any:
        for number in (signal.SIGTERM, signal.SIGINT):  # sessions and guests end, too, also of a shell's background job
            signal.signal(number, signal.default_int_handler)
        try:
            with printed():
                return super().main(*args, **{**kwargs, "standalone_mode": False})
        except click.exceptions.NoArgsIsHelpError as error:
            error.show()
            sys.exit(2)
        except click.ClickException as error:
            context = getattr(error, "ctx", None)
            mend = f" (see {context.command_path} --help)" if context else ""
            print(f"labs: {error.format_message()}{mend}", file=sys.stderr)
            sys.exit(2)
        except (KeyboardInterrupt, click.Abort):
            print("labs: interrupted", file=sys.stderr)
            sys.exit(130)
        except Exception as error:
            known = foreseen(error)
            for line in known.evidence.splitlines()[-20:]:
                print(f"  | {line}", file=sys.stderr)
            print(f"labs: {known}", file=sys.stderr)
            sys.exit(known.exit_code)


@contextlib.contextmanager
def printed() -> Iterator[None]:
    """What is printed meanwhile has arrived at the end: OSError where it cannot, as on a full disk."""
    try:
        yield
    finally:
        try:
            sys.stdout.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python itself would fail in it once more
            raise


def cell_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that name cells, as pytest takes them."""
    for option in (
        click.option("--provider", default="", show_default="qemu"),
        click.option("--cell", "globs", multiple=True, metavar="GLOB", help="Only ids that match; repeats."),
        click.option("--variant", "variants", multiple=True, help="config of a built kernel: default, lockdep, ..."),
        click.option("--series", "series", multiple=True, help="patches/kernel/x, A+B, an mbox, ..."),
        click.option("--runtime", "runtimes", multiple=True, help="runc, crun, runc@1.1.15, path:/x/runc"),
        click.option("--kernel", "kernels", multiple=True, help="6.1, 6.12.57, 6.1.192-3, path:/x/bzImage"),
    ):
        command = option(command)
    return command


def matrix_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that name a matrix file and a set of it."""
    command = click.option("--set", "set_", default="", metavar="NAME", help="Only this set of the matrix.")(command)
    a_file = click.Path(path_type=Path)
    return click.option("--matrix", type=a_file, metavar="FILE", help="The cells of a matrix file.")(command)


def _regex(ctx: click.Context, option: click.Parameter, pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise click.BadParameter(f"{pattern!r}: {error}") from None
    return pattern


signature_option = click.option("--signature", "pattern", default="", metavar="REGEX", callback=_regex,
                                help="Only failures that match are bad.")  # fmt: skip
as_json = click.option("--json", "as_json", is_flag=True, help="One JSON array on standard output, nothing else.")


def show(rows: Sequence[dict[str, Any]], as_json: bool) -> None:
    """Print rows as JSON or as a table with a column a key."""
    if as_json:
        print(json.dumps(rows, indent=1))
        return
    table = Table()
    for column in rows[0] if rows else ():
        table.add_column(column, overflow="fold", no_wrap=column == "id")
    for row in rows:
        table.add_row(*(Text(str(value)) for value in row.values()))  # as it stands: [x] in a name is no markup
    Console().print(table)
