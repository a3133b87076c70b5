"""The memory trace of `record --memory` in a capsule: what goes in, and what is looked at instead of a replay."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from traces import TraceBuilder

from prismdbg.capsule import layout
from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.capsule.manifest import Incident, IncidentKind, Origin
from prismdbg.capsule.memory_format import HEADER, RECORD
from prismdbg.cli import main
from prismdbg.cli.exit_codes import ExitCode
from prismdbg.debugger.debugger import Debugger
from prismdbg.errors import CapsuleError, UsageError
from prismdbg.jobs.capture import packed_memory
from prismdbg.jobs.capture.assemble import Ingredients, assemble
from prismdbg.jobs.capture.packed_memory import cut, packed_trace
from prismdbg.jobs.storage.verify import Severity, findings, verify
from prismdbg.memory.trace import open_trace
from prismdbg.model.moment import Moment
from prismdbg.session import notices
from prismdbg.session.answers import Memory
from prismdbg.settings.rank_config import RANK_MEMORY
from tests.unit.jobs.capture.test_assemble import run_folder
from tests.unit.simulated_rank import SimulatedRank


def capsule_of(path: Path, last: Moment | None = None, *, capacity: int = 3) -> Capsule:
    """Of a rank of two steps with three collectives each, every one followed by an allocation; traced."""
    run = run_folder(path / "run")
    folder = run.ranks / "0"
    trace = TraceBuilder(folder / RANK_MEMORY, capacity=capacity, from_start=True)
    for step in range(2):
        for number in range(1, 4):
            trace.now = Moment(step, number)
            trace.allocate(100 * (step + 1), "aten::empty")
    trace.write()
    incident = Incident(kind=IncidentKind.REQUEST, text="by hand")
    origin = Origin.START
    return assemble(
        Ingredients(run=run, folder=folder, output=path / "capsule", origin=origin, incident=incident, last_moment=last)
    )


def test_it_is_a_part_that_the_manifest_names(tmp_path: Path) -> None:
    capsule = capsule_of(tmp_path)
    folder = packed_trace(capsule)
    assert folder is not None and len(open_trace(folder)) == 6
    assert {name for name in capsule.manifest.files if name.startswith(layout.MEMORY)} == {
        f"{layout.MEMORY}/{path.name}" for path in folder.iterdir()
    }
    assert all(finding.severity is Severity.NOTE for finding in verify(capsule.path))


def test_what_lies_behind_b_stays_out(tmp_path: Path) -> None:
    folder = packed_trace(capsule_of(tmp_path, Moment(1, 1)))
    assert folder is not None
    trace = open_trace(folder)
    assert (len(trace), trace.end) == (4, Moment(1, 1))


def test_a_damaged_one_is_found(tmp_path: Path) -> None:
    capsule = capsule_of(tmp_path)
    (capsule.path / layout.MEMORY / "memory.00000.seg").write_bytes(bytes(64))
    assert [f.where for f in findings(capsule.path) if f.severity is Severity.FATAL]
    with pytest.raises(CapsuleError):
        verify(capsule.path)


def test_one_that_is_too_large_stays_in_the_run_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed_memory, "MOST_BYTES", 100)
    capsule = capsule_of(tmp_path)
    assert packed_trace(capsule) is None
    assert any("was left in the run" in note for note in capsule.manifest.notes)


@pytest.mark.parametrize("whole", [b"", bytes(64), b"PRSMMEM1"])
def test_of_a_segment_that_was_made_a_moment_ago_nothing_is_taken(whole: bytes) -> None:
    assert cut(whole, None) == b""


def test_of_a_segment_that_is_written_meanwhile_only_whole_records_are_taken(tmp_path: Path) -> None:
    trace = TraceBuilder(tmp_path / "trace")
    trace.allocate(8)
    trace.allocate(8)
    trace.write()
    whole = (tmp_path / "trace" / "memory.00000.seg").read_bytes()
    torn = whole[: HEADER.size + RECORD.size + 3]
    assert cut(torn, None) == cut(whole, None)[:48] + (1).to_bytes(8, "little") + torn[56 : HEADER.size + RECORD.size]


def test_nothing_is_replayed_for_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsule = capsule_of(tmp_path)
    assert main.run(["memory", str(capsule.path)]) == ExitCode.OK
    shown = capsys.readouterr()
    assert "as recorded" in shown.err and "900 B" in shown.out


def test_one_moment_has_one_sum(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """At B; at the end, where the rank came to its next call; and asked for by its moment."""
    capsule = capsule_of(tmp_path, Moment(1, 1))
    assert main.run(["memory", str(capsule.path)]) == ExitCode.OK
    shown = " ".join(capsys.readouterr().out.split())
    assert "live at end moment 300 bytes at the end moment 1.1, the capsule's last collective" in shown
    assert "live at end of trace 500 bytes after 1.1, the last traced moment" in shown
    assert "0.1 to 1.1;" in shown, "the curve's last point reaches to the end"
    assert main.run(["memory", str(capsule.path), "--at", "1.1", "--json"]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out)["program_bytes"] == 300
    rank = SimulatedRank()
    debugger = Debugger(rank, lambda _: None, recorded=rank.moments, memory=packed_trace(capsule))
    debugger.begin()
    debugger.do("until 1.1")
    answer = debugger.do("memory")
    assert isinstance(answer, Memory) and answer.answer.program_bytes == 300


def test_the_debugger_reads_it_without_running_the_rank_again(tmp_path: Path) -> None:
    rank, told = SimulatedRank(), list[notices.Notice]()
    capsule = capsule_of(tmp_path)
    debugger = Debugger(rank, told.append, recorded=rank.moments, memory=packed_trace(capsule))
    debugger.begin()
    debugger.do("next 2")
    answer = debugger.do("memory")
    assert isinstance(answer, Memory) and answer.answer.program_bytes == 100, "what follows 0.2 is not made yet"
    peak = debugger.do("memory peak")
    assert isinstance(peak, Memory) and (peak.answer.size_bytes, peak.answer.moment) == (100, Moment(0, 1))
    assert not rank.traced and rank.returns == []
    assert ["as recorded" in said.text for said in told if isinstance(said, notices.Said)] == [True]
    assert debugger.memory_place().folder == packed_trace(capsule)
    debugger.do("goto 2.1")
    assert debugger.memory_place().folder == packed_trace(capsule)
    debugger.session.ever_diverged = True
    assert debugger.memory_place().folder is None, "another run than the recorded one"


def test_a_segment_that_leads_nowhere_is_one_clear_error(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "run")
    trace = TraceBuilder(run.ranks / "0" / RANK_MEMORY, capacity=1, from_start=True)
    for _ in range(2):
        trace.allocate(100, "aten::empty")
    trace.write()
    segment = sorted((run.ranks / "0" / RANK_MEMORY).glob("memory.*.seg"))[-1]
    segment.unlink()
    segment.symlink_to("nowhere")
    incident = Incident(kind=IncidentKind.REQUEST, text="by hand")
    with pytest.raises(CapsuleError, match="cannot be read: No such file"):
        assemble(
            Ingredients(run=run, folder=run.ranks / "0", output=tmp_path / "c", origin=Origin.START, incident=incident)
        )


def test_the_debugger_shows_the_device_that_it_is_asked_for(tmp_path: Path) -> None:
    rank, builder = SimulatedRank(), TraceBuilder(tmp_path / "trace", from_start=True)
    builder.allocate(10)
    builder.allocate(500, device=2)
    builder.now = Moment(0, 2)
    builder.allocate(9000)  # is not made yet
    debugger = Debugger(rank, lambda _: None, recorded=rank.moments, memory=builder.write())
    debugger.begin()
    debugger.do("next")
    shown = {words: debugger.do(words) for words in ("memory", "memory on cpu", "memory on cuda:1")}
    assert [answer.answer.program_bytes for answer in shown.values()] == [500, 10, 500]
    assert debugger.do("memory peak on cuda:1").answer.size_bytes == 500
    for wrong, said in (("memory on cuda:0", "no memory of cuda:0"), ("memory on gpu", "'gpu' is not a device")):
        with pytest.raises(UsageError, match=said):
            debugger.do(wrong)
