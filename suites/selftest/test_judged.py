"""What verdicts were judged of is kept, and judged again to the very same; what is not trusted is refused."""

from __future__ import annotations

import gzip
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

from labs import judged, untrusted
from labs.console import scan
from labs.errors import BadInput
from labs.invariant.atomicity import linearizable, no_lost_update
from labs.invariant.bandwidth import in_force, within_quota, yields
from labs.invariant.convoy import no_convoy
from labs.invariant.delegation import bounded, every_start, kept, no_faster, no_reload, same, slower, transient_units
from labs.invariant.hygiene import container_steps, nothing_left
from labs.invariant.kernel_health import quiet_kernel
from labs.invariant.latency import latency
from labs.invariant.limits import limits_in_force, no_waiting, refused_once
from labs.invariant.relative import no_slower
from labs.invariant.semantics import default_shares, delete_tells, recorded, shares_in_order
from labs.invariant.semantics import in_force as semantics_in_force
from labs.invariant.verdict import JUDGES, Verdict, pure
from labs.judged import Context, Reader
from labs.model.driver import explained
from labs.model.saved import load
from labs.model.versions import Kernel
from labs.probe.bandwidth import Race, Window
from labs.probe.convoy import Wave
from labs.probe.delegation import Start as Run
from labs.probe.delegation import Storm, Traffic
from labs.probe.history import History
from labs.probe.limits import Meeting, Setting, Start, Write
from labs.probe.semantics import Told
from labs.probe.steps import ContainerStep
from labs.promise import judge
from labs.promise.families import FAMILIES
from labs.promise.faults import from_record, shortened
from suites.selftest.histories import Op, atomic_register, with_tail

DATA = Path(__file__).parent / "data"
REGISTERS = (
    atomic_register(1, path="/lab/cpu.max", writers=1, readers=1),
    atomic_register(2, path="/lab/cpu.max.burst", writers=1, readers=1),
)
TORN = (with_tail(REGISTERS[0], [Op(1, "read", "1000000 2000001", 0, 10)]), REGISTERS[1])


def promise_verdict() -> Verdict:
    recorded = json.loads((DATA / "promises/files.json").read_text())
    promise = next(one for one in FAMILIES["files"] if one.name in recorded and shortened(one) is one)
    return judge(promise, [from_record(promise, recorded[promise.name])])


def random_verdict() -> Verdict:
    """Of what 6.1 has told of random sequences."""
    first, *rest = (DATA / "model/6.1.jsonl").read_text().splitlines()
    facts = json.loads(first)
    sets = {name: frozenset(facts[name]) for name in ("offered", "known", "files")}
    return explained(load("\n".join(rest[:20])), Kernel(tuple(facts["version"]), **sets), concurrent=False)


WINDOWS = [
    Window(1.1e6 + at, {"usage_usec": 9e5 + at / 3, "nr_throttled": 3.0, "cpu 1": 4e5, "cpu 2": 5e5}) for at in range(4)
]
TOLD = Told(0, "said\n", {"cpu.weight": "39", "cpu.max": None}, 0, "", True, 12)
RUN = Run("systemd", "yes", 700_123, 1, "no such unit", "v1")
TRAFFIC = Traffic(3, {"Reload": 1, "StartTransientUnit": 3})
STEP = ContainerStep("c1", 0, "create", 5, 9, 1, "no such \udc80 file")
VERDICTS = {
    "pass": lambda: linearizable(REGISTERS),
    "fail": lambda: linearizable(TORN),
    "lost": lambda: no_lost_update(list(REGISTERS), minimum_overlaps=5),
    "latency": lambda: latency("cpu.max write", np.arange(1, 5000, dtype=np.int64), "kvm", 3),
    "steps": lambda: container_steps([STEP], planned=1),
    "left": lambda: nothing_left({"cgroups": ["a"]}, {"cgroups": ["a", "b"], "mounts": []}),
    "quiet": lambda: quiet_kernel(
        scan((DATA / "consoles/oops-null.log").read_text(errors="replace")), seconds=1.5, lines=80
    ),
    "limits": lambda: limits_in_force(
        [Start("c1", "cpu.max", {"cpu.max": "max 100000"}, 0, "")], {"cpu.max": "1 2"}, planned=1
    ),
    "refused": lambda: refused_once(
        [Setting("run", True, (Write("cpu.max", "10", 22, 1, 2), Write("cpu.max", "10", 22, 3, 4)), 1, 9, "")],
        planned=1,
    ),
    "waiting": lambda: no_waiting([Meeting("cpu.max", True, 900, 12)], planned=1),
    "promise": promise_verdict,
    "random": random_verdict,
    "yields": lambda: yields(WINDOWS),
    "quota": lambda: within_quota(WINDOWS, quota_us=20_000, period_us=100_000, cpus=2),
    "raced": lambda: in_force([Race("max 100000", WINDOWS[0])] * 9, cpus=2),
    "in force": lambda: semantics_in_force(TOLD, {"cpu.max": "1 2"}),
    "shares": lambda: default_shares(TOLD),
    "order": lambda: shares_in_order({1024: TOLD, 2: TOLD, 262144: TOLD}),
    "tells": lambda: delete_tells(TOLD),
    "recorded": lambda: recorded("pids", TOLD),
    "slower": lambda: slower([700, 710, 705, 720, 699, 703], [300, 310, 305, 320, 299, 303]),
    "same": lambda: same([700, 710, 705, 720, 699, 703], [300, 310, 305, 320, 299, 303]),
    "v1": lambda: no_faster([700, 710, 705, 720, 699, 703], [300, 310, 305, 320, 299, 303]),
    "starts": lambda: every_start([RUN], planned=1),
    "units": lambda: transient_units("cgroupfs", TRAFFIC),
    "reload": lambda: no_reload(TRAFFIC),
    "storm": lambda: bounded(Storm((RUN,), (RUN, RUN), 7)),
    "kept": lambda: kept({"controllers": "memory", "groups": "payload", "moved": "12"}),
    "convoy": lambda: no_convoy([Wave(1, (0,), (5,)), Wave(2, (0, 0), (9_000_000, 7_000_000))]),
    "relative": lambda: no_slower("a", np.arange(1, 900, dtype=np.uint32), np.arange(1, 700), "icount", 1.25),
}


def history(folder: Path, registers: tuple = TORN) -> str:
    (folder / "histories").mkdir()
    History(registers, 1.0, 2).save(folder / "histories/a.npz")
    return "histories/a.npz"


def plain(verdict: Verdict) -> object:
    return json.loads(json.dumps(verdict.to_json()))


@pytest.mark.parametrize("name", VERDICTS)
def test_the_same_verdict_comes_again(name: str, tmp_path: Path) -> None:
    verdict = VERDICTS[name]()
    saved = history(tmp_path, TORN if name == "fail" else REGISTERS)
    assert verdict.call
    path = judged.save(verdict.call, Context(), tmp_path, f"case/{name}[x]", saved)
    assert plain(Reader(tmp_path).judge(path)) == plain(verdict)


def test_every_pure_judge_is_tried_here() -> None:
    tried = {verdict().call.by for verdict in VERDICTS.values()}
    ours = {name for name in JUDGES if not name.startswith("test_")}
    assert ours - tried <= {"atomicity.rejected_write"}, "its arguments are those of no_lost_update"


def test_a_known_violation_is_known_again_on_the_day_it_was(tmp_path: Path) -> None:
    verdict = linearizable(TORN)
    context = Context(("cpu.max", "cpu.max.burst"), (6, 1, 192), "2027-01-01", ())
    for mended, outcome in (((), "known"), (("cpu-max-burst-lost-update",), "fail")):
        asked = Context(context.files, context.kernel, context.day, mended)
        folder = tmp_path / outcome
        folder.mkdir()
        path = judged.save(verdict.call, asked, folder, "c", history(folder))
        assert Reader(folder).judge(path).outcome == asked.explained(verdict).outcome == outcome


def test_a_register_that_no_history_has_cannot_be_judged_again(tmp_path: Path) -> None:
    assert judged.save(linearizable(REGISTERS).call, Context(), tmp_path, "c", "") == ""


def changed(tmp_path: Path, change: str, by: str) -> str:
    """A file of a call with a text in it replaced."""
    path = judged.save(VERDICTS["fail"]().call, Context(), tmp_path, "c", history(tmp_path))
    text = gzip.decompress((tmp_path / path).read_bytes()).decode()
    assert change in text
    (tmp_path / path).write_bytes(gzip.compress(text.replace(change, by).encode()))
    return path


@pytest.mark.parametrize(
    ("change", "by", "why"),
    [
        ("histories/a.npz", "../../../etc/passwd", "leads out of the record"),
        ("histories/a.npz", "/etc/passwd", "leads out of the record"),
        ("histories/a.npz", "histories/b.npz", "no such file"),
        ("atomicity.linearizable", "os.system", "cannot be judged again"),
        ("/lab/cpu.max", "/lab/x", "cannot be judged again"),
        ('"registers"', '"more"', "cannot be judged again"),
        ('{"by"', '[{"by"', "cannot be judged again"),
    ],
)
def test_what_leads_elsewhere_or_is_malformed_is_refused(tmp_path: Path, change: str, by: str, why: str) -> None:
    path = changed(tmp_path, change, by)
    with pytest.raises(BadInput, match=why):
        Reader(tmp_path).judge(path)


def test_a_link_out_of_the_record_is_refused(tmp_path: Path) -> None:
    path = changed(tmp_path, "histories/a.npz", "histories/a.npz")
    (tmp_path / "histories/a.npz").unlink()
    (tmp_path / "histories/a.npz").symlink_to("/etc/hostname")
    with pytest.raises(BadInput, match="leads out of the record"):
        Reader(tmp_path).judge(path)


def test_no_pickle_is_ever_read(tmp_path: Path) -> None:
    path = judged.save(VERDICTS["latency"]().call, Context(), tmp_path, "c", "")
    arrays = (tmp_path / path).with_name(Path(path).name.replace(".json.gz", ".npz"))
    np.savez(arrays, a0=np.array([object()], dtype=object), allow_pickle=True)
    with pytest.raises(BadInput, match="allow_pickle=False"):
        Reader(tmp_path).judge(path)


@pytest.mark.filterwarnings("ignore:Data type alias")  # one of the flips
def test_any_flipped_bit_of_columns_is_refused_or_judged(tmp_path: Path) -> None:
    path = judged.save(VERDICTS["latency"]().call, Context(), tmp_path, "c", "")
    arrays = (tmp_path / path).with_name(Path(path).name.replace(".json.gz", ".npz"))
    whole = arrays.read_bytes()
    refused = 0
    for at in range(len(whole) * 8):
        data = bytearray(whole)
        data[at // 8] ^= 1 << at % 8
        arrays.write_bytes(data)
        try:
            Reader(tmp_path).judge(path)
        except BadInput:
            refused += 1
    assert refused > len(whole)


def test_a_file_that_unpacks_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = changed(tmp_path, "histories/a.npz", "histories/a.npz")
    with zipfile.ZipFile(tmp_path / "histories/a.npz") as archive:
        size = sum(member.file_size for member in archive.infolist())
    monkeypatch.setattr(untrusted, "COLUMNS", size - 1)
    with pytest.raises(BadInput, match="unpacks to more than"):
        Reader(tmp_path).judge(path)
    monkeypatch.setattr(untrusted, "JSON", 10)
    with pytest.raises(BadInput, match="unpacks to more than"):
        Reader(tmp_path).judge(path)


def test_a_pure_function_keeps_its_name_and_its_words() -> None:
    @pure
    def nothing(seen: int) -> Verdict:
        """Judge nothing."""
        return Verdict("nothing", "pass", str(seen))

    assert nothing.__doc__ == "Judge nothing."
    verdict = nothing(3)
    assert verdict == Verdict("nothing", "pass", "3")
    assert "call" not in verdict.to_json()
    del JUDGES["test_judged.nothing"]
