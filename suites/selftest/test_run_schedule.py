"""What runs next, and what is expected of it: pure, on tasks that nobody starts."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from archive import ROWS, FakeArchive, package

from labs.errors import BadInput
from labs.matrixfile import Planned
from labs.run.begin import Tasks, draft, repeat
from labs.run.builds import Build, NotMade, builds
from labs.run.collect import Collected
from labs.run.past import GUESS, START, Past, past
from labs.run.plan import Request, load
from labs.run.schedule import Need, Queue, Task, expected_seconds
from labs.run.show import span
from labs.source.debian import Archive

HOST = Need(4096, 2, 1000)


def task(name: str, seconds: float = 10, memory: float = 1024, cores: float = 1, **more: object) -> Task:
    return Task(name, Need(memory, cores, 50), seconds, **more)  # type: ignore[arg-type]


def order(queue: Queue) -> list[str]:
    """Ids in the order in which they start when each ends at once."""
    started = []
    while (one := queue.take([])[0]) is not None:
        started.append(one.id)
        queue.done.add(one.id)
    return started


def test_builds_first_then_the_longest() -> None:
    tasks = [task("short", 5), task("long", 50), task("build x", 1, build=True), task("middle", 20)]
    assert order(Queue(HOST, 2, tasks)) == ["build x", "long", "middle", "short"]


def test_a_cell_waits_for_its_build_and_no_other_does() -> None:
    queue = Queue(HOST, 4, [task("a", 50, after=frozenset({"build x"})), task("b", 5), task("build x", build=True)])
    build, _ = queue.take([])
    assert build and build.id == "build x"
    other, _ = queue.take([build])
    assert other and other.id == "b"
    assert queue.take([]) == (None, "")
    queue.done.add("build x")
    assert order(queue) == ["a"]


@pytest.mark.parametrize(
    "running, asked, why",
    [
        ([task("r", memory=3500)], task("t"), "t waits for memory: needs 1024 MB, 596 MB left"),
        ([task("r", cores=2)], task("t"), "t waits for cores: needs 1, 0 left"),
        ([task("r")] * 3, task("t"), "3 of 3 jobs run"),
        ([], task("t", memory=5000), "t waits for memory: needs 5000 MB, 4096 MB left"),
    ],
)
def test_what_does_not_fit_waits_and_says_so(running: list[Task], asked: Task, why: str) -> None:
    queue = Queue(HOST, 3, [asked])
    assert queue.take(running) == (None, why) and queue.waiting == [asked]


def test_what_others_take_of_the_host_counts_too() -> None:
    queue = Queue(HOST, 3, [task("t")])
    assert queue.take([], Need(900, 2, 1000))[1] == "t waits for memory: needs 1024 MB, 900 MB left"
    assert queue.take([], Need(2000, 2, 10))[1] == "t waits for disk: needs 50 MB, 10 MB left"
    assert queue.take([], Need(2000, 2, 1000))[0] == task("t")


def test_a_smaller_one_may_pass_one_that_does_not_fit() -> None:
    queue = Queue(HOST, 3, [task("big", 90, memory=3500), task("small", 1)])
    assert queue.take([task("r", memory=2000)])[0] == task("small", 1)


def test_who_asks_for_more_cores_than_there_are_gets_all_of_them() -> None:
    queue = Queue(HOST, 3, [task("wide", cores=8)])
    assert queue.take([task("r")])[0] is None
    wide, _ = queue.take([])
    assert wide and wide.need.cores == 2


def test_expected_time() -> None:
    tasks = [task(str(n), 10) for n in range(5)]
    assert expected_seconds(HOST, 2, tasks) == 30 and expected_seconds(HOST, 1, tasks) == 50
    assert expected_seconds(HOST, 2, [task("a", 10, after=frozenset({"build"})), task("build", 60, build=True)]) == 70
    assert [span(seconds) for seconds in (41.3, 150, 660, 7500)] == ["41 s", "2 min 30 s", "11 min", "2 h 5 min"]


def test_past_runs_tell_how_long_and_torn_lines_do_not_matter(tmp_path: Path) -> None:
    def run(name: str, seconds: float, wall: float, cell: str = "6.1_runc") -> None:
        folder = tmp_path / name / cell
        folder.mkdir(parents=True)
        rows = [{"case": "it.a", "seconds": seconds, "outcome": "pass"}]
        rows += [{"case": "it.b", "seconds": 900, "outcome": "error"}]
        (folder / "verdicts.jsonl").write_text("\n".join(map(json.dumps, rows)) + '\n{"case": "it.')
        told = {"task": cell, "seconds": wall, "expected": 1, "ended": 0}
        (folder.parent / "tasks.jsonl").write_text(json.dumps(told) + "\n")

    assert past(tmp_path).seconds("6.1_runc", ["it.a", "it.b"]) == START + 2 * GUESS
    run("20260101T000000Z-aaaaaa", 4, 14)
    run("20260102T000000Z-aaaaaa", 8, 18)
    run("20260102T000001Z-aaaaaa", 5, 15, "7.3_runc")
    found = past(tmp_path)
    assert found.seconds("6.1_runc", ["it.a"]) == 10 + 8  # the newest of the cell
    assert found.seconds("6.12_runc", ["it.a", "it.b"]) == 10 + 5 + GUESS  # the middle of all cells


MATRIX = f"""\
[axes]
kernel = {[f"6.1.{n}-1" for n in range(100)]}
runtime = {[f"runc@v1.0.{n}" for n in range(100)]}

[[exclude]]
cells = "6.1.1-1_*"
reason = "old"

[[override]]
cells = "6.1.2-1_*"
memory_mb = 2048
""".replace("'", '"')


def collected(request: Request, rows: Sequence[Planned]) -> Collected:
    cells = [row.cell.id for row in rows]
    return Collected(dict.fromkeys(cells, ("it.a", "it.b")), 1, frozenset({"it.b"}))


def test_ten_thousand_cells_are_expanded_and_planned_in_under_two_seconds(tmp_path: Path) -> None:
    (tmp_path / "matrix.toml").write_text(MATRIX)
    kernels = [package(f"linux-image-6.1.0-{n}-cloud-amd64", f"6.1.{n}-1") for n in range(100)]
    archive = FakeArchive(tmp_path, [*ROWS, *kernels])
    began = time.process_time()
    made = draft(Request(("suites/x",), matrix=str(tmp_path / "matrix.toml")), archive, collected)
    tasks = Tasks(made.plan, Past(), archive)
    cells = tasks.listed(made.cases, {}, 16)
    took = expected_seconds(Need(65536, 32, 10**6), 16, cells)
    assert time.process_time() - began < 2
    assert len(cells) == 9900 and made.plan.pins["6.1.99-1_runc@v1.0.99"]["kernel"] == "6.1.99-1"
    assert took == pytest.approx(sum(cell.seconds for cell in cells) / 16, rel=0.01)
    assert {cell.need.memory_mb for cell in cells} == {1536, 2560}


def test_names_are_resolved_once_and_a_plan_reads_back(tmp_path: Path) -> None:
    archive = FakeArchive(tmp_path)
    made = draft(Request(("suites/x",), kernels=("6.1", "7.3"), runtimes=("runc", "crun")), archive, collected)
    assert made.plan.pins["6.1_runc"]["kernel"] == "6.1.192-3"
    run = made.create(tmp_path / "records", 7)
    assert run.seed == 7 and run.deselected == 1 and list(run.plan) == list(made.plan.rows)
    again = Archive.as_of(archive.store, run.path / "archive.json")
    assert again.packages() == archive.packages()
    assert made.plan.found("6.1_runc", again).kernel.version == "6.1.192-3"
    assert repeat(made, run).cases == made.cases  # all is not-run
    tasks = Tasks(made.plan, Past(), again)
    assert tasks.cell("6.1_runc", ["it.a"]).need.cores == 1  # two guests on two cores
    assert tasks.cell("6.1_runc", ["it.a", "it.b"]).need.cores == 2  # b asks for cores of its own


def test_a_machine_that_already_runs_is_named_and_takes_no_memory_here(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no machine is named"):
        Request(("suites/x",), provider="ssh").rows()
    matrix = tmp_path / "matrix.toml"
    matrix.write_text('hosts = ["root@192.0.2.7:22"]\n[axes]\nprovider = ["qemu", "ssh"]\n')
    archive = FakeArchive(tmp_path)
    made = draft(Request(("suites/x",), matrix=str(matrix)), archive, collected)
    again = load(made.create(tmp_path / "records", 7).path)
    assert again.rows == made.plan.rows
    tasks = Tasks(again, Past(), archive)
    needs = {name: tasks.cell(name, ["it.a"]).need.memory_mb for name in again.rows}
    assert needs == {"6.1_runc": 1536, "6.1_runc_ssh": 512}


def test_each_thing_is_built_once_however_many_cells_need_it(tmp_path: Path) -> None:
    archive = FakeArchive(tmp_path)
    request = Request(("suites/x",), kernels=("6.1", "6.12"), runtimes=("runc", "crun", "runc@v1.2.0"))
    plan = draft(request, archive, collected).plan
    cells = [(name, plan.found(name, archive)) for name in plan.rows]
    asked: list[str] = []

    def lacks(found: object) -> NotMade | None:
        name = found.cell.id  # type: ignore[attr-defined]
        asked.append(name)
        return NotMade("built", f"for {name}") if name.startswith("6.1_") else None

    made = builds(cells, lacks)
    assert [build.cell for build in made] == ["6.1_runc", "6.1_runc@v1.2.0"]
    assert asked == ["6.1_runc", "6.1_runc@v1.2.0", "6.12_runc"]  # crun is in the image, 6.1 in the first build
    assert "6.1_crun" in made[0].cells and "6.12_runc@v1.2.0" in made[1].cells
    one = Build("6.1_runc", "x", "built", ("6.1_runc",)).task(2)
    assert one.build and one.need.cores == 2 and one.id == "build x"
