"""The agent: the C program that does the hot loops in the guest."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from labs.command import run
from labs.deadline import Deadline
from labs.store import Store, digest

FLAGS = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-static", "-pthread")


def agent(store: Store) -> Path:
    """The static program, built once per source and compiler."""
    sources = sorted((item.name, item.read_text()) for item in files("labs.probe").joinpath("agent").iterdir())
    compiler = run(["gcc", "--version"], Deadline(20, "asking the compiler")).out.splitlines()[0]

    def make(folder: Path) -> None:
        for name, text in sources:
            (folder / name).write_text(text)
        units = [name for name, _ in sources if name.endswith(".c")]
        run(["gcc", *FLAGS, "-o", "agent", *units], Deadline(120, "compiling the agent"), cwd=folder)

    recipe = {"sources": digest(sources), "compiler": compiler, "flags": FLAGS}
    return store.build("agent", recipe, make, "the guest agent") / "agent"
