"""A run of which most is only summarized tells what it told before."""

from __future__ import annotations

import errno
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest
from click.testing import CliRunner
from kept_origins import add_checkpoints, add_states
from tiny_log import TinyLog

from prismdbg.capsule.log import format as fmt
from prismdbg.capsule.log.notes import NO_STATE
from prismdbg.capsule.log.reader import event_segments
from prismdbg.capsule.manifest import Incident, IncidentKind, Origin
from prismdbg.capsule.partial import partial_folder
from prismdbg.cli import main
from prismdbg.cli.commands import why
from prismdbg.cli.exit_codes import ExitCode
from prismdbg.diagnosis.evidence import Evidence
from prismdbg.diagnosis.nonfinite import FirstNonfinite
from prismdbg.diagnosis.verdict import Certainty
from prismdbg.diagnosis.why import diagnose
from prismdbg.jobs import evidence
from prismdbg.jobs.capture import states
from prismdbg.jobs.capture.assemble import Ingredients
from prismdbg.jobs.capture.capture import LEFTOVER
from prismdbg.jobs.capture.states import usable_states
from prismdbg.jobs.evidence import gather
from prismdbg.jobs.record import freeze
from prismdbg.jobs.record import supervisor as supervisor_module
from prismdbg.jobs.record.checkpoints import list_checkpoints, usable_checkpoints
from prismdbg.jobs.record.incidents import Wanted
from prismdbg.jobs.record.record import RecordRequest, prepare
from prismdbg.jobs.record.supervisor import Policy, Supervisor
from prismdbg.jobs.run_overview import read_overview
from prismdbg.jobs.storage import log_memory, ranks_alive, run_report
from prismdbg.jobs.storage.archive_crypto import Keys
from prismdbg.jobs.storage.run_folder import RunFolder, write_json
from prismdbg.jobs.storage.run_report import rank_states
from prismdbg.log.columns import read_columns
from prismdbg.log.folding import fold
from prismdbg.log.summary import summarize, summarized
from prismdbg.model.moment import Moment

SEGMENT_BYTES = 1 << 13
NO_SUCH_PID = 2**22 + 1


def long_run(
    path: Path, *, nan_at: int = -1, payload_from: int | None = None, open_at: int | None = None, note: str = "begin"
) -> RunFolder:
    """Two ranks; 10 steps of two collectives, each step in a segment of its own. Rank 1 sends NaN in the first
    collective of step `nan_at`; that of step `open_at` does not complete. note: what kind of note is in the last."""
    run = RunFolder(path)
    for rank in range(2):
        log = TinyLog(run.ranks / str(rank), rank, segment_bytes=SEGMENT_BYTES)
        log.group("0", (0, 1))
        (log.folder / "rank.json").write_text(json.dumps({"pid": NO_SUCH_PID, "world_size": 2}))
        for step in range(10):
            log.step(step)
            for number in (1, 2):
                is_nan = (rank, step, number) == (1, nan_at, 1)
                record = log.issue(step, number, flags=fmt.IssueFlag.SENT_NONFINITE if is_nan else 0)
                has_payload = payload_from is not None and step >= payload_from
                if (step, number) != (open_at, 1):
                    log.complete(record, b"12345678" if has_payload else None)
            if step < 9:
                log.next_segment()
        log.note(note)
        log.note("exit", code=0)
    (path / "supervisor.json").write_text(json.dumps({"exit_code": 0, "ended_wall_ns": 10**18 + 10**10}))
    return run


@pytest.fixture
def only_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with logs that are larger than what is read of them."""
    for module in (evidence, run_report, ranks_alive):
        monkeypatch.setattr(module, "LAST_BYTES", 2 * SEGMENT_BYTES)
    monkeypatch.setattr(evidence, "READ_BYTES", 0)


@pytest.mark.usefixtures("only_the_end")
def test_status_is_the_same(tmp_path: Path) -> None:
    run = long_run(tmp_path, payload_from=3)
    before = rank_states(run)
    for folder in run.rank_folders():
        summarize(folder)

    after = rank_states(run)

    assert [read_columns(folder, 2 * SEGMENT_BYTES).read_from_later for folder in run.rank_folders()] == [True, True]
    assert [state.window for state in after] == ["3.1..9.2", "3.1..9.2"]
    for one, other in zip(before, after, strict=True):
        assert {**one.to_json(), "log_bytes": 0} == {**other.to_json(), "log_bytes": 0}


@pytest.mark.usefixtures("only_the_end")
@pytest.mark.parametrize("is_dropped", [False, True])
def test_the_first_nan_is_found_however_old_it_is(tmp_path: Path, is_dropped: bool) -> None:
    run = long_run(tmp_path, nan_at=2)
    for folder in run.rank_folders():
        summarize(folder)
        assert not is_dropped or fold(folder, 3 * SEGMENT_BYTES)

    diagnosis = diagnose(gather(tmp_path))

    (first,) = (verdict for verdict in diagnosis.verdicts if isinstance(verdict, FirstNonfinite))
    assert (first.ranks, str(first.moment), first.certainty) == ((1,), "2.1", Certainty.CERTAIN)


@pytest.mark.usefixtures("only_the_end")
@pytest.mark.parametrize("is_dropped", [False, True])
def test_open_tells_from_the_summary_what_the_end_does_not_have(
    tmp_path: Path, is_dropped: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    run = long_run(tmp_path, nan_at=2)
    write_json(run.run_json, {})
    for folder in run.rank_folders():
        summarize(folder)
        assert not is_dropped or fold(folder, 3 * SEGMENT_BYTES)

    overview = read_overview(tmp_path)

    assert overview.begins_later and [row.collectives for row in overview.ranks] == [20, 20]
    assert [str(verdict.moment) for verdict in overview.diagnosis.verdicts if isinstance(verdict, FirstNonfinite)] == [
        "2.1"
    ]
    assert main.run(["open", str(tmp_path)]) == ExitCode.OK
    header, *rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [dict(zip(header, row, strict=True))["collectives"] for row in rows] == ["20", "20"]


@pytest.mark.usefixtures("only_the_end")
def test_why_says_what_it_knows_from_the_summary_only(tmp_path: Path) -> None:
    run = long_run(tmp_path)
    for folder in run.rank_folders():
        summarize(folder)

    assert diagnose(gather(tmp_path)).missing == (
        "the logs of ranks 0 and 1 begin after 16 collectives here (--whole reads all that is kept); "
        "a summary of steps 0 to 7 was read",
    )
    assert diagnose(gather(tmp_path, whole=True)).missing == ()
    for folder in run.rank_folders():
        fold(folder, 3 * SEGMENT_BYTES)
    assert diagnose(gather(tmp_path, whole=True)).missing == (
        "the logs of ranks 0 and 1 begin after 14 collectives; a summary of steps 0 to 6 was read",
    )


@pytest.mark.usefixtures("only_the_end")
def test_why_of_whole_logs_says_what_memory_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in long_run(tmp_path).rank_folders():
        summarize(folder)
    monkeypatch.setattr(log_memory, "TOLD_BYTES", 0)
    assert main.run(["why", str(tmp_path), "--whole"]) == ExitCode.OK
    takes = f"reading the logs of {tmp_path} completely takes about 216.0 KiB of memory"
    assert f"prismdbg: {takes}" in capsys.readouterr().err
    monkeypatch.setattr(log_memory, "room_bytes", lambda _pid: 1 << 17)
    assert main.run(["why", str(tmp_path), "--whole"]) == ExitCode.LACKING
    assert f"error: {takes}, but only 128.0 KiB are free" in capsys.readouterr().err
    assert main.run(["why", str(tmp_path)]) == ExitCode.OK
    assert "of memory" not in capsys.readouterr().err


@pytest.mark.parametrize(("open_at", "last"), [(None, "9.2"), (8, "7.2"), (3, "2.2")])
def test_a_rank_that_goes_on_is_captured_up_to_what_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, open_at: int | None, last: str
) -> None:
    """Also where a thread of it has waited for long."""
    monkeypatch.setattr(states, "LAST_BYTES", 2 * SEGMENT_BYTES)
    run = long_run(tmp_path, open_at=open_at)
    folder = run.ranks / "0"
    summarize(folder)
    incident = Incident(kind=IncidentKind.SIGNAL, text="SIGUSR1 sent to `prismdbg record`")
    assert str(freeze.wanted_now(folder, incident).last) == last


@pytest.fixture
def supervised(tmp_path: Path) -> Iterator[tuple[Supervisor, RunFolder, list[str]]]:
    policy = Policy(log_bytes=3 * SEGMENT_BYTES)
    run = prepare(RecordRequest(output=tmp_path / "run", command=(sys.executable, "-c", ""), policy=policy))
    said: list[str] = []
    with subprocess.Popen([sys.executable, "-c", ""]) as job:
        yield Supervisor(run, policy, job, said.append), long_run(run.path), said


def test_the_supervisor_summarizes_what_is_full_and_drops_the_oldest(
    supervised: tuple[Supervisor, RunFolder, list[str]],
) -> None:
    supervisor, run, _ = supervised
    supervisor._look(False)
    for folder in run.rank_folders():
        assert summarized(folder, event_segments(folder)) == 8
        assert read_columns(folder).unknown == 0
        assert sum(path.stat().st_size for path in folder.glob("events.*.seg")) < 4 * SEGMENT_BYTES


@pytest.mark.parametrize("lives", [True, False])
def test_what_a_capture_in_progress_needs_stays(
    supervised: tuple[Supervisor, RunFolder, list[str]], lives: bool
) -> None:
    supervisor, run, _ = supervised
    with partial_folder(run.path / "images") as partial:
        (partial / "needs.json").write_text(json.dumps({"rank": "1", "from_record": 5}))
        if not lives:  # killed: it has no lock any more
            left = shutil.copytree(partial, run.path / f"{LEFTOVER}left")
            shutil.rmtree(partial)
            assert left.exists()
        supervisor._look(False)

    first = [int(read_columns(folder).record_id[0]) for folder in run.rank_folders()]
    assert first == [14, 4 if lives else 14]  # two a segment
    supervisor._look(True)  # the capture is over; no rank begins another segment
    assert [int(read_columns(folder).record_id[0]) for folder in run.rank_folders()] == [14, 14]


def first_of(run: RunFolder, rank: str = "0") -> int:
    return int(read_columns(run.ranks / rank).record_id[0])


def lost(said: list[str]) -> list[str]:
    return [line for line in said if "no capsule can start" in line]


def test_what_a_kept_checkpoint_needs_stays(supervised: tuple[Supervisor, RunFolder, list[str]]) -> None:
    supervisor, run, said = supervised
    add_checkpoints(run, Moment(7))
    supervisor._look(False)
    assert [first_of(run), first_of(run, "1")] == [12, 14], "what it read after 6.2, the one before, is there, too"
    assert [one.moment for one in usable_checkpoints(run, run.ranks / "0")] == [Moment(7)]
    assert not lost(said)


def test_a_checkpoint_pins_no_more_than_twice_what_is_kept(
    supervised: tuple[Supervisor, RunFolder, list[str]],
) -> None:
    """It may never be replaced: on a full disk, say."""
    supervisor, run, said = supervised
    add_checkpoints(run, Moment(2))
    for _ in range(2):
        supervisor._look(False)
        supervisor._summarized.clear()
    folder = run.ranks / "0"
    assert first_of(run) == 14
    assert list_checkpoints(run, folder) and not usable_checkpoints(run, folder) and not freeze.has_past(run, folder)
    assert lost(said) == [
        "no capsule can start at the checkpoint of rank 0 at 2.0 any more: its log no longer reaches back to it; "
        "record with a larger --log-bytes, or take checkpoints more often"
    ]


def test_a_newer_one_stays_usable(
    supervised: tuple[Supervisor, RunFolder, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor, run, said = supervised
    add_states(run, tmp_path / "capsule", 2, 7)
    (run.states / "0" / "prologue").mkdir()
    add_checkpoints(run, Moment(3))
    supervisor._look(False)
    assert first_of(run) == 12
    assert [state.moment.step for state in usable_states(run, run.ranks / "0")] == [7]
    _, line = lost(said)
    assert "the state snapshot of rank 0 of step 2 any more" in line and "snapshots more often" in line

    monkeypatch.setattr(freeze, "assemble", lambda parts: parts)
    wanted = Wanted(folder="0", incident=Incident(kind=IncidentKind.NAN, text="a NaN", moment=Moment(9, 1)))
    made = cast(Ingredients, freeze.freeze(run, wanted))
    assert (made.origin, made.past_records) == (Origin.STATE, 14), "not at the checkpoint, whose log is gone"


def test_of_what_was_in_flight_the_record_is_enough(
    supervised: tuple[Supervisor, RunFolder, list[str]], tmp_path: Path
) -> None:
    """A thread may have waited for hours when the checkpoint was taken."""
    supervisor, run, said = supervised
    shutil.rmtree(run.ranks)
    long_run(run.path, open_at=1)
    add_checkpoints(run, Moment(7), in_flight=(2,))
    supervisor._look(False)
    supervisor._summarized.clear()
    assert usable_checkpoints(run, run.ranks / "0") and not lost(said)
    add_checkpoints(run, Moment(8), in_flight=(3,))
    assert len(usable_checkpoints(run, run.ranks / "0")) == 1, "its record went with its completion"


def test_when_a_rank_takes_no_snapshots_any_more_those_that_it_has_pin_nothing(
    supervised: tuple[Supervisor, RunFolder, list[str]], tmp_path: Path
) -> None:
    """Payloads are kept as without from then on."""
    supervisor, run, said = supervised
    add_states(run, tmp_path / "capsule", 7)
    folder = run.ranks / "0"
    shutil.rmtree(run.ranks)
    long_run(run.path, note=NO_STATE)
    supervisor._look(False)
    assert first_of(run) == 14 and not usable_states(run, folder)
    assert len(lost(said)) == 1


def test_a_snapshot_that_cannot_be_read_pins_nothing(
    supervised: tuple[Supervisor, RunFolder, list[str]], tmp_path: Path
) -> None:
    supervisor, run, _ = supervised
    add_states(run, tmp_path / "capsule", 2, 7)
    (run.states / "0" / "2" / "state.json").write_text("")
    supervisor._look(False)
    assert first_of(run) == 12


def test_a_log_that_cannot_be_shortened_is_said_once_and_the_others_are(
    supervised: tuple[Supervisor, RunFolder, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor, run, said = supervised

    def no_space(folder: Path) -> None:
        if folder.name == "0":
            raise OSError(errno.ENOSPC, "No space left on device")
        summarize(folder)

    monkeypatch.setattr(supervisor_module, "summarize", no_space)
    for _ in range(2):
        supervisor._look(False)

    told = [line for line in said if "shortened" in line]
    assert told == ["the log of rank 0 is not shortened: [Errno 28] No space left on device"]
    assert [summarized(folder, event_segments(folder)) for folder in run.rank_folders()] == [-1, 8]


@pytest.mark.usefixtures("only_the_end")
def test_why_of_a_job_whose_segments_go_while_it_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Single collectives are decoded last."""
    run = long_run(tmp_path, nan_at=2)

    def and_then_it_is_folded(path: Path, keys: Keys, *, whole: bool, say: Callable[[str], None]) -> Evidence:
        found = gather(path, keys, whole=whole, say=say)
        for folder in run.rank_folders():
            fold(folder, 3 * SEGMENT_BYTES)
        return found

    monkeypatch.setattr(why, "gather", and_then_it_is_folded)
    said = CliRunner().invoke(why.command, [str(tmp_path)], catch_exceptions=False)
    assert "rank 1 sent the first NaN or Inf" in said.output
