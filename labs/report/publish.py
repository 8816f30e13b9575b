"""The reports of a run, written beside its evidence, and a copy where people look for the latest."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from labs.errors import LabError
from labs.report.html import write_page
from labs.report.junit import write_junit
from labs.report.record import Run


def publish(run: Run, latest: Path) -> None:
    """Write junit.xml and index.html into the run's folder, then into `latest`; LabError when that is not possible."""
    write_junit(run, run.path / "report/junit.xml")
    write_page(run, run.path / "report/index.html")
    try:
        latest.mkdir(parents=True, exist_ok=True)
        for path in (run.path / "report").iterdir():
            part = latest / f".{path.name}.{os.getpid()}"
            shutil.copyfile(path, part)
            part.replace(latest / path.name)
    except OSError as error:
        raise LabError(f"cannot write {latest}: {error.strerror}") from None
