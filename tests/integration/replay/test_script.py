"""Scripted replays of real capsules, as CI runs them: by YAML, by debugger commands, with other peers."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from chain import INCIDENTS, Said, Taken, prismdbg, span
from jobs import ROOT

pytestmark = [pytest.mark.job]

CI = ROOT / "examples" / "ci"


def scripted(capsule: Path, script: Path | str, *options: object, home: Path, runtime: str = "local") -> Said:
    if isinstance(script, str):
        (home / "checks.yaml").write_text(script)
        script = home / "checks.yaml"
    return prismdbg("replay", capsule, "--runtime", runtime, "--script", script, *options)


def outcomes(report: dict[str, Any]) -> dict[str, str]:
    return {check["name"]: check["outcome"] for check in report["checks"]}


def test_the_example_finds_the_incident(nan_from_start: Taken, tmp_path: Path) -> None:
    """Each failing check names the moment of the incident, and a command that stands there."""
    capsule, incident = nan_from_start.capsule, str(nan_from_start.manifest.incident.moment)
    said = scripted(capsule, CI / "checks.yaml", "--json", "--junit", tmp_path / "out.xml", home=tmp_path)
    assert said.code == 1, said.err
    report = said.json
    failed = [check for check in report["checks"] if check["outcome"] == "failed"]
    assert [check["name"] for check in report["checks"] if check["outcome"] == "held"] == ["no exception"]
    assert {check["moment"] for check in failed} == {incident} and len(failed) == 3
    assert failed[0]["values"]["scores"].startswith("float32[8]") and " nan 1 " in failed[0]["values"]["scores"]
    losses = [record for record in report["records"] if record["name"] == "loss"]
    assert len(losses) == nan_from_start.manifest.incident.moment.step + 1
    assert losses[-1]["moment"] == incident and "nan" in losses[-1]["text"] and "nan" not in losses[-2]["text"]

    suite = ElementTree.parse(tmp_path / "out.xml").getroot()[0]
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("4", "3", "0")
    failure = suite.find(".//failure")
    assert failure is not None and failure.text is not None
    command = shlex.split(failure.text.strip().splitlines()[-1])
    assert command[0] == "prismdbg"
    there = prismdbg(*command[1:], "--runtime", "local", "--plain", typed="print finite(scores)\n")
    assert f"stopped at {incident}" in there.out and there.out.rstrip().endswith("False"), there.out + there.err


@pytest.mark.criu
@pytest.mark.parametrize("runtime", ["local", pytest.param("docker", marks=pytest.mark.docker)])
def test_from_a_process_image(nan_with_checkpoints: Taken, tmp_path: Path, runtime: str) -> None:
    manifest = nan_with_checkpoints.manifest
    first = span(nan_with_checkpoints.capsule)[0].moment  # how far it lies before the incident is the machine's to say
    script = f"""
run_to: {manifest.incident.moment}
expect:
  - {{that: step == {first.step} and len(input) > 0, at: {first}}}
  - {{that: nan(input), at: end, name: the NaN is there}}
forbid:
  - {{when: "step < {manifest.incident.moment.step} and nan(input)", name: none before}}
record:
  - {{name: sent, value: "input[0]", at: end}}
"""
    said = scripted(nan_with_checkpoints.capsule, script, "--json", home=tmp_path, runtime=runtime)
    assert said.code == 0, said.out + said.err
    assert set(outcomes(said.json).values()) == {"held"}
    assert (said.json["ending"], said.json["reached"]) == ("complete", str(manifest.incident.moment))
    assert "nan" in said.json["records"][0]["text"]


def test_a_moment_outside_the_capsule_is_refused_before_anything_starts(nan_from_start: Taken, tmp_path: Path) -> None:
    said = scripted(nan_from_start.capsule, "expect:\n  - {that: step, at: 999.1}\n", home=tmp_path)
    assert said.code == 2
    assert "checks.yaml:2:22: 999.1 is after the capsule's end moment" in said.err and "starting" not in said.err


def test_what_is_known_is_reported_when_the_time_is_over(nan_from_start: Taken, tmp_path: Path) -> None:
    script = "time_limit: 0.01\nexpect:\n  - {that: step > 3, at: 5.1}\n"
    junit = tmp_path / "out.xml"
    said = scripted(nan_from_start.capsule, script, "--junit", junit, home=tmp_path)
    assert said.code == 124 and "raise time_limit in the script" in said.err, said.err
    error = ElementTree.parse(junit).getroot().find(".//error")
    assert error is not None and error.get("type") == "out of time"
    bisected = ("--bisect", "--source", INCIDENTS / "nan")
    assert scripted(nan_from_start.capsule, script, *bisected, home=tmp_path).code == 125


def test_a_rank_that_waits_is_broken_off(nan_from_start: Taken, tmp_path: Path) -> None:
    """Also in the midst of a collective, whose peer is late."""
    script = "time_limit: 40\npeers: [{from: 2.1, late: 600}]\nforbid: [{on: nan}]\n"
    said = scripted(nan_from_start.capsule, script, "--json", home=tmp_path)
    assert said.code == 124, said.out + said.err
    assert said.json["ending"] == "out of time" and said.json["elapsed_s"] < 120
    assert "it was at 2.1" in said.json["cut_short"]


def test_a_bad_capsule_has_its_report_too(tmp_path: Path) -> None:
    (tmp_path / "capsule").mkdir()
    junit = tmp_path / "out.xml"
    said = scripted(tmp_path / "capsule", "forbid: [{on: nan}]\n", "--junit", junit, home=tmp_path)
    assert said.code == 3
    assert ElementTree.parse(junit).getroot()[0].get("errors") == "2"  # the check, and the replay
    bisected = ("--bisect", "--source", INCIDENTS / "nan")
    assert scripted(tmp_path / "capsule", "forbid: [{on: nan}]\n", *bisected, home=tmp_path).code == 125


def test_stops_between_collectives(nan_from_start: Taken, tmp_path: Path) -> None:
    script = """
run_to: 2.1
stop_at:
  - {name: large, on: allocation, when: size > 500KB, once: true}
  - {name: head, on: change, value: ddp.module.head.weight}
expect:
  - {that: size > 500KB, at: large}
forbid:
  - {on: allocation, when: allocated > 1GiB}
record:
  - {name: sum, value: sum(ddp.module.head.weight), at: head}
"""
    said = scripted(nan_from_start.capsule, script, "--json", home=tmp_path)
    assert said.code == 0, said.out + said.err
    assert [record["moment"] for record in said.json["records"]] == ["0.4", "1.1", "2.1"]
    assert len({record["text"] for record in said.json["records"]}) == 3


def test_other_peers(nan_from_start: Taken, tmp_path: Path) -> None:
    """The same noise gives the same losses, and everything that rests on it is marked."""
    first, again = (scripted(nan_from_start.capsule, CI / "what-if.yaml", "--json", home=tmp_path) for _ in range(2))
    assert first.code == again.code == 0, first.out + first.err
    assert first.json["records"] == again.json["records"]
    marked = {record["moment"]: record["assumed"] for record in first.json["records"]}
    assert not any(assumed for moment, assumed in marked.items() if int(moment.split(".")[0]) <= 4)
    assert all(assumed for moment, assumed in marked.items() if int(moment.split(".")[0]) >= 6)
    assert (first.json["fix"]["left"], first.json["fix"]["affected"]) == ("5.1", "5.1")


def test_a_peer_that_never_comes(nan_from_start: Taken, tmp_path: Path) -> None:
    script = "peers: [{from: 3.1, ranks: [0], missing: true}]\nforbid: [{on: exception}]\n"
    said = scripted(nan_from_start.capsule, script, "--json", home=tmp_path)
    assert said.code == 1, said.out + said.err
    assert said.json["checks"][0]["moment"] == "3.1"
    assert "Timed out, as assumed: rank 0 did not come to all_reduce" in said.json["output"]


def test_debugger_commands_from_a_file(nan_from_start: Taken, tmp_path: Path) -> None:
    """A line that fails makes the exit code; those after it are carried out."""
    lines = tmp_path / "lines"
    lines.write_text("# to the NaN\nbreak nan\n\ncontinue\nprint nan(input)\nprint nowhere\nprint finite(input)\n")
    said = prismdbg("replay", nan_from_start.capsule, "--runtime", "local", "-x", lines)
    assert said.code == 1, said.out + said.err
    assert f"stopped at {nan_from_start.manifest.incident.moment}" in said.out
    _, right, wrong = said.out.partition("(prismdbg) print nan(input)\nTrue\n")
    assert right and "unknown name 'nowhere'" in wrong
    assert wrong.rstrip().endswith("(prismdbg) print finite(input)\nFalse")


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("frobnicate", "unknown command 'frobnicate'"),
        ("print scores +", "the expression ends too early"),
        ("break nanx", "unknown collective 'nanx'"),
        ("break all_reduce on nowhere", "unknown group 'nowhere'"),
        ("break nan if numel(", "the expression ends too early"),
        ("watch nosuchname", "unknown name 'nosuchname'"),
        ("condition 1 step >", "the expression ends too early"),
        ("logpoint 1 {step", "this brace has no other one"),
        ("export out[ out.npy", "the expression ends too early"),
        ("export timeline", "export needs an expression and a file"),
        ("who wrote loss[", "the expression ends too early"),
        ("watch! 3", "never changes"),
        ("condition 1 nosuchname > 2", "unknown name 'nosuchname'"),
        ("logpoint 1 {nosuchname}", "unknown name 'nosuchname'"),
        ("help frob", "unknown command 'frob'"),
    ],
)
def test_a_wrong_command_is_refused_before_anything_starts(nan_from_start: Taken, line: str, why: str) -> None:
    said = prismdbg("replay", nan_from_start.capsule, "-x", "-", typed=f"next\n\n{line}\n")
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("error: -:3: ") and why in said.err and "starting" not in said.err


def test_the_schema_is_printed(tmp_path: Path) -> None:
    said = prismdbg("replay", "--script-schema")
    assert said.code == 0 and json.loads(said.out)["title"] == "prismdbg replay --script"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--script", CI / "checks.yaml", "-x", "-"), "cannot be combined"),
        (("--junit", "out.xml"), "add --script"),
        (("--script", CI / "checks.yaml", "--until", "3"), "run_to"),
        (("-x", "-", "--json"), "use --script instead of -x"),
        (("-x", "-", "--source", "."), "use --script to check the edited program"),
    ],
)
def test_what_does_not_go_together(tmp_path: Path, options: tuple[object, ...], said: str) -> None:
    answer = prismdbg("replay", tmp_path, *options)
    assert answer.code == 2 and said in answer.err
