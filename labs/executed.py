"""Which of the functions that a series changes really run in a guest: seen from outside, in the very binary tested."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from labs.casebook import Bench
from labs.console import SYMBOL
from labs.prepare import Found
from labs.provision.qemu import QemuMachine
from labs.provision.stub import watch
from labs.report.record import replace_file
from labs.series import by_component
from labs.series.functions import Changed, changed_functions
from labs.source.debian import Archive
from labs.source.trees import kernel_tree
from labs.store import Store

FILE = "executed.json"  # in a boot's folder
RUN, IDLE, UNSEEN, UNCLEAR = "executed", "not executed", "not in the binary", "name not unique"
# What gcc appends to a function that it has cloned or split: the rest of it is still the function's own code.
CLONES = (".isra.", ".constprop.", ".part.")


@dataclass(frozen=True)
class Function:
    """A changed function. `state`: executed (`case`: when it was first), not executed, not in the binary (inlined, or
    not configured), name not unique (several functions are called so; which one ran cannot be told)."""

    patch: int
    path: str
    function: str
    state: str
    case: str = ""


def changed(found: Found, store: Store, archive: Archive) -> tuple[Changed, ...]:
    """The functions that the cell's kernel series change; none without one."""
    series = by_component(found.series).get("kernel")
    if series is None or found.source is None:
        return ()
    return changed_functions(series, kernel_tree(store, archive, found.source))


def addresses(functions: Sequence[Changed], system_map: str) -> dict[str, list[tuple[str, int]]]:
    """Function -> symbols of the kernel's text that are it, with their addresses."""
    names = {one.function for one in functions}
    found: dict[str, list[tuple[str, int]]] = {name: [] for name in names}
    for address, kind, symbol in SYMBOL.findall(system_map):
        name, rest = symbol.partition(".")[0], symbol[len(symbol.partition(".")[0]) :]
        if name in names and kind in ("t", "T", "w", "W") and (not rest or rest.startswith(CLONES)):
            found[name].append((symbol, int(address, 16)))
    return found


def rows(functions: Sequence[Changed], system_map: str) -> list[tuple[Function, list[int]]]:
    """Each function with the addresses at which it begins: none where it is not there, or not alone."""
    symbols = addresses(functions, system_map)
    made = []
    for one in functions:
        there = symbols[one.function]
        names = [symbol for symbol, _ in there]
        state = UNSEEN if not there else UNCLEAR if len(set(names)) < len(names) else IDLE
        row = Function(one.patch, one.path, one.function, state)
        made.append((row, [address for _, address in there] if state == IDLE else []))
    return made


@contextlib.contextmanager
def watching(bench: Bench, functions: Sequence[Changed], folder: Path) -> Iterator[None]:
    """Note in the boot's folder which of the functions run while the block does. From when the guest answers on: what
    runs only while a kernel starts is not seen."""
    machine, system_map = bench.booted.guest.vitals.machine, bench.booted.artifacts.kernel.system_map
    if not functions or not system_map or not isinstance(machine, QemuMachine):
        yield
        return
    found = rows(functions, system_map.read_text())
    met: dict[int, str] = {}
    _write(folder, found, met)
    try:
        with watch(machine.monitor, machine.folder, [at for _, all_ in found for at in all_], _noting(bench, met)):
            yield
    finally:
        _write(folder, found, met)


def _noting(bench: Bench, met: dict[int, str]) -> Callable[[int], None]:
    return lambda address: met.setdefault(address, bench.case)  # type: ignore[return-value]


def _write(folder: Path, found: Sequence[tuple[Function, list[int]]], met: dict[int, str]) -> None:
    told = []
    for row, places in found:
        cases = [met[at] for at in places if at in met]
        told.append(asdict(replace(row, state=RUN, case=cases[0]) if cases else row))
    replace_file(folder / FILE, json.dumps(told, indent=1).encode())
