"""JUnit: a run as XML that every consumer can read, one suite a cell."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path

from junit_xml import TestCase, TestSuite

from labs.errors import LabError
from labs.report.record import CaseResult, CellRecord, Run, replace_file
from labs.report.text import clean, counterexample, identity, numbers, reason, seen

# Outcome -> element within <testcase>; outcomes that are not here are a plain case, told apart by property `outcome`.
ELEMENT = {
    "fail": "failure",
    "error": "error",
    "not-run": "error",
    "inconclusive": "skipped",
    "skip": "skipped",
}
COUNTED = {"testcase": "tests", "failure": "failures", "error": "errors", "skipped": "skipped"}


def write_junit(run: Run, path: Path) -> None:
    """Write the run as JUnit XML; LabError, and no file, if what was written does not read back as the run."""
    root = ET.Element("testsuites", name=clean(run.path.name))
    results = run.results()
    for cell in run.cells():
        root.append(_suite(cell, results[cell.id]))
    for counter in ("tests", "failures", "errors", "skipped"):
        root.set(counter, str(sum(int(suite.get(counter, "0")) for suite in root)))
    root.set("time", f"{sum(float(suite.get('time', '0')) for suite in root):.3f}")
    expected = _expected([result for cases in results.values() for result in cases])
    data = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    replace_file(path, data, check=lambda written: _check(written, expected))


def _suite(cell: CellRecord, results: list[CaseResult]) -> ET.Element:
    host = str(cell.run.host.get("hostname", ""))
    made = TestSuite(
        clean(cell.id),
        [_case(cell.id, result) for result in results],
        hostname=clean(host),
        timestamp=clean(cell.run.started),
    )
    suite: ET.Element = made.build_xml_doc()
    # junit-xml knows properties of a suite only, so those of a case are added to its elements.
    for element, result in zip(suite.iter("testcase"), results, strict=True):
        element.insert(0, _properties(cell, result))
    return suite


def _case(cell_id: str, result: CaseResult) -> TestCase:
    verdict = result.verdict
    case = TestCase(
        clean(result.case),
        classname=clean(cell_id),
        elapsed_sec=result.seconds,
        timestamp=clean(result.started),
        stdout=clean("\n\n".join(filter(None, (verdict.evidence if verdict else "", result.console)))),
    )
    why = "not run" if result.outcome == "not-run" else reason(result) or result.outcome
    add = {"failure": case.add_failure_info, "error": case.add_error_info, "skipped": case.add_skipped_info}
    element = ELEMENT.get(result.outcome)
    if element:
        add[element](message=why, output=_details(result))
    return case


def _details(result: CaseResult) -> str:
    """What a person needs to see at a failure: reason, how much was seen, figures, the counterexample."""
    parts = [reason(result), seen(result)]
    if result.verdict:
        parts += [clean(numbers(result.verdict.figures)), counterexample(result.verdict)]
    if result.replay:
        parts.append(f"again: {clean(result.replay)}")
    return "\n".join(filter(None, parts))


def _properties(cell: CellRecord, result: CaseResult) -> ET.Element:
    values: dict[str, object] = {"cell": cell.id, **identity(cell.facts())}
    values |= {"record": str(cell.path), "outcome": result.outcome, "attempts": result.attempts}
    values["earlier-outcomes"] = " ".join(result.earlier)
    values["known"] = result.verdict.known if result.verdict else ""
    properties = ET.Element("properties")
    for name, value in values.items():
        if value != "":
            ET.SubElement(properties, "property", name=name, value=clean(str(value)))
    return properties


def _expected(results: list[CaseResult]) -> Counter[str]:
    elements = [ELEMENT[result.outcome] for result in results if result.outcome in ELEMENT]
    return Counter({"testcase": len(results), **Counter(elements)})


def _check(path: Path, expected: Counter[str]) -> None:
    """Parse the file as a consumer would and count: elements and the root's attributes must agree with the run."""
    try:
        root = ET.parse(path).getroot()
    except ET.ParseError as error:
        raise LabError(f"the JUnit file does not parse: {error}") from error
    found = Counter(element.tag for element in root.iter() if element.tag in COUNTED)
    claimed = Counter({element: int(root.get(counter, "-1")) for element, counter in COUNTED.items()})
    if not found == claimed == expected:
        raise LabError(f"the JUnit file holds {dict(found)}, claims {dict(claimed)}, the run has {dict(expected)}")
