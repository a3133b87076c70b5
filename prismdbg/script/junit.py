"""Findings as JUnit XML, as CI servers read it: one case for every expectation, and for what the replay as a whole came
to. Pure but for the writing."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from prismdbg.capsule.new_file import cannot_write
from prismdbg.model.moment import Moment
from prismdbg.script.findings import Ending, Finding, Findings, Outcome
from prismdbg.script.fix import FixVerdict, Judgement

REPLAY = "the replay is identical to the recorded run"
FIX = "the incident does not happen again"
# What XML 1.0 has no place for, not even escaped; and what steers a terminal or turns a line around.
_NOT_TEXT = re.compile(
    "[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]|[\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)

Look = Callable[[Moment | None], str]


@dataclass(frozen=True, slots=True)
class _Whole:
    """What the replay as a whole came to. `element`: of JUnit; empty where all is well."""

    name: str
    element: str
    type: str
    message: str


def junit(findings: Findings, *, suite: str, elapsed_s: float, look: Look, fix: FixVerdict | None = None) -> bytes:
    """`look`: the command that opens the replay at a moment. `fix`: of an edited program, where it was judged."""
    checks, whole = findings.checks, _of_fix(fix) if fix is not None else _of_replay(findings)
    elements = [each.element for each in whole]
    root = ElementTree.Element("testsuites")
    head = ElementTree.SubElement(
        root,
        "testsuite",
        name=_text(suite),
        tests=str(len(checks) + len(whole)),
        failures=str(len(findings.failed) + elements.count("failure")),
        errors=str(len(findings.undecided) + elements.count("error")),
        skipped="0",
        time=f"{elapsed_s:.3f}",
    )
    properties = {"ending": str(findings.ending), "reached": str(findings.reached or "")}
    properties |= {f"record.{record.name}@{record.moment}": record.text for record in findings.records}
    properties |= {f"back_to.{place.name}": place.text for place in findings.places}
    listed = ElementTree.SubElement(head, "properties")
    for name, value in properties.items():
        ElementTree.SubElement(listed, "property", name=_text(name), value=_text(value))
    for check in checks:
        _case(head, check, findings, suite, look)
    for each in whole:
        case = ElementTree.SubElement(head, "testcase", classname=_text(suite), name=each.name)
        if each.element:
            ended = ElementTree.SubElement(case, each.element, type=each.type, message=_text(each.message))
            ended.text = _came(findings.reached)
    ElementTree.indent(root)
    return bytes(ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"


def _of_replay(findings: Findings) -> list[_Whole]:
    """Checks may hold up to where a replay was lost or left the recorded run: that is no success."""
    if findings.ending is Ending.COMPLETE:
        return []
    why = ": ".join(filter(None, (str(findings.ending), findings.cut_short)))
    return [_Whole(REPLAY, "error", str(findings.ending), why)]


def _of_fix(fix: FixVerdict) -> list[_Whole]:
    match fix.judgement:
        case Judgement.GONE | Judgement.NO_INCIDENT:
            element = ""
        case Judgement.RECURS | Judgement.OTHER:
            element = "failure"
        case _:
            element = "error"
    return [_Whole(FIX, element, str(fix.judgement), fix.text)]


def write_junit(path: Path, data: bytes) -> None:
    """Whole or not at all: a CI server may look while it is written."""
    try:
        descriptor, partial = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(descriptor, "wb") as file:
                os.fchmod(file.fileno(), 0o644)
                file.write(data)
            Path(partial).replace(path)
        except BaseException:
            Path(partial).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise cannot_write(path, error) from None


def _case(suite: ElementTree.Element, check: Finding, findings: Findings, name: str, look: Look) -> None:
    case = ElementTree.SubElement(
        suite, "testcase", classname=_text(name), name=_text(check.title), file=check.place.rsplit(":", 2)[0]
    )
    if check.outcome is Outcome.FAILED:
        at = f" at {check.moment}" if check.moment is not None else ""
        failure = ElementTree.SubElement(case, "failure", type=check.kind, message=_text(f"{check.message}{at}"))
        failure.text = _text(_story(check, look))
    elif check.outcome is Outcome.UNDECIDED:
        why = findings.cut_short or str(findings.ending)
        error = ElementTree.SubElement(case, "error", type=str(findings.ending), message=_text(f"not decided: {why}"))
        error.text = _text(f"{_came(findings.reached)}\n{look(findings.reached)}")
    elif check.assumed:
        ElementTree.SubElement(case, "system-out").text = "depends on the answers of synthesized peers"


def _came(reached: Moment | None) -> str:
    return f"the replay reached {reached}" if reached is not None else "the replay reached no collective"


def _story(check: Finding, look: Look) -> str:
    lines = [f"{check.place}: {check.text}", f"moment: {check.moment or 'none'}", check.message]
    lines += [f"breakpoint: {check.stop}"] if check.stop else []
    lines += [f"    {name} = {value}" for name, value in check.values.items()]
    lines += ["depends on the answers of synthesized peers"] * check.assumed
    return "\n".join([*lines, "debug:", f"    {look(check.moment)}"])


def _text(text: str) -> str:
    return _NOT_TEXT.sub("�", text)
