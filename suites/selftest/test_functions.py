"""Which functions a series changes, by their text and not by their hunks' headings."""

from __future__ import annotations

from pathlib import Path

import pytest

from labs.series import read
from labs.series.functions import Changed, changed_functions

BEFORE = """\
#include <linux/x.h>

struct table {
	int a;
};

static const struct ops ops = {
	.show = show,
};

/* what it does (in words) */
static int quiet(void)
{
	return 0;
}

static int
split_head(struct task *one,
		int two)
{
out:
	return two;
}

#ifdef CONFIG_X
static void twice(int a)
{
	use(a, 1);
}
#else
static void twice(int a)
{
	use(a, 2);
}
#endif

int declared(int a);

SYSCALL_DEFINE1(mine, int, a)
{
	return a;
}
"""


def series(tmp_path: Path, *texts: str) -> Path:
    """A folder of patches that make of BEFORE the first text, of that the second, and so on."""
    folder = tmp_path / "series"
    folder.mkdir()
    old = BEFORE
    for number, new in enumerate(texts, 1):
        lines = old.splitlines(), new.splitlines()
        hunk = [f"-{line}" for line in lines[0]] + [f"+{line}" for line in lines[1]]
        head = f"--- a/k/core.c\n+++ b/k/core.c\n@@ -1,{len(lines[0])} +1,{len(lines[1])} @@\n"
        (folder / f"{number:04}-x.patch").write_text(
            f"From: A <a@b>\nSubject: change {number}\n\n---\n{head}" + "\n".join(hunk) + "\n"
        )
        old = new
    (tmp_path / "tree/k").mkdir(parents=True)
    (tmp_path / "tree/k/core.c").write_text(BEFORE)
    return folder


def found(tmp_path: Path, *texts: str) -> list[tuple[int, str]]:
    (one,) = read(str(series(tmp_path, *texts)))
    changed = changed_functions(one, tmp_path / "tree")
    assert all(row == Changed(row.patch, "k/core.c", row.function) for row in changed)
    return [(row.patch, row.function) for row in changed]


@pytest.mark.parametrize(
    ("change", "by", "functions"),
    [
        ("return 0;", "return 1;", ["quiet"]),
        ("return two;", "return one ? two : 3;", ["split_head"]),
        ("int two)", "long two)", ["split_head"]),
        ("use(a, 2)", "use(a, 3)", ["twice"]),
        ("return a;", "return a + 1;", ["__do_sys_mine"]),
        ("in words", "otherwise", []),
        ("return 0;", "return\t 0; /* none */ // at all", []),
        ("int a;", "long a;", []),
        (".show = show,", ".show = shown,", []),
        ("declared(int a)", "declared(long a)", []),
        ("int declared(int a);\n", "int more(int a)\n{\n\treturn a;\n}\n", ["more"]),
        ("static int quiet(void)\n{\n\treturn 0;\n}\n", "", []),
    ],
)
def test_what_changed(tmp_path: Path, change: str, by: str, functions: list[str]) -> None:
    assert change in BEFORE
    assert [name for _, name in found(tmp_path, BEFORE.replace(change, by))] == functions


def test_each_patch_has_its_own(tmp_path: Path) -> None:
    first = BEFORE.replace("return 0;", "return 1;")
    assert found(tmp_path, first, first.replace("use(a, 1)", "use(a)")) == [(1, "quiet"), (2, "twice")]
