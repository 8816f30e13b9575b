"""Pages in a real browser, without its own window: headless Chromium, where it is installed."""

from __future__ import annotations

import base64
import re
import shutil
from pathlib import Path

import pytest

from labs.command import run
from labs.deadline import Deadline

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
    " --disable-component-update --disable-sync --virtual-time-budget=5000"
)


def browser() -> str:
    """The browser's name; the test is skipped, and says so, where there is none."""
    found = next(filter(shutil.which, CHROMIUM), None)
    if not found:
        pytest.skip(f"NOT CHECKED IN A BROWSER: none of {', '.join(CHROMIUM)} is installed; ci/setup.sh browser")
    return found


def width_in_browser(page: str, width: int, folder: Path) -> int:
    """How wide the page becomes, all of it unfolded, on a screen of that width, in CSS pixels.

    The page forbids scripts, so it is measured from outside: in a frame as wide as the screen.
    """
    frame = folder / "frame.html"
    text = base64.b64encode(page.replace("<details>", "<details open>").encode()).decode()
    frame.write_text(
        f"""<body><iframe id=f width={width} height=800 style="border:0"></iframe><script>
        f.onload = () => {{ document.title = "width=" + f.contentDocument.documentElement.scrollWidth; }};
        f.srcdoc = new TextDecoder().decode(Uint8Array.from(atob("{text}"), c => c.charCodeAt(0)));
        </script></body>"""
    )
    argv = [browser(), *FLAGS.split(), f"--user-data-dir={folder / 'profile'}", "--dump-dom", frame.as_uri()]
    shown = run(argv, Deadline(120, "page in a browser")).out
    found = re.search(r"<title>width=(\d+)</title>", shown)
    assert found, shown[-500:]
    return int(found[1])
