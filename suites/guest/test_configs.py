"""Every variant of every kernel line of the catalog keeps what it asks for: Kconfig says so, nothing is compiled.

Options are renamed and moved between versions; what a fragment asks for in vain would refuse each build of that line.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from labs import catalog
from labs.build.kbuild import Plan, _Build
from labs.build.kconfig import find_config
from labs.source.debian import Archive
from labs.source.trees import find_source, kernel_tree
from labs.store import Store

VARIANTS = [name for name, row in catalog.read("variants")["variant"].items() if row["fragments"]]


@pytest.mark.full
@pytest.mark.parametrize("line", ["6.1", "6.12", "7.2", "7.3"])
def test_every_variant_can_be_configured(line: str, tmp_path: Path) -> None:
    store = Store.of_user()
    archive = Archive(store)
    source = find_source(line, archive)
    tree = kernel_tree(store, archive, source)
    for variant in VARIANTS:
        folder = tmp_path / variant
        (folder / "objects").mkdir(parents=True)
        _Build(store, Plan(source, tree, find_config(variant), ()), tree, folder).configure()
