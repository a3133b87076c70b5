"""A rank that is only looked at: of one that cannot be replayed its log is shown, however long the log is."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from capsules import MANIFEST, make_capsule
from incident_run import write_run
from prismdbg_tui.timeline.recording import read_recording
from tiny_log import TinyLog

from prismdbg.capsule import layout
from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.capsule.manifest import Incident, IncidentKind
from prismdbg.cli import main
from prismdbg.cli.exit_codes import ExitCode
from prismdbg.errors import CapsuleError, UsageError
from prismdbg.jobs import rank_capsule
from prismdbg.jobs.rank_capsule import capsule_of, shown_capsule_of
from prismdbg.jobs.storage.inventory import disk_bytes
from prismdbg.jobs.storage.run_folder import RunFolder
from prismdbg.log.folding import fold
from prismdbg.log.summary import summarize
from prismdbg.model.moment import Moment
from prismdbg.model.sizes import size

SEGMENT_BYTES = 1 << 13


def shown(run: RunFolder, rank: int | None) -> Capsule:
    return Capsule.open(shown_capsule_of(run.path, rank, lambda _: None))


def test_its_log_is_shown_and_is_said_to_be_no_replay(tmp_path: Path) -> None:
    capsule = shown(write_run(tmp_path / "run"), 1)
    recording = read_recording(capsule)
    assert [str(recording.columns.moment(row)) for row in range(len(recording))] == ["0.1", "1.1"]
    assert capsule.manifest.not_replayable == "not replayable: no received data was kept"
    assert capsule.manifest.incident.kind is IncidentKind.EXCEPTION, "where the cursor is at first"
    assert capsule.manifest.incident.moment == Moment(1, 1)


def test_what_is_replayed_needs_more_than_that(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    shown(run, 1)
    with pytest.raises(UsageError, match="no capsule of rank 1"):
        capsule_of(run.path, 1, lambda _: None)


def test_it_says_so_before_it_writes_and_then_how_large_it_is(tmp_path: Path) -> None:
    run, said = write_run(tmp_path / "run"), []

    def say(text: str) -> None:
        said.append((text, run.capsules.exists()))

    path = shown_capsule_of(run.path, 0, say)
    assert said[0] == (f"rank 0 cannot be replayed: creating a capsule of its log in {run.capsules}", False)
    of_it = f"rank 0, its log, not replayable: {path}, {size(disk_bytes(path))} (`prismdbg rm` removes it)"
    assert said[1:] == [(of_it, True)]


def test_the_same_is_shown_again_until_the_rank_goes_on(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    first = shown(run, 0)
    assert shown(run, 0).manifest == first.manifest
    log = TinyLog(run.ranks / "0")
    log.group("0", (0, 1))
    log.complete(log.issue(7, 1))
    again = shown(run, 0)
    assert again.path == first.path and again.manifest.moment_b == Moment(7, 1)
    assert [path.name for path in run.capsules.iterdir()] == [first.path.name]


@pytest.mark.parametrize("is_link", [True, False])
def test_what_is_there_and_is_no_capsule_is_left_alone(tmp_path: Path, is_link: bool) -> None:
    run, elsewhere = write_run(tmp_path / "run"), tmp_path / "elsewhere"
    elsewhere.mkdir()
    run.capsules.mkdir()
    place = run.capsules / "log-rank0.evidence"
    if is_link:
        place.symlink_to(elsewhere)
    else:
        place.write_text("mine")
    with pytest.raises(CapsuleError, match="is not a capsule"):
        shown(run, 0)
    assert elsewhere.is_dir() and place.exists()


def test_evidence_of_an_incident_comes_first(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    shown(run, 0)
    lost = replace(MANIFEST, replayable_from=Moment(9, 9), incident=Incident(kind=IncidentKind.NAN, text="of rank 0"))
    make_capsule(run.capsules / "nan-rank0.evidence", lost)
    assert shown(run, 0).path.name == "nan-rank0.evidence"
    make_capsule(run.capsules / "nan-rank0", replace(lost, replayable_from=lost.moment_a))
    assert shown(run, 0).path.name == "nan-rank0", "what can be replayed"
    make_capsule(run.capsules / "of-7", replace(MANIFEST, rank=7, world_size=8))
    assert shown(run, 7).path.name == "of-7", "though its log is elsewhere"


def test_what_turned_out_not_to_be_replayable_is_shown_and_not_made_again(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    log = TinyLog(run.ranks / "0")
    log.group("0", (0, 1))
    log.complete(log.issue(0, 1), bytes(16))
    log.complete(log.issue(0, 2))
    first = shown(run, 0)
    assert first.manifest.not_replayable and shown(run, 0).path == first.path
    assert [path.name for path in run.capsules.iterdir()] == [first.path.name]


def long_run(path: Path) -> RunFolder:
    """40 steps of two collectives, four in a segment; the oldest are only summarized."""
    run = write_run(path)
    log = TinyLog(run.ranks / "0", segment_bytes=SEGMENT_BYTES)
    log.group("0", (0, 1))
    for step in range(40):
        for number in (1, 2):
            log.complete(log.issue(step, number))
        log.step(step + 1)
        if step % 2 and step < 39:
            log.next_segment()
    summarize(log.folder)
    assert fold(log.folder, 12 * SEGMENT_BYTES)
    return run


def test_of_a_long_log_that_was_folded_the_rest_is_shown(tmp_path: Path) -> None:
    recording = read_recording(shown(long_run(tmp_path / "run"), 0))
    assert 0 < recording.columns.step[0] < 39 and recording.columns.step[-1] == 39
    assert recording.capsule.manifest.not_replayable


def test_of_a_long_log_the_newest_collectives_are_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_capsule, "SHOWN_RECORDS", 10)
    manifest = shown(long_run(tmp_path / "run"), 0).manifest
    assert (manifest.moment_a, manifest.moment_b) == (Moment(35, 1), Moment(39, 2))
    assert manifest.not_replayable == "not replayable: no received data was kept"


def test_a_run_of_one_rank_needs_no_choice(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    for path in sorted((run.ranks / "1").iterdir()):
        path.unlink()
    (run.ranks / "1").rmdir()
    assert shown(run, None).manifest.rank == 0


def test_its_sources_are_in_it_but_none_of_its_data(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    log = TinyLog(run.ranks / "0")
    log.group("0", (0, 1))
    for name in ("train.py", "data.bin"):
        (tmp_path / name).write_text("x = 1\n")
        log.note("file", path=str(tmp_path / name))
    log.complete(log.issue(0, 1))
    files = json.loads((shown(run, 0).path / layout.FILES_INDEX).read_text())["files"]
    assert [file["path"] for file in files] == [str(tmp_path / "train.py")]


@pytest.mark.parametrize("command", ["open", "inspect"])
def test_commands_that_only_look_show_it(tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_run(tmp_path / "run")
    assert main.run([command, str(run.path), "--rank", "1"]) == ExitCode.OK
    assert ("all_reduce" if command == "open" else "no received data was kept") in capsys.readouterr().out
