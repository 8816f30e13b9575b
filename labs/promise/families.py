"""All promises, family by family, in the order in which a suite runs them."""

from __future__ import annotations

from labs.promise import Promise, files, freeze, kill, limits, processes, removal, tree

FAMILIES: dict[str, tuple[Promise, ...]] = {
    module.__name__.rsplit(".", 1)[-1]: module.PROMISES
    for module in (files, tree, removal, processes, kill, freeze, limits)
}
