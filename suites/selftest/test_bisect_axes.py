"""Axes, the fewest patches, and the command, without a guest."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from archive import ROWS, FakeArchive, package
from click.testing import CliRunner
from fake_tree import git, write_tree

from labs.__main__ import main
from labs.bisect import ahead, ask, guests, simulate
from labs.bisect.axes import axis_of, kernel_names
from labs.bisect.axis import Wish, cut
from labs.bisect.step import Step
from labs.bisect.subset import smallest
from labs.build.kconfig import find_config, missing
from labs.child import Case
from labs.errors import BadInput, LabError
from labs.matrix import series_of
from labs.source import runtimes


@pytest.fixture
def archive(tmp_path: Path) -> FakeArchive:
    return FakeArchive(tmp_path / "store", [*ROWS, package("linux-source-6.1", "6.1.192-3")])


def test_kernels_between_two_versions_in_kernel_order(archive: FakeArchive, tmp_path: Path) -> None:
    """Each once, `~bpo` before the release that it was made from; those that cannot boot are left out."""
    axis = axis_of(Wish("kernel", good="6.1", bad="7.3.4"), archive, tmp_path)
    assert axis.names == (
        "6.1.192-3", "6.12.57-1~bpo12+1", "6.12.57-1", "6.12.107-1", "7.0.13-1~bpo13+1", "7.2.12-1", "7.2.13-1",
        "7.3~rc7-1~exp1", "7.3.4-1",
    )  # fmt: skip
    assert axis.low == "good" and "7.4~rc1-1~exp1" not in kernel_names(archive)
    assert axis.cells["6.12.107-1"].id == "6.12.107-1_runc"


def test_either_direction() -> None:
    names = list("abcdef")
    assert cut(names, "b", "e") == (list("bcde"), "good")
    assert cut(names, "e", "b") == cut(names, "e", "b", "good") == (list("bcde"), "bad")


@pytest.mark.parametrize(
    "words, message",
    [
        (("b", "b", ""), "both ends are b"),
        (("b", "x", ""), "x is not on the axis; it goes from a to c"),
        (("", "b", ""), "a file is not on the axis"),
        (("c", "a", "bad"), "--first bad: a, the older end, is said to be bad already"),
    ],
)
def test_ends_that_make_no_axis(words: tuple[str, str, str], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        cut(["a", "b", "c"], *words)


def test_runtimes_are_of_one_kind_and_each_once(archive: FakeArchive, tmp_path: Path) -> None:
    axis = axis_of(Wish("runtime", good="runc@1.3.3", bad="runc@1.1.5", kernel="6.12"), archive, tmp_path)
    assert axis.names == ("1.1.5+ds1-1+deb12u1", "1.1.15+ds1-2", "1.1.15+ds1-2+b4", "1.3.3+ds1-1")
    assert axis.low == "bad"
    assert axis.cells["1.1.15+ds1-2"].runtime == "runc@1.1.15+ds1-2"
    with pytest.raises(BadInput, match="different runtimes"):
        axis_of(Wish("runtime", good="runc@1.3.3", bad="crun@1.21"), archive, tmp_path)


SERIES = "patches/kernel/cpu-max-lock-split"


def test_prefixes_of_a_series(archive: FakeArchive, tmp_path: Path) -> None:
    """Base, then each patch on those before it, as series of their own with the same patches."""
    axis = axis_of(Wish("series", series=SERIES, first="good"), archive, tmp_path)
    whole = series_of(SERIES)[0].for_version("6.1.192")
    assert axis.names == ("base", *(str(number) for number in range(1, len(whole.patches) + 1)))
    assert axis.low == "bad"
    last = series_of(axis.cells[axis.names[-1]].series)[0]
    assert (last.id, last.component, last.intent) == (whole.id, whole.component, whole.intent)
    assert axis.cells["base"].role == "base" and axis.cells["1"].role == "patched"
    assert axis.titles["1"] == whole.patches[0].subject


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Commits c0 to c4 on main, of which c3 merges a branch of two; and `apart`, which main has not."""
    tree = write_tree(tmp_path / "repo")
    git(tree, "init", "-q", "-b", "main")

    def commit(name: str) -> None:
        (tree / name).touch()
        git(tree, "add", "-A")
        git(tree, "commit", "-qm", f"{name}: why")
        git(tree, "tag", name)

    for name in ("c0", "c1", "c2"):
        commit(name)
    git(tree, "checkout", "-qb", "side", "c1")
    for name in ("s1", "apart"):
        commit(name)
    git(tree, "checkout", "-q", "main")
    git(tree, "merge", "-q", "-m", "c3: why", "s1")
    git(tree, "tag", "c3")
    commit("c4")
    return tree


@pytest.mark.parametrize("good, bad, low", [("c1", "c4", "good"), ("main", "c1", "bad")])
def test_commits_by_first_parents(
    good: str, bad: str, low: str, repository: Path, archive: FakeArchive, tmp_path: Path
) -> None:
    axis = axis_of(Wish("git", good=good, bad=bad, kernel=f"git:{repository}"), archive, tmp_path)
    assert list(axis.titles.values()) == [f"c{number}: why" for number in (1, 2, 3, 4)]
    first, second, *_ = axis.names
    assert axis.low == low and axis.cells[first].kernel == f"git:{repository}#{first}"
    assert axis.cells[second].kernel == f"git:{repository}#{first}..{second}"
    assert len({cell.id for cell in axis.cells.values()}) == 4


@pytest.mark.parametrize(
    "good, bad, message",
    [
        ("c4", "apart", "neither c4 nor apart is an ancestor of the other"),
        ("c4", "v9", "has no commit v9"),
        ("c4", "main", "both ends are"),
        ("c4", "", "needs both ends"),
    ],
)
def test_commits_that_make_no_axis(
    good: str, bad: str, message: str, repository: Path, archive: FakeArchive, tmp_path: Path
) -> None:
    with pytest.raises(BadInput, match=message):
        axis_of(Wish("git", good=good, bad=bad, kernel=f"git:{repository}"), archive, tmp_path)
    with pytest.raises(BadInput, match="needs a repository"):
        axis_of(Wish("git", good="c0", bad="c4", kernel="6.1"), archive, tmp_path)


def test_releases_of_runc_as_modules(archive: FakeArchive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = "github.com/opencontainers/runc v1.1.5 v1.2.3 v1.3.1 v1.3.2 v1.4.0-rc.1 v1.4.0"
    monkeypatch.setattr(runtimes, "run", lambda *_, **__: SimpleNamespace(out=told))
    axis = axis_of(Wish("runtime", good="runc@v1.4.0", bad="runc@v1.2.3"), archive, tmp_path)
    assert axis.names == ("v1.2.3", "v1.3.1", "v1.3.2", "v1.4.0") and axis.low == "bad"
    assert axis.cells["v1.3.1"].runtime == "runc@v1.3.1"
    with pytest.raises(BadInput, match="name two packages of runc or of crun, or two modules"):
        axis_of(Wish("runtime", good="runc@v1.4.0", bad="runc@1.1.5"), archive, tmp_path)
    monkeypatch.undo()
    monkeypatch.setenv("GOPROXY", "off")
    with pytest.raises(LabError, match="cannot be asked for"):
        runtimes.module_versions()


@pytest.mark.parametrize(
    "wish, message",
    [
        (Wish("kernel", good="6.1"), "needs both ends"),
        (Wish("kernel", good="9.9", bad="6.1"), "kernel 9.9: not in the archive"),
        (Wish("kernel", good="6.1", bad="7.3.4", series=SERIES), "without a series"),
        (Wish("series"), "needs a series"),
        (Wish("series", series=f"{SERIES}+patches/kernel/unfix-k1"), "names 2 series"),
        (Wish("series", series=SERIES, good="base", bad="77"), "77 is not on the axis"),
    ],
)
def test_wishes_that_point_nowhere(wish: Wish, message: str, archive: FakeArchive, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=message):
        axis_of(wish, archive, tmp_path)


@pytest.mark.parametrize("size", [1, 2, 5, 9])
def test_the_smallest_subset_that_still_shows_it(size: int) -> None:
    dice = random.Random(size)
    for needed in itertools.chain.from_iterable(itertools.combinations(range(size), some) for some in (1, 2, 3)):
        asked = []

        def shows(subset: tuple[int, ...], needed: Any = needed, asked: Any = asked) -> bool:
            asked.append(subset)
            return set(needed) <= set(subset)

        assert smallest(range(size), shows) == needed
        assert len(asked) == len(set(asked)) <= size * size + 3 * size
    assert smallest(range(size), lambda subset: dice is not None) == ()


CASE = Case("suites/x.py::test_y[6.1_runc-z]", "6.1_runc", "x.y[z]")
TEST = "suites/x.py::test_y"


@pytest.fixture
def labs(archive: FakeArchive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """The command on a fake archive; `shown` is what each kernel is judged to be, `crash` where Ctrl-C comes."""
    monkeypatch.setattr(ask, "Archive", lambda store: archive)
    monkeypatch.setattr(ask, "find_case", lambda test, cell: CASE)
    monkeypatch.setattr(guests, "source_digest", lambda: "source")
    monkeypatch.setattr(ask, "changes", lambda axis, wish, edge, archive: [f"sched: after {axis.names[edge.low]}"])
    state = SimpleNamespace(shown={}, crash=99, asked=[], ahead=[])
    idle = SimpleNamespace(poll=lambda: 0)
    monkeypatch.setattr(ahead, "spawn", lambda argv, *, log: state.ahead.append(argv[-1]) or idle)
    monkeypatch.setattr(ahead, "end_group", lambda process: state.ahead.append("ended"))

    def judge(self: guests.Guests, name: str) -> Step:
        if len(state.asked) == state.crash:
            raise KeyboardInterrupt
        state.asked.append(name)
        outcome, _, signature = state.shown.get(name, "good").partition(":")
        return Step(name, outcome, "seen [#1]", signature, "there", 1.0, self.key(name))

    monkeypatch.setattr(guests.Guests, "__call__", judge)

    def call(*words: str, shown: dict[str, str] | None = None, crash: int = 99) -> Any:
        state.shown, state.crash, state.asked, state.ahead = shown or state.shown, crash, [], []
        done = CliRunner().invoke(main, ["bisect", *words, "--record", str(tmp_path / "r")])
        return SimpleNamespace(
            code=done.exit_code, out=done.stdout, text=done.output, asked=state.asked, ahead=state.ahead
        )

    return call


ENDS = ("--good", "6.1.190-1", "--bad", "7.3.4-1", TEST)
BAD = dict.fromkeys(["7.0.13-1~bpo13+1", "7.2.12-1", "7.2.13-1", "7.3~rc7-1~exp1", "7.3.4-1"], "bad")


def test_the_command_finds_and_tells(labs: Callable[..., Any]) -> None:
    done = labs(*ENDS, shown=BAD)
    assert done.code == 0
    assert "first bad: 7.0.13-1~bpo13+1, after 6.12.107-1" in done.out
    assert done.asked[:2] == ["7.3.4-1", "6.1.190-1"] and done.asked[-2:] == ["7.3.4-1", "6.1.190-1"]


def test_the_next_candidates_are_made_while_one_is_judged(labs: Callable[..., Any]) -> None:
    """Both that may come next, once each; nothing is left behind, however the search ends."""
    done = labs(*ENDS, shown=BAD)
    middle = done.asked[2]
    assert any(f"--kernel {middle} " in words for words in done.ahead[:2])
    before = [words for words in done.ahead if f"--kernel {done.asked[3]} " in words]
    assert before and done.ahead.index(before[0]) < 3 and done.ahead[-1] == "ended"
    assert labs(*ENDS, "--fresh", shown=BAD, crash=3).ahead[-1] == "ended"


def test_what_changed_is_told_and_a_replay_runs_nothing(labs: Callable[..., Any], tmp_path: Path) -> None:
    done = labs(*ENDS, shown=BAD)
    assert "  sched: after 6.12.107-1" in done.out
    (folder,) = (tmp_path / "r").iterdir()
    again = labs("--replay", str(folder))
    assert (again.code, again.asked, again.ahead) == (0, [], [])
    assert again.out.splitlines()[-5:] == done.out.splitlines()[-5:]
    (folder / "steps.jsonl").write_text((folder / "steps.jsonl").read_text().split("\n", 1)[1])
    assert "is none that this search asks for" in labs("--replay", str(folder)).text
    (folder / "steps.jsonl").write_text("")
    assert "the search has not ended" in labs("--replay", str(folder)).text


def test_simulated_searches_are_printed(labs: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulate, "SIZES", (5,))
    first, second = json.loads(labs("--simulate", "20", "--right", "0.9", "--json").out)
    assert (first["candidates"], first["told"], second["told"], first["searches"]) == (5, True, False, 20)
    assert first["right"] >= 17 and 0 < first["ratio"] < second["ratio"]


def test_a_later_search_takes_judged_steps_from_earlier_ones(labs: Callable[..., Any]) -> None:
    labs(*ENDS, shown=BAD)
    again = labs(*ENDS, "--json")
    (row,) = json.loads(again.out)
    assert again.asked == ["7.3.4-1", "6.1.190-1"]  # only the last look
    assert [step["cached"] for step in row["steps"]][-3:] == [True, False, False]
    assert len(labs(*ENDS, "--fresh").asked) == len(row["steps"])


def test_ctrl_c_leaves_what_resumes(labs: Callable[..., Any], tmp_path: Path) -> None:
    first = labs(*ENDS, shown=BAD, crash=3)
    assert first.code == 130
    (folder,) = (tmp_path / "r").iterdir()
    rest = labs("--resume", str(folder), "--skip", "7.0.13-1~bpo13+1")
    assert rest.code == 4
    assert "first bad: one of 7.0.13-1~bpo13+1, 7.2.12-1, after 6.12.107-1" in rest.out
    assert "7.0.13-1~bpo13+1" not in rest.asked and len(first.asked + rest.asked) == 6


@pytest.mark.parametrize(
    "words, shown, code, message",
    [
        (ENDS, {"7.3.4-1": "good"}, 2, "7.3.4-1 was said to be bad and is good"),
        (ENDS, {"7.3.4-1": "skip"}, 3, "7.3.4-1 could not be judged"),
        ((*ENDS, "--skip", "6.1.190-1"), BAD, 2, "an end must be judged"),
        ((*ENDS, "--start", "5.5"), BAD, 2, "5.5 is not on the axis"),
        (ENDS[:-1], BAD, 2, "a test is needed"),
        (("--resume", "nowhere"), BAD, 2, "is no search"),
        ((*ENDS, "--signature", "("), BAD, 2, "--signature"),
    ],
)
def test_exit_codes(
    words: tuple[str, ...], shown: dict[str, str], code: int, message: str, labs: Callable[..., Any]
) -> None:
    done = labs(*words, shown=shown)
    assert (done.code, message in done.text) == (code, True), done.text


def test_an_unrelated_failure_is_told_as_the_skip_that_it_is(
    labs: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    """An oops on the way to a lost update: in the progress, the table and the answer."""
    shown = {**dict.fromkeys(BAD, "bad:lost update"), "6.12.107-1": "bad:oops"}
    with caplog.at_level("INFO"):
        done = labs(*ENDS, shown=shown)
    assert done.code == 4 and "one of 6.12.107-1, 7.0.13-1~bpo13+1, after 6.12.57-1" in done.out
    assert "[#1]" in done.out  # the table's library would take it for a style
    assert "6.12.107-1 (halves what is left): skip, unrelated failure (oops): seen [#1]" in caplog.text


def test_scan_finds_several_changes(labs: Callable[..., Any]) -> None:
    done = labs(*ENDS, "--scan", "8", shown={**BAD, "6.12.57-1": "bad"})
    assert done.code == 4
    assert "first good: 6.12.107-1, after 6.12.57-1" in done.out and "not monotone" in done.out


@pytest.fixture
def five(tmp_path: Path) -> str:
    """A series of five patches, of which the second and the fourth make the fault together."""
    folder = tmp_path / "five"
    folder.mkdir()
    for number in range(1, 6):
        head = f"From: a <a@b>\nSubject: [PATCH {number}/5] kernel: line {number}\n\nWhy.\n---\n"
        diff = f"--- a/kernel/f{number}.c\n+++ b/kernel/f{number}.c\n@@ -1,1 +1,1 @@\n-int a;\n+int b;\n"
        (folder / f"{number:04}.patch").write_text(head + diff)
    return str(folder)


def test_the_first_bad_prefix_and_the_fewest_patches(labs: Callable[..., Any], five: str) -> None:
    shown = {**dict.fromkeys(["4", "5", "only:2+4", "only:2+3+4", "only:1+2+4"], "bad")}
    shown["only:1+4"] = "skip"
    words = ("--axis", "series", "--series", five, TEST)
    done = labs(*words, "--smallest", shown=shown)
    assert done.code == 0, done.text
    assert "first bad: 4 (kernel: line 4), after 3" in done.out
    assert "of changes 1 to 4 these suffice: 2 (kernel: line 2), 4 (kernel: line 4)" in done.out
    assert len(done.asked) - len(set(done.asked)) == 2  # the last look at both ends


def test_smallest_is_for_patches(labs: Callable[..., Any]) -> None:
    assert labs(*ENDS, "--smallest", shown=BAD).code == 2


GOOD_CONFIG = "CONFIG_64BIT=y\nCONFIG_CGROUPS=y\nCONFIG_HZ=250\n# CONFIG_KASAN is not set\nCONFIG_OLD=y\n"
BAD_CONFIG = "CONFIG_64BIT=y\nCONFIG_CGROUPS=y\nCONFIG_MEMCG=y\nCONFIG_HZ=1000\nCONFIG_KASAN=y\n"


@pytest.fixture
def configs(tmp_path: Path) -> tuple[str, str]:
    for name, text in (("good", GOOD_CONFIG), ("bad", BAD_CONFIG)):
        (tmp_path / f"{name}.config").write_text(text)
    return str(tmp_path / "good.config"), str(tmp_path / "bad.config")


def test_options_between_two_configs(archive: FakeArchive, tmp_path: Path, configs: tuple[str, str]) -> None:
    """Those that differ, in the order of the second; a candidate is the first with some changed, which must survive."""
    good, bad = configs
    axis = axis_of(Wish("config", good=good, bad=f"config:{bad}", kernel="6.1"), archive, tmp_path / "s")
    assert axis.low == "good" and list(axis.titles.values()) == [
        "CONFIG_MEMCG=y", "CONFIG_HZ=1000", "CONFIG_KASAN=y", "# CONFIG_OLD is not set",
    ]  # fmt: skip
    config = find_config(axis.cell("only:1+4").variant)
    assert config.whole and config.wanted()["CONFIG_OLD"] == "n" and config.wanted()["CONFIG_HZ"] == "250"
    problems = "\n".join(missing(config, "CONFIG_MEMCG=y\nCONFIG_OLD=y\nCONFIG_HZ=100\n", tmp_path))
    assert "CONFIG_OLD is y, asked was n" in problems
    assert "CONFIG_MEMCG is y" not in problems and "CONFIG_HZ" not in problems
    reverse = axis_of(Wish("config", good=good, bad=bad, first="good", kernel="6.1"), archive, tmp_path / "s")
    assert reverse.low == "bad" and list(reverse.titles.values())[-1] == "# CONFIG_MEMCG is not set"
    with pytest.raises(BadInput, match="do not differ in any option"):
        axis_of(Wish("config", good=good, bad=good, kernel="6.1"), archive, tmp_path / "s")
    with pytest.raises(BadInput, match="no such file"):
        axis_of(Wish("config", good=good, bad="none", kernel="6.1"), archive, tmp_path / "s")


def test_a_config_made_of_every_change_is_the_other_one(
    archive: FakeArchive, tmp_path: Path, configs: tuple[str, str]
) -> None:
    axis = axis_of(Wish("config", good=configs[0], bad=configs[1], kernel="6.1"), archive, tmp_path / "s")
    whole = find_config(axis.cells["4"].variant).wanted()
    assert {name: value for name, value in whole.items() if value != "n"} == find_config(
        f"config:{configs[1]}"
    ).wanted()


CELLS = ("--axis", "cell", "--good", "6.1.190_runc@1.1.15", "--bad", "7.3.4_runc@1.3.3", TEST)


@pytest.mark.parametrize(
    "shown, told",
    [
        ({"2": "bad", "1": "bad"}, "of changes 1 to 1 these suffice: 1 (kernel 6.1.190 -> 7.3.4)"),
        ({"2": "bad", "only:2": "bad"}, "these suffice: 2 (runtime runc@1.1.15 -> runc@1.3.3)"),
        ({"2": "bad"}, "these suffice: 1 (kernel 6.1.190 -> 7.3.4), 2 (runtime runc@1.1.15 -> runc@1.3.3)"),
    ],
)
def test_which_of_several_differences_moved_it(labs: Callable[..., Any], shown: dict[str, str], told: str) -> None:
    done = labs(*CELLS, shown=shown)
    assert done.code == 0 and told in done.out, done.text


def test_two_cells_that_are_one(labs: Callable[..., Any]) -> None:
    words = [word.replace("7.3.4_runc@1.3.3", "6.1.190_runc@1.1.15") for word in CELLS]
    assert "are one cell" in labs(*words).text and labs(*words).code == 2
