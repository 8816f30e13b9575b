"""JUnit: every outcome lands where the contract says, and the file parses whatever the guest printed."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import junit_xml
import pytest

from labs.errors import LabError
from labs.invariant.verdict import SEVERITY, Step, Verdict
from labs.report import junit
from labs.report.junit import write_junit
from labs.report.record import CaseResult, Run
from labs.report.text import clean

MAPPING = {
    "pass": None,
    "known": None,
    "unproven": None,
    "fail": "failure",
    "error": "error",
    "not-run": "error",
    "inconclusive": "skipped",
    "skip": "skipped",
}
NASTY = {
    "esc": ("\x1b[31mred", "\ufffd[31mred"),
    "nul": ("a\x00b", "a\ufffdb"),
    "undecodable": (b"a\xffb".decode(errors="surrogateescape"), "a\ufffdb"),
    "cdata": ("a]]>b", "a]]>b"),
    "fffe": ("a\ufffeb\uffff", "a\ufffdb\ufffd"),
    "surrogate": ("a\ud800b", "a\ufffdb"),
    "nel": ("a\x85b", "a\x85b"),
    "csi": ("a\x9bb", "a\ufffdb"),
    "markup": ("<b>&amp;'\"", "<b>&amp;'\""),
    "crlf": ("a\r\nb\rc", "a\nb\nc"),
    "astral": ("a\U0001f600\tb", "a\U0001f600\tb"),
    "megabyte": ("[    0.1] oops\x1b[0m\n" * 55_000, "[    0.1] oops\ufffd[0m\n" * 55_000),
}
FACTS = {
    "release": "6.1.0-40-amd64",
    "build_id": "5f",
    "runtime": {"name": "runc", "version": "1.1.5", "package": "1.1.5+ds1-1", "sha256": "aa"},
    "series": {"patch_id": ""},
    "accelerator": "kvm",
    "parameters": ["quiet"],
}


def properties(case: ET.Element) -> dict[str, str]:
    return {element.attrib["name"]: element.attrib["value"] for element in case.iter("property")}


def one_case(tmp_path: Path, result: CaseResult) -> ET.Element:
    run = Run.create(tmp_path, {"c": [result.case]}, {}, [], 7)
    run.cell("c").add(result)
    write_junit(run, tmp_path / "junit.xml")
    (case,) = ET.parse(tmp_path / "junit.xml").getroot().iter("testcase")
    return case


def test_the_mapping_covers_every_outcome() -> None:
    assert set(MAPPING) == set(SEVERITY)


@pytest.mark.parametrize("outcome", MAPPING)
def test_outcome(tmp_path: Path, outcome: str) -> None:
    verdict = Verdict("torn", outcome, "the reason", evidence="the evidence", known="K1" if outcome == "known" else "")
    case = one_case(tmp_path, CaseResult("torn", outcome, verdict, reason="the reason"))
    elements = [element for element in case if element.tag in ("failure", "error", "skipped")]
    assert [element.tag for element in elements] == ([MAPPING[outcome]] if MAPPING[outcome] else [])
    for element in elements:
        assert element.get("message") == ("not run" if outcome == "not-run" else "the reason")
    assert properties(case)["outcome"] == outcome
    assert properties(case).get("known") == ("K1" if outcome == "known" else None)
    assert case.findtext("system-out") == "the evidence"


def test_a_case_without_a_word_still_fails(tmp_path: Path) -> None:
    case = one_case(tmp_path, CaseResult("torn", "fail"))
    assert [element.get("message") for element in case.iter("failure")] == ["fail"]


def test_a_case_that_never_ran_is_an_error(tmp_path: Path) -> None:
    write_junit(Run.create(tmp_path, {"c": ["torn"]}, {}, [], 7), tmp_path / "junit.xml")
    root = ET.parse(tmp_path / "junit.xml").getroot()
    assert [element.get("message") for element in root.iter("error")] == ["not run"]


@pytest.mark.parametrize("nasty", NASTY)
def test_nasty_text_survives_otherwise(tmp_path: Path, nasty: str) -> None:
    text, expected = NASTY[nasty]
    verdict = Verdict("torn", "fail", text, {text[:40]: 3}, {}, (Step(text, text, text, 0, 9, text),), text)
    case = one_case(tmp_path, CaseResult(text, "fail", verdict, reason=text))
    assert case.findtext("system-out") == expected
    assert case.get("name") == expected
    assert [element.get("message") for element in case.iter("failure")] == [expected]


def test_clean_lets_every_other_character_pass() -> None:
    everything = "".join(map(chr, range(0x110000)))
    kept = [char for char in everything if char != "\r" and clean(char) == char]
    root = ET.fromstring(ET.tostring(_text_element("".join(kept)), encoding="utf-8"))
    assert root.text == "".join(kept)
    # surrogates; U+FFFE and U+FFFF; C0 but tab and LF; DEL and C1 but NEL
    assert len(kept) == 0x110000 - 0x800 - 2 - 30 - 32


def _text_element(text: str) -> ET.Element:
    element = ET.Element("t")
    element.text = text
    return element


def test_properties_and_counts(tmp_path: Path) -> None:
    plan = {"a": list(MAPPING), "b": ["fail", "other"]}
    run = Run.create(tmp_path, plan, {"accelerator": "tcg", "hostname": "h"}, [], 7)
    run.cell("a").write_facts(FACTS)
    for outcome in MAPPING:
        run.cell("a").add(CaseResult(outcome, outcome, seconds=1.25))
    run.cell("b").add(CaseResult("fail", "error"))
    run.cell("b").add(CaseResult("fail", "fail"))
    write_junit(run, tmp_path / "sub" / "junit.xml")
    root = ET.parse(tmp_path / "sub" / "junit.xml").getroot()
    counts = {name: root.get(name) for name in ("tests", "failures", "errors", "skipped", "time")}
    assert counts == {"tests": "10", "failures": "2", "errors": "3", "skipped": "2", "time": "10.000"}
    assert [suite.get("name") for suite in root] == ["a", "b"]
    first, *_, failed, _ = root.iter("testcase")
    assert properties(first) == {
        "cell": "a",
        "kernel-release": "6.1.0-40-amd64",
        "build-id": "5f",
        "runtime": "runc",
        "runtime-version": "1.1.5",
        "runtime-package": "1.1.5+ds1-1",
        "runtime-digest": "aa",
        "accelerator": "kvm",
        "seed": "7",
        "record": str(run.path / "a"),
        "outcome": "pass",
        "attempts": "1",
    }
    assert (first.get("classname"), first.get("time")) == ("a", "1.250000")
    assert properties(failed)["accelerator"] == "tcg"
    assert (properties(failed)["attempts"], properties(failed)["earlier-outcomes"]) == ("2", "error")


def test_the_counterexample_is_in_the_failure(tmp_path: Path) -> None:
    steps = (Step("r1", "read cpu.max", "1 2", 2500, 4000, "stale"), Step("w0", "write cpu.max", "3 4", 0, 1500))
    case = one_case(tmp_path, CaseResult("torn", "fail", Verdict("torn", "fail", "why", counterexample=steps)))
    assert case.findtext("failure") == (
        "why\n0.000..1.500 us  w0  write cpu.max = 3 4\n2.500..4.000 us  r1  read cpu.max = 1 2  (stale)"
    )


def test_a_file_that_does_not_parse_is_not_claimed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(junit, "clean", lambda text: text)
    with pytest.raises(LabError, match="does not parse"):
        one_case(tmp_path, CaseResult("torn", "fail", Verdict("torn", "fail", "why", evidence="\x1b")))
    assert not (tmp_path / "junit.xml").exists()


def test_a_file_that_lost_a_case_is_not_claimed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(junit_xml.TestCase, "is_failure", lambda self: False)
    with pytest.raises(LabError, match="claims"):
        one_case(tmp_path, CaseResult("torn", "fail", Verdict("torn", "fail", "why")))
    assert not (tmp_path / "junit.xml").exists()
