"""The model of cgroup v2 against what real kernels said (data/model), and against faults planted in that."""

from __future__ import annotations

import errno
import json
import random
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from simulated_kernel import KERNEL

from labs.errors import LabError
from labs.model import carry
from labs.model.act import NEVER_RETURNED, Act, Case, Ran, Seen
from labs.model.carry import ROOT, remains, script, told
from labs.model.cgroup import START, apply
from labs.model.draw import batches
from labs.model.driver import overlaps
from labs.model.explain import Undecided, wrong
from labs.model.files import FILES, NO_LIMIT, PAGE_LIMIT
from labs.model.fit import mask
from labs.model.numbers import Refused, first_number, pages, signed, unsigned
from labs.model.pool import PLACES, THEMES, VALUES, pool
from labs.model.saved import dump, load
from labs.model.versions import CHANGES, Kernel
from labs.probe.script import NEVER, Op, Outcome

DATA = sorted((Path(__file__).parent / "data/model").glob("*.jsonl"))


def recorded(path: Path) -> tuple[Kernel, list[Ran]]:
    """The kernel and its runs as record_model.py has written them."""
    facts, _, rest = path.read_text().partition("\n")
    row = json.loads(facts)
    names = (frozenset(row[name]) for name in ("offered", "known", "files"))
    return Kernel(tuple(row["version"]), *names), load(rest)


@pytest.fixture(params=DATA, ids=lambda path: path.stem)
def real(request: pytest.FixtureRequest) -> tuple[Kernel, list[Ran]]:
    return recorded(request.param)


def test_the_model_explains_what_real_kernels_said(real):
    kernel, rans = real
    assert len(rans) >= 100 and sum(bool(ran.lanes) for ran in rans) >= 50
    assert [str(found) for ran in rans if (found := wrong(ran, kernel))] == []


def test_recorded_runs_cover_the_model(real):
    """Each kind of act, of error and of file occurs, or the records prove little."""
    _, rans = real
    told = [(act, seen) for ran in rans for act, seen in ran]
    assert {act.name for act, _ in told} >= {"mkdir", "rmdir", "write", "read", "spawn", "attach", "members", "kill"}
    assert {seen.error for _, seen in told} >= {"", "ENOENT", "EINVAL", "ERANGE", "EBUSY"}
    assert {act.file for act, _ in told} >= set(FILES)


def test_each_other_result_of_a_sequence_is_caught(real):
    """Whatever a sequence told, had it told something else, the model would have missed it: errors and texts."""
    kernel, rans = real
    rng = random.Random(1)
    missed = []
    for ran in (ran for ran in rans if ran.before and not ran.lanes):
        for _ in range(5):
            at = rng.randrange(len(ran.before))
            act, seen = ran.before[at]
            others = [Seen("EIO"), Seen("", "42") if act.reads else Seen("EPERM"), Seen("", None if act.reads else "x")]
            other = rng.choice([other for other in others if not other.same(seen)])
            changed = Ran((*ran.before[:at], (act, other), *ran.before[at + 1 :]))
            found = wrong(changed, kernel)
            if found is None or found.act != act:
                missed.append((act, other))
    assert missed == []


def test_each_foreign_value_after_lanes_is_caught(real):
    kernel, rans = real
    tried = 0
    for ran in (ran for ran in rans if ran.lanes):
        for at, (act, seen) in enumerate(ran.after):
            if not seen.error:
                foreign = Seen("", f"{seen.text} 4711", seen.start, seen.end)
                found = wrong(replace(ran, after=(*ran.after[:at], (act, foreign), *ran.after[at + 1 :])), kernel)
                assert found and found.act == act, f"{act} {foreign}"
                tried += 1
    assert tried > 50


def test_wrong_version_of_a_rule_is_caught():
    """An idle group's weight: each kernel's records contradict the other's row."""
    act = (Act("write", "", "cpu.idle", "1"), Act("read", "", "cpu.weight"))
    for version, text, other in (
        ((6, 1), "0", "1"),
        ((6, 11, 9), "0", "1"),
        ((6, 12), "1", "0"),
        ((7, 3, 4), "1", "0"),
    ):
        kernel = replace(KERNEL, version=version)
        assert wrong(Ran(((act[0], Seen()), (act[1], Seen("", text)))), kernel) is None
        assert wrong(Ran(((act[0], Seen()), (act[1], Seen("", other)))), kernel)
    assert all(change.source for change in CHANGES.values())


def test_the_dead_may_make_a_group_populated_for_a_while():
    """From 6.19 on; what was not populated once is not populated again, and what lives counts at once."""
    late, early = replace(KERNEL, version=(7, 3, 4)), replace(KERNEL, version=(6, 18, 15))
    spawn, end, look = Act("spawn", "", process=0), Act("end", process=0), Act("read", "", "cgroup.events")
    ended = ((spawn, Seen()), (end, Seen("", "signal 9")))
    yes, no = (look, Seen("", "populated 1")), (look, Seen("", "populated 0"))
    assert not wrong(Ran((*ended, no)), early) and wrong(Ran((*ended, yes)), early)
    assert not wrong(Ran((*ended, yes, yes, no)), late) and not wrong(Ran((*ended, no, no)), late)
    assert wrong(Ran((*ended, no, yes)), late) and wrong(Ran(((spawn, Seen()), no)), late)
    assert wrong(Ran((*ended, yes, (Act("members"), Seen("", "0")))), late)
    removed = (
        (Act("mkdir", "a"), Seen()),
        (replace(spawn, group="a"), Seen()),
        ended[1],
        (Act("rmdir", "a"), Seen("EBUSY")),
    )
    assert wrong(Ran(removed), early) and not wrong(Ran(removed), replace(KERNEL, version=(6, 19, 6)))
    assert wrong(Ran(removed), late)


@pytest.mark.parametrize(
    ("text", "value"),
    [("0", 0), ("007", 7), ("0x1F", 31), ("+5", 5), ("18446744073709551615", NO_LIMIT)]
    + [(text, "EINVAL") for text in ("", " 1", "1 ", "08", "0x", "1e3", "--1", "-1", "max")]
    + [("18446744073709551616", "ERANGE")],
)  # fmt: skip
def test_unsigned_numbers(text, value):
    if isinstance(value, str):
        with pytest.raises(Refused, match=value):
            unsigned(text)
    else:
        assert unsigned(text) == value


def test_other_numbers():
    assert (signed("-20"), signed("-0x10"), signed("+3")) == (-20, -16, 3)
    for text in ("-+3", "- 3", "x"):
        with pytest.raises(Refused, match="EINVAL"):
            signed(text)
    with pytest.raises(Refused, match="ERANGE"):
        signed("9223372036854775808")
    assert pages("1G", PAGE_LIMIT) == 1 << 18 and pages("4097", PAGE_LIMIT) == 1 and pages("max", 9) == 9
    assert (first_number("12x"), first_number(" 7"), first_number("x")) == (12, 7, None)


def run(*acts: Act) -> list[str]:
    """What the model gives for acts from the start."""
    state, told = START, []
    for act in acts:
        state, seen = apply(state, act, KERNEL)
        told.append(str(seen))
    return told


def control(group: str, text: str) -> Act:
    return Act("write", group, "cgroup.subtree_control", text)


MADE, IN_A = Act("mkdir", "a"), Act("spawn", "a", process=0)


@pytest.mark.parametrize(
    ("acts", "last"),
    [
        ((control("", "+cpu +bogus"), Act("read", "", "cgroup.subtree_control")), "''"),
        ((control("", "+hugetlb"),), "ENOENT"),
        ((control("", "+perf_event"),), "ENOENT"),
        ((control("", "+freezer"),), "EINVAL"),
        ((control("", "cpu"),), "EINVAL"),
        ((control("", "+cpu -cpu"), Act("read", "", "cgroup.subtree_control")), "''"),
        ((MADE, control("a", "+cpu")), "ENOENT"),
        ((MADE, control("", "+cpu"), control("a", "+cpu"), control("", "-cpu")), "EBUSY"),
        ((MADE, IN_A, control("", "+memory"), control("a", "+memory")), "EBUSY"),
        ((MADE, control("", "+memory"), control("a", "+memory"), IN_A), "EBUSY"),
        ((MADE, IN_A, control("", "+cpu"), control("a", "+cpu"), Act("read", "a", "cgroup.type")), "'domain threaded'"),
        ((MADE, control("", "+cpu"), Act("spawn", "", process=0), IN_A), "EOPNOTSUPP"),
        ((MADE, IN_A, Act("rmdir", "a")), "EBUSY"),
        ((MADE, Act("mkdir", "a/c"), Act("rmdir", "a")), "EBUSY"),
        ((MADE, IN_A, Act("end", process=0), Act("rmdir", "a")), "ok"),
        ((MADE, MADE), "EEXIST"),
        ((Act("mkdir", "a/c"),), "ENOENT"),
        ((Act("write", "", "cgroup.max.depth", "0"), MADE), "EAGAIN"),
        ((Act("write", "", "cgroup.max.descendants", "1"), MADE, Act("mkdir", "b")), "EAGAIN"),
        ((Act("write", "", "pids.max", "0"), MADE, IN_A), "EAGAIN"),
        ((MADE, IN_A, Act("write", "a", "cpu.weight", "5")), "ENOENT"),
        ((MADE, IN_A, Act("kill", "", value="0"), Act("read", "a", "cgroup.events")), "'populated 0'"),
        ((MADE, control("", "+cpu"), Act("write", "a", "cpu.weight", "5"), control("", "-cpu"), control("", "+cpu"),
          Act("read", "a", "cpu.weight")), "'100'"),
        ((Act("write", "", "cpu.weight.nice", "-20"), Act("read", "", "cpu.weight")), "'8668'"),
        ((Act("write", "", "cpu.max", "30000 100000"), Act("write", "", "cpu.max.burst", "40000")), "EINVAL"),
    ],
)  # fmt: skip
def test_rules(acts, last):
    assert run(*acts)[-1] == last


def test_every_file_gives_back_what_it_takes():
    """Whatever is accepted and read back is accepted again and changes nothing more."""
    for name in FILES:
        for text in VALUES[name]:
            state, seen = apply(START, Act("write", "", name, text), KERNEL)
            if not seen.error:
                shown = apply(state, Act("read", "", name), KERNEL)[1].text
                again, seen = apply(state, Act("write", "", name, shown or ""), KERNEL)
                assert (seen.error, again) == ("", state), (name, text, shown)


def test_the_same_seed_draws_the_same_whatever_is_loaded(tmp_path):
    """Hypothesis looks into the modules that are loaded for numbers to draw; the sequences must not depend on that."""
    (tmp_path / "full_of_numbers.py").write_text(f"NUMBERS = {list(range(1, 1 << 30, 1 << 20))}")
    code = (
        "import sys; sys.path[:0] = [{!r}, 'suites/selftest']; {}\n"
        "from simulated_kernel import KERNEL; from labs.model.draw import batches\n"
        "cases = [c for kind in (False, True) for b in batches(7, 60, KERNEL, concurrent=kind) for c in b]\n"
        "print(chr(10).join(map(str, cases)))"
    )
    root = Path(__file__).parents[2]
    first, second = (
        subprocess.run(
            [sys.executable, "-c", code.format(str(tmp_path), extra)],
            cwd=root,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        for extra in ("", "import full_of_numbers")
    )
    assert first == second and len(first) > 10_000


def test_another_seed_draws_other_cases():
    def drawn(seed: int) -> list[Case]:
        return [case for kind in (False, True) for b in batches(seed, 60, KERNEL, concurrent=kind) for case in b]

    assert drawn(7) == drawn(7) != drawn(8)


def test_draws_are_spread():
    """No theme and no act is starved."""
    cases = [case for batch in batches(1, 400, KERNEL, concurrent=False) for case in batch]
    names = Counter(act.file or act.name for case in cases for act in case.acts)
    assert set(names) >= {
        *FILES,
        "mkdir",
        "rmdir",
        "spawn",
        "attach",
        "end",
        "members",
        "kill",
        "cgroup.subtree_control",
    }
    assert min(names.values()) >= 4
    for theme in THEMES:
        assert pool((theme,), PLACES[-1], None, KERNEL.files)
    assert not [act for act in pool(THEMES, ("a",), None, frozenset({"cpu.max"})) if act.file == "cpu.weight"]


def test_masked_cases_hold_nothing_of_the_known_defects():
    both = 0
    for batch in batches(1, 400, KERNEL, concurrent=True, mask=mask):
        for case in batch:
            lanes = [{act.group for act in lane if act.file.startswith("cpu.max")} for lane in case.lanes]
            assert all(not (one & two) for i, one in enumerate(lanes) for two in lanes[i + 1 :])
            killed = [at for at, act in enumerate(case.before) if act.name == "kill"]
            assert not killed or all(act.name != "spawn" for act in case.acts[killed[0] :])
    for batch in batches(1, 400, KERNEL, concurrent=True):
        for case in batch:
            lanes = [{act.group for act in lane if act.file.startswith("cpu.max")} for lane in case.lanes]
            both += any(one & two for i, one in enumerate(lanes) for two in lanes[i + 1 :])
    assert both > 10


CASE = Case(
    (Act("mkdir", "a"),),
    ((Act("spawn", "a", process=0), Act("end", process=0)), (Act("write", "a", "cgroup.freeze", "1"),)),
    (Act("members", "a"), Act("read", "a", "cgroup.events")),
)


def outcomes_of(ops: list[Op]) -> list[Outcome]:
    texts = {"members": "3\n5\n", "read": "populated 1\nfrozen 0\n", "reap": "signal 9"}
    return [Outcome(op, 0, texts.get(op.name, ""), 10 * at + 1, 10 * at + 5) for at, op in enumerate(ops)]


def test_a_case_is_carried_to_the_guest_and_back():
    ops = script([CASE, CASE])
    assert [op.args[0] for op in ops if op.name == "mkdir"] == [
        f"{ROOT}/{n}{rest}" for n in (0, 1) for rest in ("", "/a")
    ]
    assert Counter(op.name for op in ops)["meet"] == 4  # two lanes, two cases
    assert {op.args[0] for op in ops if op.name == "spawn"} == {0, 3}
    assert ops[-1].args == (f"{ROOT}/1",) and ops[-1].name == "rmdir"
    first, second = told([CASE, CASE], outcomes_of(ops))
    assert first.case == CASE == second.case
    assert first.after[0][1].text == "3 5" and second.after[0][1].text == "0 2"
    assert first.after[1][1].text == "populated 1"
    spawn, end = first.lanes[0]
    assert spawn[1].end < end[1].start and end[1].text == "signal 9" and end[1].end > end[1].start + 5


def test_a_group_that_stays_is_told():
    ops = script([CASE])
    outcomes = outcomes_of(ops)
    (ran,) = told([CASE], [*outcomes[:-1], replace(outcomes[-1], errno=16)])
    assert [act for act, _ in ran.after[2:]] == remains(CASE) and ran.after[-1][1].error == "EBUSY"
    with pytest.raises(LabError, match="could not be made"):
        told([CASE], [replace(outcomes[0], errno=17), *outcomes[1:]])


def test_an_operation_that_never_returned_is_told_and_what_was_not_run_is_not_judged():
    ops = script([CASE, CASE])
    outcomes = [replace(outcome, errno=NEVER, start=0, end=0) for outcome in outcomes_of(ops)]
    outcomes[:2] = outcomes_of(ops)[:2]
    outcomes[3] = replace(outcomes[3], start=31)  # the second case's mkdir of its group hangs
    first, second = told([CASE, CASE], outcomes)
    with pytest.raises(Undecided):
        wrong(first, KERNEL)
    found = wrong(second, KERNEL)
    assert found and found.seen.error == NEVER_RETURNED and str(found) == "mkdir a never returned"


def test_runs_are_saved_and_loaded(real):
    kernel, rans = real
    again = load(dump(rans))
    assert [ran.case for ran in again] == [ran.case for ran in rans] and dump(again) == dump(rans)
    assert all(wrong(ran, kernel) is None for ran in again)
    assert sum(map(overlaps, again)) == sum(map(overlaps, rans)) > 50


@pytest.mark.parametrize(("number", "name"), [(errno.ENODEV, "ENOENT"), (95, "EOPNOTSUPP"), (errno.EBUSY, "EBUSY")])
def test_one_name_for_errors_that_mean_the_same(number, name):
    act = Act("rmdir", "a")
    assert carry.seen(act, [Outcome(Op("rmdir"), number, "", 1, 2)]).error == name


def test_only_what_the_guest_has_built_in_is_known() -> None:
    """A kernel without CONFIG_CGROUP_PERF refuses perf_event as no name at all."""
    lists = "cpu pids\ncpu\n#subsys_name\ncpu\npids\n"
    for more, known in (("", {"cpu", "pids"}), ("perf_event\n", {"cpu", "pids", "perf_event"})):
        guest = SimpleNamespace(must=lambda command, more=more: lists + more)
        kernel = carry.kernel_of(guest, (6, 1, 192), ["cgroup.kill", "no.such"])  # type: ignore[arg-type]
        assert (kernel.known, kernel.offered) == (known, {"cpu"})
