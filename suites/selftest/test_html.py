"""The page: complete, safe with whatever a guest prints, readable on a phone."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest

from labs.invariant.verdict import SEVERITY, Step, Verdict
from labs.report.html import render, write_page
from labs.report.plots import MARGIN, WIDTH, latencies, latency_svg, spacetime
from labs.report.record import CaseResult, Run
from suites.selftest.browser import width_in_browser

STEPS = (
    Step("w0", "write cpu.max", "41000 100000", 0, 41_200),
    Step("w0", "write cpu.max", "42000 100000", 60_000, 131_700, "completed before the read began"),
    Step("w1", "write cpu.max.burst", "2100", 20_000, 190_000),
    Step("r3", "read cpu.max", "41000 100000", 150_000, 151_800, "began after 42000 was in force"),
)
LATENCY = {"p50 us": 12.4, "p99 us": 88.0, "max us": 1204.0, "attempts": 20_000.0}
HOSTILE = '<script>alert(1)</script> "><img src=x onerror=alert(2)> \x1b[31m \ud800 {{ 7*7 }} ]]>'


def verdict(outcome: str) -> Verdict:
    seen = {"operations": 812_345.0, "overlaps": 40_211.0}
    made = Verdict("cpu.max is never torn", outcome, f"why it is {outcome}: " + "long words " * 12, seen, LATENCY)
    if outcome == "known":
        made = replace(made, known="K-2024-01", evidence="source: https://example.org/thread")
    return replace(made, counterexample=STEPS, evidence=HOSTILE) if outcome == "fail" else made


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Two cells, every outcome, a counterexample, latencies, and a console that wants to be a script."""
    cases = [f"test_{outcome.replace('-', '_')}_with_a_long_name_of_its_own" for outcome in SEVERITY]
    host = {"accelerator": "tcg", "hostname": "h", "cpu": "Example 3000", "cpus": 2, "tools": {"qemu": "7.2"}}
    plan = {"6.1.192-3_runc@1.1.5_distro_qemu": cases, "6.12.57_crun@1.21_lockdep_qemu": cases[:4]}
    made = Run.create(tmp_path, plan, host, ["pytest", "suites/x y", "--seed", "7"], 7)
    for cell_id in plan:
        cell = made.cell(cell_id)
        cell.write_facts({"release": "6.1.0-40-cloud-amd64", "build_id": "5f" * 20, "accelerator": "tcg"})
        cell.console_path.write_bytes(b"first line\n" + b"x\n" * 100 + HOSTILE.encode(errors="replace") + b"\xff")
        for case, outcome in zip(plan[cell_id], SEVERITY, strict=False):
            if outcome != "not-run":
                cell.add(CaseResult(case, outcome, verdict(outcome), 1.5, histories=("histories/a.npz",)))
    return made


def test_every_outcome_is_worded_and_the_worst_is_the_headline(run: Run) -> None:
    page = render(run)
    for outcome in SEVERITY:
        assert f'<span class="outcome {outcome}">{outcome}</span>' in page
    assert re.search(r'<h1><span class="outcome fail">fail</span>', page)
    assert '<span>2 <span class="outcome fail">' in page
    assert "latency is not measurable" in page
    assert "series-patch-id" not in page, "shown although there is no series"
    assert f'build-id <span class="mono">{"5f" * 20}</span>' in page


def test_a_run_that_passed_says_so_and_has_no_warning(tmp_path: Path) -> None:
    run = Run.create(tmp_path, {"c": ["torn"]}, {"accelerator": "kvm"}, [], 7)
    run.cell("c").add(CaseResult("torn", "pass"))
    page = render(run)
    assert re.search(r'<h1><span class="outcome pass">pass</span>', page)
    assert "not measurable" not in page
    assert "What did not pass" not in page


def test_an_empty_run_is_not_a_pass(tmp_path: Path) -> None:
    assert re.search(r'<h1><span class="outcome not-run">', render(Run.create(tmp_path, {}, {}, [], 7)))


def test_what_a_guest_prints_stays_text(run: Run) -> None:
    page = render(run)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "<script" not in page
    assert "<img" not in page
    assert "{{ 7*7 }}" in page
    assert "\x1b" not in page
    page.encode()


def test_the_page_needs_nothing_from_outside(run: Run) -> None:
    page = render(run)
    assert not re.search(r"(?:src|href)=[\"'](?!#)", page)
    assert "url(" not in re.sub(r"url\(#[^)]*\)", "", page)
    assert "default-src 'none'" in page


def test_each_finding_has_its_figures_its_source_and_its_accelerator(run: Run) -> None:
    page = render(run)
    articles = re.findall(r"<article.*?</article>", page, re.DOTALL)
    assert len(articles) == 11  # 12 cases, of them 1 pass
    assert all("accelerator tcg" in article for article in articles)
    (known,) = [article for article in articles if "K-2024-01" in article]
    assert "https://example.org/thread" in known
    assert "812,345 operations, 40,211 overlaps" in known
    assert "1,204" in known


def test_a_broken_cell_shows_the_end_of_its_console_only(run: Run) -> None:
    page = render(run)
    assert "Last lines of the guest" in page
    assert "first line" not in page


def test_how_to_repeat_is_quoted_for_a_shell(run: Run) -> None:
    assert "pytest &#39;suites/x y&#39; --seed 7" in render(run)


def test_equal_records_give_equal_pages(run: Run, tmp_path: Path) -> None:
    write_page(run, tmp_path / "one.html")
    write_page(Run.open(run.path), tmp_path / "two.html")
    assert (tmp_path / "one.html").read_bytes() == (tmp_path / "two.html").read_bytes()


def test_a_counterexample_becomes_a_diagram_of_all_its_steps(run: Run) -> None:
    svg = re.search(r'<svg class="spacetime".*?</svg>', render(run), re.DOTALL)
    assert svg
    root = ET.fromstring(svg[0])
    texts = [element.text or "" for element in root.iter("text")]
    for step in STEPS:
        assert f"{step.operation} = {step.value}" in texts
    assert len([element for element in root.iter("rect") if "box" in element.attrib["class"]]) == len(STEPS)
    assert [text for text in texts if text in {"w0", "w1", "r3"}] == ["w0", "w1", "r3"]
    assert "40 us" in texts


def test_boxes_lie_in_their_time_and_labels_never_share_a_row() -> None:
    diagram = spacetime(STEPS)
    boxes = [box for lane in diagram.lanes for box in lane.boxes]
    assert len({box.y for box in boxes}) == len(boxes)
    assert all(box.x >= MARGIN and box.x + box.width <= WIDTH - MARGIN + 3 for box in boxes)
    write, read = boxes[1], boxes[3]
    assert write.x + write.width < read.x, "the write ended before the read began"
    assert read.anchor == "end"
    for lane in diagram.lanes:
        assert all(lane.y < box.y < lane.y + lane.height for box in lane.boxes)


def test_a_diagram_of_one_instant() -> None:
    diagram = spacetime([Step("r", "read x", "1" * 400, 5, 5)])
    assert diagram.lanes[0].boxes[0].width > 0


def test_latencies_come_from_figures_with_or_without_a_name() -> None:
    results = [
        CaseResult("attach", "pass", Verdict("i", "pass", "", figures=LATENCY)),
        CaseResult("both", "pass", Verdict("i", "pass", "", figures={"exec p50 us": 3.0, "max us": float("inf")})),
        CaseResult("none", "skip"),
    ]
    assert [(row.operation, row.quantiles) for row in latencies(results)] == [
        ("attach", {"p50": 12.4, "p99": 88.0, "max": 1204.0}),
        ("both: exec", {"p50": 3.0}),
    ]


def test_a_latency_plot_is_the_same_each_time_and_carries_its_accelerator() -> None:
    rows = latencies([CaseResult("a $x$ <b> \ufffe", "pass", Verdict("i", "pass", "", figures=LATENCY))])
    one, two = (latency_svg(rows, "cell, accelerator kvm") for _ in range(2))
    assert one == two
    texts = " ".join("".join(element.itertext()) for element in ET.fromstring(one).iter())
    for text in ("accelerator kvm", "p50", "p99", "max", "a $x$ <b> \ufffd"):
        assert text in texts
    assert "<dc:date>" not in one


@pytest.mark.parametrize("width", [360, 1280])
def test_the_page_is_not_wider_than_the_screen(run: Run, tmp_path: Path, width: int) -> None:
    assert 0 < width_in_browser(render(run), width, tmp_path) <= width
