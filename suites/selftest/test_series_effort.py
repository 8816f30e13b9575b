"""How much is tried for a long series that a tree lacks, has, or has in part: it grows with its patches, no faster."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from labs.series import examine, read
from labs.series import examining as examining_module
from labs.series import place as place_module
from labs.series.step import step

NUMBER = 30
LINES = "int f{0}(void)\n{{\n\tint a = {0};\n\ta += {0};\n\treturn a;\n}}\n\n"
OLD, NEW = "\ta += {0};\n", "\tb = 1;\n"
PATCH = (
    "From 1111111111111111111111111111111111111111 Mon Sep 17 00:00:00 2001\nFrom: A <a@b>\nSubject: [PATCH] f{0}\n\n"
    "---\n--- a/x.c\n+++ b/x.c\n@@ -{1},5 +{1},5 @@ int f{0}(void)\n {{\n \tint a = {0};\n-\ta += {0};\n+\tb = 1;\n"
    " \treturn a;\n }}\n-- \n2.39\n\n"
)


@pytest.mark.parametrize(
    "absent",
    [range(NUMBER), [0], [NUMBER - 1], range(0, NUMBER, 2), []],
    ids=["all", "the first", "the last", "every other one", "none"],
)
def test_effort_grows_with_the_patches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, absent: Sequence[int]) -> None:
    text = [LINES.format(n).replace(OLD.format(n), "\tc;\n" if n in absent else NEW) for n in range(NUMBER)]
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/x.c").write_text("".join(text))
    (tmp_path / "x.mbox").write_text("".join(PATCH.format(n, 7 * n + 2) for n in range(NUMBER)))
    (series,) = read(str(tmp_path / "x.mbox"))
    steps: list[object] = []
    texts: list[object] = []

    class Text(place_module.Text):
        def __init__(self, data: bytes) -> None:
            texts.append(data)
            super().__init__(data)

    monkeypatch.setattr(examining_module, "step", lambda *words: steps.append(words) or step(*words))
    monkeypatch.setattr(place_module, "Text", Text)
    place_module.text_of.cache_clear()
    states = [row.state for row in examine(series, tmp_path / "tree")]
    assert states == ["conflict" if n in absent else "already applied" for n in range(NUMBER)]
    assert len(steps) <= 3 * NUMBER
    assert len(texts) <= (1 if len(absent) == NUMBER else 2 * NUMBER), "a file is split into lines once"
