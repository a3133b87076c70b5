"""What a log's texts hold of secrets is taken out where a rule found it; the list says what became of each."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tiny_log import TinyLog

from prismdbg.capsule import layout
from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.capsule.log import format as fmt
from prismdbg.capsule.log.notes import PROGRAM
from prismdbg.capsule.manifest import Incident, IncidentKind, Origin
from prismdbg.capsule.secrets import masking
from prismdbg.jobs.capture import many_values, redaction
from prismdbg.jobs.capture.assemble import Ingredients, assemble
from prismdbg.jobs.capture.many_values import Values
from prismdbg.jobs.capture.redaction import Redaction
from prismdbg.jobs.capture.secret_search import Finding, State, report
from prismdbg.jobs.storage.run_folder import RunFolder
from prismdbg.log.rank_log import read_log
from prismdbg.model.collective import Failure

RANK = {
    "rank": 0, "world_size": 1, "cwd": "/", "argv": ["train.py"], "orig_argv": ["python", "train.py"],
    "environment": {}, "executable": "/bin/python", "prefix": "/", "base_prefix": "/", "sys_path": [],
    "versions": {"torch": "2.13", "python": "3.13", "prismdbg": "1"},
    "hardware": {"machine": "x86_64", "kernel": "6", "node": "n", "cpus": 1},
}  # fmt: skip
PASSWORD = "swordfish"
FAILED = f"cannot log in with password='{PASSWORD}' \"as\" µe\n"
IN_JSON = json.dumps(FAILED, ensure_ascii=False).replace("\\n", "\\u000a")  # as the native recorder writes it


def failed(log: TinyLog, body: str) -> None:
    log.append(fmt.Kind.NOTE, body.encode())
    log.complete(log.issue(0, 1), status=fmt.Status.FAILED)


def of_python(log: TinyLog) -> None:
    note = {"kind": "failed", "time_ns": 1, "record_id": 0, "at_issue": False, "type": "RuntimeError", "text": FAILED}
    failed(log, json.dumps(note))


def of_cpp(log: TinyLog) -> None:
    head = '{"kind": "failed", "time_ns": 1, "record_id": 0, "type": "RuntimeError", "text": '
    failed(log, f'{head}{IN_JSON}, "at_issue": false}}')


RECORDERS = pytest.mark.parametrize("write", [of_python, of_cpp])


def capsule_of(tmp_path: Path, log: TinyLog, **rank: object) -> Capsule:
    (log.folder / "rank.json").write_text(json.dumps(RANK | rank))
    incident = Incident(kind=IncidentKind.EXCEPTION, text=f"login with password='{PASSWORD}'")
    parts = Ingredients(
        run=RunFolder(tmp_path), folder=log.folder, output=tmp_path / "c", origin=Origin.START, incident=incident
    )
    return assemble(parts)


def holding(capsule: Capsule, value: str) -> list[str]:
    files = [path for path in capsule.path.rglob("*") if path.is_file()]
    return [path.name for path in files if value.encode() in path.read_bytes()]


@RECORDERS
def test_what_a_rule_finds_in_a_note_is_masked_and_what_is_listed_is_true(tmp_path: Path, write: object) -> None:
    log = TinyLog(tmp_path / "ranks" / "0")
    assert callable(write)
    write(log)
    capsule = capsule_of(tmp_path, log)
    assert holding(capsule, PASSWORD) == []
    found = report(capsule)
    assert Finding(place="log: note 'failed'", what="value of 'password'", state=State.REDACTED) in found.findings
    assert found.kept == ()
    (record,) = read_log(capsule.log).collectives
    assert record.failure == Failure("RuntimeError", FAILED.replace(PASSWORD, "<redacted>"), False)


def test_what_a_program_printed_is_masked(tmp_path: Path) -> None:
    log = TinyLog(tmp_path / "ranks" / "0")
    token = f"ghp_{'aB3' * 12}"
    of_program = {"arguments": ["gh", "auth", "token"], "folder": "/", "nth": 1}
    of_python(log)
    log.note(PROGRAM, **of_program, code=0, out=f"{token}\n", err=f"password='{PASSWORD}'")
    capsule = capsule_of(tmp_path, log)
    assert holding(capsule, token) == holding(capsule, PASSWORD) == []
    note = read_log(capsule.log).notes[-1]
    assert (note.data["out"], note.data["err"]) == ("<redacted>\n", "password='<redacted>'")
    assert "log: note 'program'" in {finding.place for finding in report(capsule).findings}


@RECORDERS
def test_a_segment_stays_as_long_as_it_was(tmp_path: Path, write: object) -> None:
    """Also where what stands for a secret is longer than the secret: a password of a few letters, many times."""
    log = TinyLog(tmp_path / "log")
    assert callable(write)
    write(log)
    log.note("incident", text="; ".join(f"password{n}='abc{n}'" for n in range(20)), traceback=["password='abc'"])
    log.note("file", path="/data/password='abc'/x")
    before = log.path.read_bytes()
    masked = Redaction.of(RANK, (), (read_log(log.folder),)).mask(before)
    assert len(masked) == len(before) and masked[-64:] == before[-64:]
    log.path.write_bytes(masked)
    *_, incident, file = read_log(log.folder).notes
    assert incident.data["text"] == "; ".join(f"password{n}='{'*' * len(f'abc{n}')}'" for n in range(20))
    assert incident.data["traceback"] == ["password='***'"]
    assert file.data["path"] == "/data/password='abc'/x"  # a replay opens it under this name


@pytest.mark.parametrize("value", ["swordfish", "pw1x", "postgres"])
def test_the_value_of_a_variable_is_masked_in_a_text_where_it_is_a_word(tmp_path: Path, value: str) -> None:
    log = TinyLog(tmp_path / "log")
    log.note("incident", text=f"{value}: no access to /{value}/x for ({value})")
    environment = {"DB_PASSWORD": value, "DB_USER": value, "HOME": f"/{value}"}
    redacted = Redaction.of(RANK | {"environment": environment, "orig_argv": ["python", value, f"{value}.py"]}, (),
                            (read_log(log.folder),))  # fmt: skip
    log.path.write_bytes(redacted.mask(log.path.read_bytes()))
    (note,) = read_log(log.folder).notes
    gone = "*" * len(value) if len(value) < 6 else "<redacted>"  # what is longer does not fit
    assert note.data["text"] == f"{gone}: no access to /{value}/x for ({gone})"
    assert {(finding.place, finding.state) for finding in redacted.findings} == {
        ("variable DB_PASSWORD", State.REDACTED),
        ("variable DB_USER", State.KEPT),
        ("argument 1", State.KEPT),
        ("log: note 'incident'", State.REDACTED),
    }
    assert redacted.described["environment"] == {"DB_USER": value, "HOME": f"/{value}"}


def test_many_secrets_are_masked_everywhere_with_no_search_for_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = [f"{number:04}aB3xY9z" for number in range(300)]
    log = TinyLog(tmp_path / "log")
    for number, value in enumerate(values):
        log.note("incident", text=f"password='{value}' (not {values[number - 7]})")
    log.note("file", path=f"/data/{values[5]}")
    read, searched = read_log(log.folder), list[str]()
    known = masking._wherever
    monkeypatch.setattr(masking, "_wherever", lambda value: searched.append(value) or known(value))
    redacted = Redaction.of(RANK, (), (read,))
    assert len(searched) <= 3 * len(values)
    masked = redacted.mask(log.path.read_bytes())
    assert [value for value in values if value.encode() in masked] == []


@pytest.mark.parametrize("few", [0, 1000])
def test_values_are_found_in_one_pass_as_one_by_one(monkeypatch: pytest.MonkeyPatch, few: int) -> None:
    monkeypatch.setattr(many_values, "FEW", few)
    values = Values(["abcd", "abcde", "bcdef", "xabcd", "none at all"])
    assert values.held_by("abcdef") == {"abcd", "abcde", "bcdef"}
    assert values.held_by("abc") == set()
    assert Values([b"abcd", b"dabc"]).held_by(b"\0abcdabcd") == {b"abcd", b"dabc"}


def test_what_cannot_be_masked_is_listed_as_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = TinyLog(tmp_path / "log")
    log.note("incident", text=f" password='{PASSWORD}'")
    read = read_log(log.folder)
    monkeypatch.setattr(redaction, "spans", lambda text, known, find: [(0, 1)])
    states = {finding.what: finding.state for finding in Redaction.of(RANK, (), (read,)).findings}
    assert states["value of 'password'"] is State.KEPT


def test_a_capsule_says_where_its_texts_were_cleaned(tmp_path: Path) -> None:
    log = TinyLog(tmp_path / "ranks" / "0")
    of_python(log)
    capsule = capsule_of(tmp_path, log)
    listed = json.loads((capsule.path / layout.SECRETS).read_text())["findings"]
    assert {"place": "manifest: incident", "what": "value of 'password'", "state": "redacted"} in listed
    assert capsule.manifest.incident.text == "login with password='<redacted>'"


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["tool", "--password", "Tr0ub4dor99"], "tool --password <redacted>"),
        (["sshpass", "-p", "S3cretPw"], "sshpass -p <redacted>"),
        (["mysql", *["-pab"] * 4], "mysql -p** -p** -p** -p**"),  # what is longer does not fit
        (["curl", "-u", "me:S3cretPw"], "curl -u <redacted>"),
        (["aws", "--secret-access-key", "hello12world"], "aws --secret-access-key <redacted>"),
        (["docker", "login", "-p", "hunters"], "docker login -p <redacted>"),
        (["mkdir", "-p", "results_2024"], "mkdir -p results_2024"),
    ],
)
def test_the_command_line_of_another_program_is_masked(tmp_path: Path, words: list[str], shown: str) -> None:
    log = TinyLog(tmp_path / "ranks" / "0")
    log.issue(0, 1)
    log.note(PROGRAM, arguments=words, folder="/", nth=1)
    capsule = capsule_of(tmp_path, log)
    note = read_log(capsule.log).notes[-1]
    found = report(capsule)
    assert " ".join(note.data["arguments"]) == shown and found.kept == ()
    is_told = any(finding.place.startswith("log: note 'program', argument -") for finding in found.findings)
    assert is_told == (" ".join(words) != shown)


def test_a_secret_of_a_command_line_is_masked_where_the_program_prints_it(tmp_path: Path) -> None:
    log = TinyLog(tmp_path / "ranks" / "0")
    log.issue(0, 1)
    of_program = {"arguments": ["aws", "--secret-access-key", "hello12world"], "folder": "/", "nth": 1}
    log.note(PROGRAM, **of_program, code=1, err="refused: hello12world")
    assert holding(capsule_of(tmp_path, log), "hello12world") == []


def test_a_secret_that_the_program_put_into_a_variable_itself_is_masked_and_no_variable_of_the_capsule(
    tmp_path: Path,
) -> None:
    log = TinyLog(tmp_path / "ranks" / "0")
    log.note("incident", text=f"no access with {PASSWORD}")
    capsule = capsule_of(tmp_path, log, environment={"KEPT": "1"}, variables_set={"MY_TOKEN": PASSWORD, "PATH": "/x"})
    assert holding(capsule, PASSWORD) == []
    assert capsule.rank()["environment"] == {"KEPT": "1"} and not capsule.rank()["redacted"]
    assert capsule.rank()["variables_set"] == {}, "they are known, and set by the program itself"


def test_both_secrets_of_a_variable_that_the_program_set_anew_are_masked(tmp_path: Path) -> None:
    log = TinyLog(tmp_path / "ranks" / "0")
    log.note("incident", text=f"no access with {PASSWORD}, nor with merlinfalcon")
    variables = {"environment": {"MY_TOKEN": PASSWORD}, "variables_set": {"MY_TOKEN": "merlinfalcon"}}
    capsule = capsule_of(tmp_path, log, **variables)
    assert holding(capsule, PASSWORD) == holding(capsule, "merlinfalcon") == []
