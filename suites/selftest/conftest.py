"""What all selftests share: the lab's progress lines stay out of pytest's, and Ctrl-C reaches what tests start."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from bridge import Project

from labs.build.agent import agent
from labs.store import Store

# what a shell starts in the background ignores it, and so would all that tests start
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def quiet() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logging.getLogger("labs"), "handlers", [])
        yield


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The guest agent, compiled for this host."""
    return agent(Store(tmp_path_factory.mktemp("store")))


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "project")
