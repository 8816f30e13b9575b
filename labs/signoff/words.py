"""A sign-off in words: Markdown for people, JUnit for machines, both of the document alone."""

from __future__ import annotations

import shlex
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from junit_xml import TestCase, TestSuite

from labs.errors import LabError
from labs.report.markdown import code, plain, rows_of
from labs.report.record import replace_file
from labs.report.text import clean
from labs.signoff.reason import REFUSED


def write_words(made: Mapping[str, Any], digest: str, folder: Path) -> None:
    replace_file(folder / "sign-off.md", markdown(made, digest).encode())
    data = junit(made)
    if len(list(ET.fromstring(data).iter("testcase"))) != len(made["rules"]):
        raise LabError("the JUnit file does not hold all rules")
    replace_file(folder / "junit.xml", data)


def markdown(made: Mapping[str, Any], digest: str) -> str:
    """Decision, reasons, cells, controls and how to check it."""
    series, asked = made["series"], made["asked"]
    parts = [f"## {made['decision']}: {plain(series['name'])}", plain(series["title"])]
    against = [
        (one["weight"], one["rule"], code(one["cell"]), code(one["case"]), plain(one["why"])) for one in made["reasons"]
    ]
    if against:
        parts += ["### Against it", rows_of(("weight", "rule", "cell", "case", "why"), against)]
    parts += [
        "### Asked",
        rows_of(("rule", "asks", "outcome"), [tuple(map(plain, one.values())) for one in made["rules"]]),
    ]
    cells = [
        (code(one["id"]), one["purpose"], plain(one["identity"].get("build-id", "")), str(len(one["cases"])))
        for one in made["cells"]
    ]
    parts += ["### Cells", rows_of(("cell", "purpose", "build-id", "cases"), cells)]
    if made["notes"]:
        notes = [(one["rule"], code(one["cell"]), plain(one["why"])) for one in made["notes"]]
        parts += ["### To be known", rows_of(("rule", "cell", "what"), notes)]
    parts += ["### Trailers", "\n".join(f"    {line}" for line in made["trailers"])]
    parts += [f"Again: {code(shlex.join(['labs', *asked['command']]))}", f"sha256 of sign-off.json: {digest}"]
    return "\n\n".join(parts) + "\n"


def junit(made: Mapping[str, Any]) -> bytes:
    """One case a rule: a failure where something is wrong, skipped where too little is known."""
    cases = []
    for rule in made["rules"]:
        case = TestCase(rule["rule"], classname=f"sign-off.{clean(made['series']['name'])}")
        against = [one for one in made["reasons"] if one["rule"] == rule["rule"]]
        told = clean("\n".join(f"{one['cell']} {one['case']}: {one['why']}".strip() for one in against))
        if any(one["weight"] == REFUSED for one in against):
            case.add_failure_info(told.split("\n")[0], told)
        elif against:
            case.add_skipped_info(told.split("\n")[0], told)
        cases.append(case)
    suite = TestSuite(f"sign-off {clean(made['series']['name'])}: {made['decision']}", cases)
    root = ET.Element("testsuites")
    root.append(suite.build_xml_doc())
    return bytes(ET.tostring(root, encoding="utf-8", xml_declaration=True))
