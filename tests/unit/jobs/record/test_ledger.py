"""What the supervisor keeps of a run, and how many capsules: the same rule for each way that one is made."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from capsules import make_capsule

from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.capsule.manifest import Incident, IncidentKind
from prismdbg.capsule.secrets import own_rules
from prismdbg.errors import NotReplayable
from prismdbg.jobs.capture.capture import CaptureRequest, Say
from prismdbg.jobs.record import supervisor
from prismdbg.jobs.record.incidents import parse_triggers
from prismdbg.jobs.record.ledger import MOST_PROBLEMS, Ledger
from prismdbg.jobs.record.supervisor import Policy, Supervisor
from prismdbg.jobs.storage.run_folder import RunFolder, read_json, write_json
from prismdbg.model.moment import Moment

HANG = Incident(kind=IncidentKind.HANG, text="rank 0 waited 5 s", moment=Moment(3, 1))


def test_an_incident_names_its_ranks_and_its_capsules(tmp_path: Path) -> None:
    said: list[str] = []
    ledger = Ledger(tmp_path / "supervisor.json", 7, 2, said.append)
    entry = ledger.incident(HANG, ["0.1", "2.1"])
    ledger.capsule(entry, make_capsule(tmp_path / "a"))
    ledger.note(exit_code=0)
    state = read_json(tmp_path / "supervisor.json")
    assert (state["job_pid"], state["exit_code"], state["capsules"]) == (7, 0, [str(tmp_path / "a")])
    (kept,) = state["incidents"]
    assert (kept["kind"], kept["moment"], kept["ranks"], kept["attempt"]) == ("hang", "3.1", [0, 2], 1)
    assert kept["capsules"] == [str(tmp_path / "a")]
    assert said == ["incident: rank 0 waited 5 s", f"capsule: {tmp_path / 'a'}"]


def test_several_threads_note_at_once(tmp_path: Path) -> None:
    """The supervisor's, and the one that notes that the job was told to end. None fails, and nothing is lost."""
    ledger, failed = Ledger(tmp_path / "supervisor.json", 7, 2, lambda _: None), list[BaseException]()
    for number in range(200):
        ledger.problem(f"problem {number}")

    def note(name: str) -> None:
        try:
            for number in range(40):
                ledger.note(**{f"{name}{number}": number})
        except RuntimeError as error:
            failed.append(error)

    threads = [threading.Thread(target=note, args=(name,)) for name in "ab"]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    finally:
        sys.setswitchinterval(before)
    assert not failed
    state = read_json(tmp_path / "supervisor.json")
    assert all(state[f"{name}{number}"] == number for name in "ab" for number in range(40))


def test_a_text_of_any_length_is_kept_whole_and_said_in_a_line(tmp_path: Path) -> None:
    said: list[str] = []
    text = "ValueError: " + "x" * 30_000
    ledger = Ledger(tmp_path / "supervisor.json", 7, 1, said.append)
    ledger.incident(Incident(kind=IncidentKind.EXCEPTION, text=text, moment=Moment(3, 1)), ["0"])
    assert len(said[0]) < 2100 and said[0].endswith("...")
    assert read_json(tmp_path / "supervisor.json")["incidents"][0]["text"] == text


def test_a_secret_of_an_own_rule_is_neither_kept_nor_said(tmp_path: Path) -> None:
    said: list[str] = []
    own_rules.use_texts((), ("acme-[0-9]{4}",))
    try:
        ledger = Ledger(tmp_path / "supervisor.json", 7, 1, said.append)
        text = "ValueError: no seat for acme-1234 at https://me:hunter22x@host"
        entry = ledger.incident(Incident(kind=IncidentKind.EXCEPTION, text=text, moment=Moment(3, 1)), ["0"])
    finally:
        own_rules.use((), ())
    shown = "ValueError: no seat for <redacted> at https://me:<redacted>@host"
    assert said == [f"incident: {shown}"]
    assert entry["text"] == read_json(tmp_path / "supervisor.json")["incidents"][0]["text"] == shown


def test_no_more_capsules_than_were_asked_for_and_it_is_said_once(tmp_path: Path) -> None:
    said: list[str] = []
    ledger = Ledger(tmp_path / "supervisor.json", 7, 1, said.append)
    entry = ledger.incident(HANG, ["0"])
    assert ledger.has_room()
    ledger.capsule(entry, make_capsule(tmp_path / "a"))
    assert not ledger.has_room() and not ledger.has_room()
    assert said[2:] == ["no further capsule is created: the limit is 1; raise --keep"]


def test_evidence_that_cannot_be_replayed_is_no_capsule(tmp_path: Path) -> None:
    said: list[str] = []
    ledger = Ledger(tmp_path / "supervisor.json", 7, 1, said.append)
    kept = tmp_path / "a.evidence"
    found = NotReplayable(
        f"the capsule is not replayable; it is kept as evidence in {kept}", hint="record more", evidence=kept
    )
    ledger.evidence(ledger.incident(HANG, ["0"]), found)
    state = read_json(tmp_path / "supervisor.json")
    assert (state["capsules"], state["evidence"], state["problems"]) == ([], [str(kept)], [str(found)])
    assert (state["incidents"][0]["capsules"], state["incidents"][0]["evidence"]) == ([], [str(kept)])
    assert said[-1] == f"{found}; record more"
    assert not ledger.has_room(), "it takes the place of a capsule"


def test_a_folder_that_takes_nothing_is_said_once(tmp_path: Path) -> None:
    said: list[str] = []
    ledger = Ledger(tmp_path / "gone" / "supervisor.json", 7, 1, said.append)
    ledger.problem("one")
    ledger.problem("two")
    assert [text.startswith("the supervisor's report cannot be written") for text in said] == [False, True, False]


def test_the_list_of_problems_has_an_end(tmp_path: Path) -> None:
    said: list[str] = []
    ledger = Ledger(tmp_path / "supervisor.json", 7, 1, said.append)
    for number in range(2 * MOST_PROBLEMS):
        ledger.problem(f"number {number}")
        ledger.problem(f"again, number {number}", about="the same each time")
    problems = read_json(tmp_path / "supervisor.json")["problems"]
    assert problems == said and len(said) == MOST_PROBLEMS + 1
    assert said[:3] == ["number 0", "again, number 0", "number 1"]
    assert said[-1] == "there are more than 500 problems: further ones are neither said nor kept"


class Captures:
    """Stands for `capture`: a capsule of the rank, at once."""

    def __init__(self) -> None:
        self.ranks: list[int] = []

    def __call__(self, request: CaptureRequest, _say: Say) -> Capsule:
        self.ranks.append(request.rank)
        return make_capsule(request.output)


@pytest.fixture
def job(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Two ranks, of which nothing is kept, in one process that lives until it is told to end."""
    process = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    for rank in ("0", "1"):
        folder = tmp_path / "ranks" / rank
        folder.mkdir(parents=True)
        write_json(folder / "rank.json", {"pid": process.pid})
    yield process
    process.kill()
    process.wait(10)


@pytest.mark.parametrize(("keep", "captured"), [(1, [0]), (0, []), (4, [0, 1])])
def test_live_captures_are_counted_too(
    keep: int, captured: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job: subprocess.Popen[bytes]
) -> None:
    captures = Captures()
    monkeypatch.setattr(supervisor, "capture", captures)
    monkeypatch.setattr(supervisor, "has_past", lambda *_: False)
    watch = Supervisor(RunFolder(tmp_path), Policy(triggers=parse_triggers("signal"), keep=keep), job, lambda _: None)
    watch._on_signal(signal.SIGUSR1, None)
    watch._look(ended=False)
    assert captures.ranks == captured
    state = read_json(tmp_path / "supervisor.json")
    (incident,) = state["incidents"]
    assert incident["ranks"] == [0, 1]
    assert len(incident["capsules"]) == len(captured) and incident["capsules"] == state["capsules"]
    assert any("no further capsule" in problem for problem in state["problems"]) == (keep < 2)
    assert os.getpid() != state["job_pid"] == job.pid


def test_a_command_hears_of_the_incident_and_then_of_its_capsules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job: subprocess.Popen[bytes]
) -> None:
    monkeypatch.setattr(supervisor, "capture", Captures())
    monkeypatch.setattr(supervisor, "has_past", lambda *_: False)
    policy = Policy(triggers=parse_triggers("signal"), on_incident=f"cat >> {tmp_path / 'told'}")
    watch = Supervisor(RunFolder(tmp_path), policy, job, lambda _: None)
    watch._on_signal(signal.SIGUSR1, None)
    watch._look(ended=False)
    watch._on_incident.finish()
    told = {each["event"]: each for each in map(json.loads, (tmp_path / "told").read_text().splitlines())}
    assert told["incident"]["capsules"] == []
    assert told["captured"]["capsules"] == read_json(tmp_path / "supervisor.json")["capsules"] != []
