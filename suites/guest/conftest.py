"""The slow checks of this folder run when they are asked for: with `--full`, or with a `-m` expression."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.register_assert_rewrite("provider_contract")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.option.full or config.option.markexpr:
        return
    here = Path(__file__).parent
    slow = [item for item in items if here in item.path.parents and item.get_closest_marker("full")]
    if slow:
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in slow]
