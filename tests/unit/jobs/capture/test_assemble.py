"""A capsule made of a run folder: from where on it can be replayed is what is really in it."""

from __future__ import annotations

import json
import platform
import shutil
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace

import pytest
from capsules import STARTED
from tiny_log import TinyLog

from prismdbg.capsule import checked_json, layout
from prismdbg.capsule.capsule_dir import Capsule, CapsuleWriter
from prismdbg.capsule.log import format as fmt
from prismdbg.capsule.log.coverage import NO_STEP_BEFORE, StartPoint
from prismdbg.capsule.manifest import FileEntry, Incident, IncidentKind, Origin
from prismdbg.capsule.stacks import JobStacks
from prismdbg.cli import main
from prismdbg.cli.exit_codes import ExitCode
from prismdbg.errors import CapsuleError, NotReplayable
from prismdbg.jobs.capture import assemble as assemble_module
from prismdbg.jobs.capture.assemble import Ingredients, assemble
from prismdbg.jobs.replay.replay import ReplayRequest, open_replay, redacted_arguments
from prismdbg.jobs.storage.kept_stacks import keep_stacks
from prismdbg.jobs.storage.run_folder import RunFolder, read_json, write_json
from prismdbg.jobs.storage.verify import Severity, findings, require_replayable
from prismdbg.log.columns import read_columns
from prismdbg.log.folding import fold
from prismdbg.log.joining import join
from prismdbg.model.collective import TensorMeta
from prismdbg.model.moment import Moment
from prismdbg.runtime.environment import Environment

LOST = range(100)
SECRET = "hunter2"


def run_folder(path: Path) -> RunFolder:
    return written_run(path)[0]


def written_run(path: Path) -> tuple[RunFolder, TinyLog]:
    """One rank, two steps of three collectives, each with a payload segment of its own."""
    run = RunFolder(path)
    log = TinyLog(run.ranks / "0")
    log.group("0", (0, 1), "default_pg")
    for step in range(2):
        for number in range(1, 4):
            record = log.issue(step, number)
            size = 16
            (log.folder / fmt.payload_segment(record)).write_bytes(bytes(size))
            flags = fmt.CompleteFlag.PAYLOAD
            body = fmt.COMPLETE.pack(record, 3000, 0, size, record, -1, fmt.Status.OK, flags, 0, 0)
            log.append(fmt.Kind.COMPLETE, body)
        log.step(step + 1)
    argv = ["train.py", "--api-key", SECRET, f"--url=https://me:{SECRET}@host", "--lr", "0.1"]
    facts = {"rank": 0, "world_size": 2, "environment": {"MY_TOKEN": SECRET}, "cwd": str(path), "argv": argv}
    facts |= {"orig_argv": ["python", *argv], **STARTED}
    write_json(log.folder / "rank.json", {**facts, "versions": {}, "hardware": {}})
    write_json(run.environment, Environment(()).to_json())
    return run, log


def made(path: Path, lost: range) -> Capsule:
    run = run_folder(path / "run")
    folder = run.ranks / "0"
    for record in lost:
        (folder / fmt.payload_segment(record)).unlink(missing_ok=True)
    incident = Incident(kind=IncidentKind.REQUEST, text="by hand")
    return assemble(
        Ingredients(run=run, folder=folder, output=path / "capsule", origin=Origin.START, incident=incident)
    )


@pytest.mark.parametrize("changes", ["join", "fold"])
def test_segments_that_are_joined_or_dropped_while_they_are_copied_are_copied_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: str
) -> None:
    _, log = written_run(tmp_path / "run")
    for step in range(2, 9):
        log.next_segment()
        log.complete(log.issue(step, 1))
    add_file, copied = CapsuleWriter.add_file, []

    def while_it_changes(writer: CapsuleWriter, name: str, source: Path) -> FileEntry:
        copied.append(name)
        if len(copied) == 3:
            join(log.folder) if changes == "join" else fold(log.folder, 3 * log.segment_bytes)
        return add_file(writer, name, source)

    monkeypatch.setattr(CapsuleWriter, "add_file", while_it_changes)
    with CapsuleWriter(tmp_path / "capsule") as writer:
        made = assemble_module._add_events(writer, log.folder, StartPoint(past_records=0))
        there = sorted(path.name for path in (writer.folder / layout.LOG).iterdir())
        issued = [record.record_id for record in made.collectives]
    assert issued == [*range(0 if changes == "join" else 10, 13)]
    assert there == [fmt.event_segment(number) for number in ((0, *range(1, 8)) if changes == "join" else (0, 5, 6, 7))]


@pytest.mark.parametrize(
    ("kind", "past", "said"),
    [(IncidentKind.HANG, 3, True), (IncidentKind.HANG, 0, False), (IncidentKind.REQUEST, 3, False)],
)
def test_a_capsule_that_starts_in_the_step_of_its_incident_says_so(
    tmp_path: Path, kind: IncidentKind, past: int, said: bool
) -> None:
    """As of a hang that was captured live."""
    run = run_folder(tmp_path / "run")
    parts = Ingredients(
        run=run, folder=run.ranks / "0", output=tmp_path / "capsule", origin=Origin.IMAGE, past_records=past,
        incident=Incident(kind=kind, text="it hung"),
    )  # fmt: skip
    assert (NO_STEP_BEFORE in assemble(parts).manifest.notes) is said


def test_the_newest_cause_of_data_that_was_not_kept_is_shown(tmp_path: Path) -> None:
    run, log = written_run(tmp_path / "run")
    for number in (1, 2):
        log.note("not_kept", text=f"data received in {number} calls or more was not kept")
    incident = Incident(kind=IncidentKind.REQUEST, text="by hand")
    made = assemble(
        Ingredients(run=run, folder=log.folder, output=tmp_path / "c", origin=Origin.START, incident=incident)
    )
    assert [note for note in made.manifest.notes if "kept" in note] == ["data received in 2 calls or more was not kept"]


def kept(path: Path, lost: range) -> Capsule:
    """The evidence where a replay is impossible, else the capsule."""
    try:
        return made(path, lost)
    except NotReplayable as error:
        assert not (path / "capsule").exists() and error.evidence == path / "capsule.evidence"
        return Capsule.open(error.evidence)


@pytest.mark.parametrize(
    ("lost", "whole_from", "said"),
    [
        (range(0), Moment(0, 1), ""),
        (range(1), Moment(0, 2), "not replayable before 0.2"),
        (range(1, 4), Moment(1, 2), "not replayable before 1.2"),
        (range(5, 6), Moment(1, 4), "not replayable: no received data"),
        (LOST, Moment(1, 4), "not replayable: no received data"),
    ],
)
def test_from_where_on_it_can_be_replayed(lost: range, whole_from: Moment, said: str, tmp_path: Path) -> None:
    capsule = kept(tmp_path, lost)
    assert capsule.path.name == ("capsule.evidence" if said else "capsule")
    manifest = Capsule.open(capsule.path).manifest
    assert (manifest.moment_a, manifest.moment_b) == (Moment(0, 1), Moment(1, 3))
    assert manifest.replayable_from == whole_from
    assert manifest.not_replayable.startswith(said) and bool(manifest.not_replayable) == bool(said)
    found = list(findings(capsule.path))
    assert [f for f in found if f.severity is Severity.FATAL] == []
    assert [f.text for f in found if f.severity is Severity.INCOMPLETE] == ([manifest.not_replayable] if said else [])


def test_it_is_said_wherever_the_capsule_is_looked_at(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(kept(tmp_path, range(2)).path)
    assert main.run(["list", str(tmp_path)]) == ExitCode.OK
    assert "evidence that cannot be replayed: rank 0, 0.1 to 1.3" in capsys.readouterr().out
    assert main.run(["inspect", path]) == ExitCode.OK
    assert "not replayable before 0.3" in capsys.readouterr().out
    assert main.run(["verify", path]) == ExitCode.BAD_CAPSULE
    shown = capsys.readouterr()
    assert "lack  prismdbg/log: not replayable before 0.3" in shown.out and "unaltered but incomplete" in shown.err
    assert main.run(["replay", path]) == ExitCode.BAD_CAPSULE
    assert "the capsule, whose first collective is 0.1, is not replayable before 0.3" in capsys.readouterr().err


def test_a_replay_of_it_is_refused_before_anything_is_started(tmp_path: Path) -> None:
    capsule = kept(tmp_path, LOST)
    with (
        pytest.raises(CapsuleError, match="not replayable: no received data was kept"),
        open_replay(ReplayRequest(capsule=capsule), print),
    ):
        pass


def test_a_segment_that_leaves_the_window_meanwhile_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a live rank: the first is copied and goes, the second is gone before it is copied."""
    add = CapsuleWriter.add_parts

    def add_and_lose(self: CapsuleWriter, name: str, source: Path, parts: Iterable[tuple[int, int]]) -> object:
        entry = add(self, name, source, parts)
        if source.name == fmt.payload_segment(0):
            source.unlink()
            (source.parent / fmt.payload_segment(1)).unlink()
        return entry

    monkeypatch.setattr(CapsuleWriter, "add_parts", add_and_lose)
    assert kept(tmp_path, range(0)).manifest.replayable_from == Moment(0, 3)


def test_bytes_of_a_segment_that_no_collective_received_stay_out(tmp_path: Path) -> None:
    """A segment is written over, so that older data is behind and between what the log speaks of."""
    run = run_folder(tmp_path / "run")
    source = run.ranks / "0" / fmt.payload_segment(2)
    source.write_bytes(b"R" * 16 + SECRET.encode() * 300_000)
    incident = Incident(kind=IncidentKind.REQUEST, text="by hand")
    parts = Ingredients(
        run=run, folder=source.parent, output=tmp_path / "capsule", origin=Origin.START, incident=incident
    )
    capsule = assemble(parts)
    held = (capsule.log / source.name).read_bytes()
    assert held == b"R" * 16 + bytes(len(SECRET) * 300_000)
    assert [f for f in findings(capsule.path) if f.severity is Severity.FATAL] == []
    assert (capsule.log / source.name).stat().st_blocks * 512 < len(held) / 2


def test_a_known_value_is_found_in_whatever_is_kept(tmp_path: Path) -> None:
    """What was received before the start moment is in a segment that the replay needs."""
    run, token = RunFolder(tmp_path / "run"), "q7" + "aB3x" * 6
    log = TinyLog(run.ranks / "0")
    log.group("0", (0, 1), "default_pg")
    for number in (1, 2):
        data = token.encode() if number == 1 else bytes(26)
        outputs = [TensorMeta((len(data),), "uint8")]
        log.complete(log.issue(0, number, op="c10d::broadcast_", outputs=outputs), data)
    facts = {"rank": 0, "world_size": 2, "environment": {"MY_TOKEN": token}, "cwd": str(tmp_path), "argv": []}
    write_json(log.folder / "rank.json", {**facts, "orig_argv": [], "versions": {}, "hardware": {}})
    write_json(run.environment, Environment(()).to_json())
    incident = Incident(kind=IncidentKind.REQUEST, text="by hand")
    parts = Ingredients(
        run=run, folder=log.folder, output=tmp_path / "capsule", origin=Origin.IMAGE, past_records=1, incident=incident
    )
    capsule = assemble(parts)
    assert capsule.manifest.moment_a == Moment(0, 2)
    said = json.loads((capsule.path / layout.SECRETS).read_text())["findings"]
    assert [finding["place"] for finding in said if finding["state"] == "kept"] == ["payload of 0.1 (broadcast)"]


def test_evidence_is_never_written_over(tmp_path: Path) -> None:
    for number in range(3):
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
        with pytest.raises(NotReplayable, match=r"the capsule is not replayable.*; it is kept as evidence in "):
            made(tmp_path, LOST)
        assert len(list(tmp_path.glob("capsule.evidence*"))) == number + 1


def test_the_log_of_a_capsule_is_the_one_that_it_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a live rank: an answer that is written while the log is copied is in it, or what it brought is asked for."""
    run, log = written_run(tmp_path / "run")
    folder = run.ranks / "0"
    add = CapsuleWriter.add_file

    def answered_meanwhile(self: CapsuleWriter, name: str, source: Path, *how: object) -> object:
        if source.name == fmt.event_segment(0) and not (folder / fmt.payload_segment(9)).exists():
            record = log.issue(1, 4)
            (folder / fmt.payload_segment(9)).write_bytes(bytes(16))
            body = fmt.COMPLETE.pack(record, 3000, 0, 16, 9, -1, fmt.Status.OK, fmt.CompleteFlag.PAYLOAD, 0, 0)
            log.append(fmt.Kind.COMPLETE, body)
        return add(self, name, source, *how)  # type: ignore[arg-type]

    monkeypatch.setattr(CapsuleWriter, "add_file", answered_meanwhile)
    capsule = assemble(
        Ingredients(
            run=run,
            folder=folder,
            output=tmp_path / "capsule",
            origin=Origin.START,
            incident=Incident(kind=IncidentKind.REQUEST, text="by hand"),
        )
    )
    assert capsule.manifest.moment_b == Moment(1, 4)
    require_replayable(capsule)


@pytest.mark.parametrize(("past", "begins"), [(47, 34), (48, 38), (51, 38), (52, 42), (12, 0)])
def test_the_log_of_a_capsule_begins_a_while_before_its_start_and_not_earlier(
    past: int, begins: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the segment in which the first of the collectives before it was issued: segments are copied as they are."""
    monkeypatch.setattr(assemble_module, "CONTEXT_RECORDS", 10)
    run, log = written_run(tmp_path / "run")  # six collectives
    for step in range(2, 16):
        log.next_segment()
        for number in range(1, 5):
            log.complete(log.issue(step, number), bytes(16))
    parts = Ingredients(
        run=run, folder=run.ranks / "0", output=tmp_path / "capsule", origin=Origin.IMAGE, past_records=past,
        incident=Incident(kind=IncidentKind.REQUEST, text="by hand"),
    )  # fmt: skip
    columns = read_columns(assemble(parts).log)
    assert columns.record_id.tolist() == list(range(begins, 62))


def test_secrets_of_the_command_line_and_the_environment_stay_out(tmp_path: Path) -> None:
    capsule = made(tmp_path, range(0))
    for path in capsule.path.rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes(), path
    rank = capsule.rank()
    assert rank["argv"] == rank["orig_argv"][1:] and rank["argv"][4:] == ["--lr", "0.1"]
    assert (rank["redacted"], rank["redacted_arguments"]) == (["MY_TOKEN"], ["--api-key", "--url"])
    said = redacted_arguments(capsule)
    assert "the values of --api-key, --url; the program gets '<redacted>'" in said


@pytest.mark.parametrize("kind", IncidentKind)
def test_stacks_are_in_the_capsule_of_an_incident_for_which_they_were_taken(kind: IncidentKind, tmp_path: Path) -> None:
    run = run_folder(tmp_path / "run")
    keep_stacks(run, JobStacks(taken_wall_ns=5, attempt=0, ranks={}, hang=None))
    parts = Ingredients(
        run=run,
        folder=run.ranks / "0",
        output=tmp_path / "capsule",
        origin=Origin.START,
        incident=Incident(kind=kind, text="seen"),
    )
    has_stacks = (assemble(parts).path / layout.STACKS).is_file()
    assert has_stacks == (kind in (IncidentKind.HANG, IncidentKind.SIGNAL))


@pytest.mark.parametrize("is_here", [True, False])
def test_programs_are_listed_by_the_node_that_ran_them_alone(is_here: bool, tmp_path: Path) -> None:
    """Another node has other ones, or none; that a container lacks them is said."""
    run, log = written_run(tmp_path / "run")
    log.note("ran", path="/usr/bin/env")
    facts = read_json(log.folder / "rank.json")
    node = platform.node() if is_here else "another"
    write_json(log.folder / "rank.json", {**facts, "hardware": {"node": node}})
    incident = Incident(kind=IncidentKind.REQUEST, text="by hand")
    capsule = assemble(
        Ingredients(run=run, folder=log.folder, output=tmp_path / "capsule", origin=Origin.START, incident=incident)
    )
    listed = Environment.from_json(checked_json.read(capsule.path / layout.ENVIRONMENT))
    assert ("/usr/bin/env" in {file.path for file in listed.files}) is is_here
    assert any("captured on another node" in note for note in capsule.manifest.notes) is not is_here


@pytest.mark.parametrize("count", [1, 2])
def test_that_a_rank_read_more_files_than_are_noted_is_said(
    count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("prismdbg.jobs.capture.assemble.MAX_FILES_READ", 2)
    run, log = written_run(tmp_path / "run")
    for number in range(count):
        log.note("file", path=f"/data/{number}")
    incident = Incident(kind=IncidentKind.REQUEST, text="by hand")
    capsule = assemble(
        Ingredients(run=run, folder=log.folder, output=tmp_path / "capsule", origin=Origin.START, incident=incident)
    )
    said = "the rank read more than 2 files: the capsule knows of none of the later"
    assert (said in capsule.manifest.notes) is (count == 2)


@pytest.mark.parametrize("is_own", [True, False])
def test_the_images_of_a_checkpoint_that_stays_are_linked(
    is_own: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may be as large as the machine's memory. CRIU makes them readable for others, a capsule's files are not:
    another user's, whose mode stays, are copied."""
    run = run_folder(tmp_path / "run")
    images = run.checkpoints / "0" / "0.1" / "images"
    (images / "gpu").mkdir(parents=True)
    pages = [images / "pages-1.img", images / "gpu" / "pages-1.img"]
    for path in pages:
        path.write_bytes(b"memory")
        path.chmod(0o644)
    engine = SimpleNamespace(read=lambda images: SimpleNamespace(files=[]))
    monkeypatch.setattr(assemble_module.choice, "find", lambda: engine)
    change_mode = Path.chmod

    def chmod(path: Path, mode: int) -> None:
        if path.is_relative_to(images) and not is_own:
            raise PermissionError(1, "Operation not permitted")
        change_mode(path, mode)

    monkeypatch.setattr(Path, "chmod", chmod)
    capsule = assemble(
        Ingredients(
            run=run, folder=run.ranks / "0", output=tmp_path / "capsule", origin=Origin.IMAGE,
            incident=Incident(kind=IncidentKind.REQUEST, text="by hand"), images=images, keep_images=True,
        )
    )  # fmt: skip
    for path in pages:
        in_capsule = capsule.path / layout.CHECKPOINT / path.relative_to(images)
        assert in_capsule.samefile(path) is is_own and path.stat().st_nlink == 1 + is_own
        assert in_capsule.stat().st_mode & 0o777 == 0o600
        assert path.stat().st_mode & 0o777 == (0o600 if is_own else 0o644)
