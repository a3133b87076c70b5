"""A recording as a Perfetto trace, read back with the messages of the perfetto package as Perfetto reads them: names
and stacks by their numbers, slices by track, flows by their ids."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from capsules import make_capsule
from click.testing import CliRunner
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as proto
from tiny_log import FLOATS, TinyLog, write_training
from traces import TraceBuilder

from prismdbg.capsule.log import format as fmt
from prismdbg.cli.main import cli, run
from prismdbg.exporters.perfetto import write_trace
from prismdbg.log.rank_log import columns_of, rank_log, read_log

WALL_NS = 10**18 - 10**9  # of a TinyLog's clock
TRAIN = ("/job/train.py", 40, "step")
BELOW = ("/v/site-packages/torch/distributed/c10d.py", 7, "all_reduce")


@dataclass
class Slice:
    track: int
    name: str
    begin_ns: int
    about: dict[str, Any]
    stack: list[str]
    flows: list[int]
    end_ns: int | None = None


@dataclass
class Read:
    """`tracks`: name and parent by number. units: of counters."""

    tracks: dict[int, tuple[str, int]] = field(default_factory=dict)
    units: dict[int, str] = field(default_factory=dict)
    slices: list[Slice] = field(default_factory=list)
    instants: list[Slice] = field(default_factory=list)
    counts: dict[int, list[tuple[int, float]]] = field(default_factory=dict)

    def path(self, track: int) -> tuple[str, ...]:
        """Names from the outermost track."""
        name, parent = self.tracks[track]
        return (*self.path(parent), name) if parent else (name,)

    def counters(self) -> dict[tuple[str, ...], list[tuple[int, float]]]:
        return {self.path(track): points for track, points in self.counts.items()}

    def of(self, rank: int, title: str) -> list[Slice]:
        below = {
            number for number, (_, parent) in self.tracks.items() if self.tracks.get(parent, ("",))[0] == f"rank {rank}"
        }
        return [s for s in self.slices if s.track in below and self.tracks[s.track][0].startswith(title)]


def read(path: Path) -> Read:
    trace = proto.Trace.FromString(path.read_bytes())
    found, interned = Read(), {}
    is_first = True
    for packet in trace.packet:
        assert bool(packet.sequence_flags & packet.SEQ_INCREMENTAL_STATE_CLEARED) is is_first
        is_first = False
        for kind in (each.name for each, _ in packet.interned_data.ListFields()):
            interned.update({(kind, each.iid): each for each in getattr(packet.interned_data, kind)})
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            found.tracks[track.uuid] = track.name, track.parent_uuid
            found.units[track.uuid] = track.counter.unit_name
        elif packet.HasField("track_event"):
            _event(packet, found, interned)
    return found


def _event(packet: Any, found: Read, interned: dict[Any, Any]) -> None:
    event = packet.track_event
    assert event.track_uuid in found.tracks
    if event.type == event.TYPE_COUNTER:
        found.counts.setdefault(event.track_uuid, []).append(
            (packet.timestamp, getattr(event, event.WhichOneof("counter_value_field")))
        )
        return
    if event.type == event.TYPE_SLICE_END:
        (last,) = [s for s in found.slices if s.track == event.track_uuid and s.end_ns is None]
        last.end_ns = packet.timestamp
        return
    stack = interned["callstacks", event.callstack_iid].frame_ids if event.callstack_iid else []
    made = Slice(
        track=event.track_uuid,
        name=interned["event_names", event.name_iid].name,
        begin_ns=packet.timestamp,
        about={
            interned["debug_annotation_names", a.name_iid].name: _value(a, interned) for a in event.debug_annotations
        },
        stack=[_frame(interned["frames", number], interned) for number in stack],
        flows=list(event.flow_ids),
    )
    (found.instants if event.type == event.TYPE_INSTANT else found.slices).append(made)


def _value(annotation: Any, interned: dict[Any, Any]) -> Any:
    kind = annotation.WhichOneof("value")
    if kind == "string_value_iid":
        return interned["debug_annotation_string_values", annotation.string_value_iid].str.decode()
    return getattr(annotation, kind)


def _frame(frame: Any, interned: dict[Any, Any]) -> str:
    name, source = interned["function_names", frame.function_name_id], interned["source_paths", frame.source_path_iid]
    return f"{name.str.decode()} {source.str.decode()}:{frame.line_number}"


def exported(path: Path, *options: str) -> Read:
    out = path.parent / "trace.pftrace"
    ran = CliRunner().invoke(cli, ["export", str(path), "--format", "perfetto", "-o", str(out), *options])
    assert ran.exit_code == 0, ran.output
    return read(out)


def two_ranks(run: Path) -> None:
    for rank in range(2):
        log = TinyLog(run / "ranks" / f"{rank}.0", rank)
        log.group("0", (0, 1), "default_pg")
        stack = log.stack(BELOW, TRAIN)
        log.complete(log.issue(0, 1, stack=stack))
        log.step(1)
        op, into = ("send", "recv_")[rank], {"inputs": () if rank else (FLOATS,), "outputs": (FLOATS,) if rank else ()}
        log.complete(log.issue(1, 1, op=op, seq=0, root=1 - rank, flags=fmt.IssueFlag.P2P, **into))  # type: ignore[arg-type]
        log.complete(log.issue(1, 2, op="barrier", inputs=(), outputs=()), status=fmt.Status.FAILED)
        log.note("incident", type="ValueError", text="<b>no</b>")
        if rank == 0:
            log.issue(1, 3, stack=stack)


def test_calls_are_slices_with_what_the_log_says(tmp_path: Path) -> None:
    two_ranks(tmp_path / "run")
    found = exported(tmp_path / "run")
    first, sent, barrier, waiting = found.of(0, "world (ranks 0, 1)")
    assert (first.name, first.about["moment"], first.about["inputs"], first.about["bytes"]) == (
        "all_reduce", "0.1", "float32[4]", 16,
    )  # fmt: skip
    assert (first.begin_ns, first.end_ns) == (WALL_NS + 2000, WALL_NS + 3000)
    assert first.stack == ["step /job/train.py:40", "all_reduce /v/site-packages/torch/distributed/c10d.py:7"]
    assert first.about["source"].startswith("/job/train.py:40 in step, by torch/")
    assert (sent.name, sent.about["peer"], barrier.about["state"]) == ("send", 1, "failed")
    assert (waiting.about["state"], waiting.end_ns) == ("scheduled", None)
    assert [step.name for step in found.of(0, "steps")] == ["step 1"]
    (seen, _) = found.instants
    assert (seen.name, seen.about["type"], seen.about["text"]) == ("exception", "ValueError", "<b>no</b>")


def test_the_text_of_a_failed_call_is_written_without_secrets(tmp_path: Path) -> None:
    """Only what nothing caught is redacted by the rank itself."""
    log = TinyLog(tmp_path / "run" / "ranks" / "0")
    log.group("0", (0, 1), "default_pg")
    record = log.issue(0, 1)
    log.note(
        "failed", record_id=record, type="RuntimeError", text="no way to https://me:hunter22x@host", at_issue=False
    )
    log.complete(record, status=fmt.Status.FAILED)
    (call,) = exported(tmp_path / "run").of(0, "world")
    assert call.about["failure"] == "RuntimeError: no way to https://me:<redacted>@host"


def test_a_step_that_a_gradient_scaler_skipped_is_named_as_skipped(tmp_path: Path) -> None:
    log = TinyLog(tmp_path / "run" / "ranks" / "0.0", 0)
    log.group("0", (0, 1), "default_pg")
    for step in range(3):
        log.complete(log.issue(step, 1))
        log.step(step + 1, fmt.StepSource.SKIPPED_BY_SCALER if step == 1 else fmt.StepSource.OPTIMIZER)
    names = [step.name for step in exported(tmp_path / "run").of(0, "steps")]
    assert names == ["step 1 (skipped by a gradient scaler)", "step 2", "step 3"]


def test_a_flow_joins_the_calls_of_one_collective(tmp_path: Path) -> None:
    two_ranks(tmp_path / "run")
    found = exported(tmp_path / "run")
    mine, theirs = ([call.flows for call in found.of(rank, "world")] for rank in range(2))
    assert mine[:3] == theirs and all(len(flows) == 1 for flows in mine)
    assert len({flows[0] for flows in mine}) == 4


def test_it_is_said_for_whom_a_rank_waited(tmp_path: Path) -> None:
    """Rank 1 comes one record later to the first collective, and never to the last one."""
    for rank in range(2):
        log = TinyLog(tmp_path / "run" / "ranks" / f"{rank}.0", rank)
        log.group("0", (0, 1), "default_pg")
        if rank == 1:
            log.group("own", (1,))
            log.complete(log.issue(0, 1, group="own"))
        log.complete(log.issue(0, 1 + rank, seq=1))
        if rank == 0:
            log.issue(0, 2, seq=2)
    waits = exported(tmp_path / "run").of(0, "waits for ranks")
    assert [(wait.name, wait.begin_ns - WALL_NS, wait.end_ns) for wait in waits] == [
        ("wait for rank 1", 2000, WALL_NS + 2001),
        ("wait for rank 1, which never joined", 2001, None),
    ]
    assert exported(tmp_path / "run").of(1, "waits") == []


def test_calls_that_overlap_are_in_lanes_of_one_name(tmp_path: Path) -> None:
    log = TinyLog(tmp_path / "run" / "ranks" / "0.0")
    log.group("0", (0,), "default_pg")
    records = [log.issue(0, number) for number in range(1, 4)]
    for record in records:
        log.complete(record)
    found = exported(tmp_path / "run")
    calls = found.of(0, "world")
    assert len(calls) == 3 and len({call.track for call in calls}) == 3
    assert {call.end_ns for call in calls} == {WALL_NS + 3000 + n for n in range(3)}
    assert all(call.flows == [] for call in calls)  # of one rank there is nobody to go on with


def test_memory_is_a_counter(tmp_path: Path) -> None:
    write_training(tmp_path / "run" / "ranks" / "0.0", steps=1)
    trace = TraceBuilder(tmp_path / "run" / "ranks" / "0.0" / "memory")
    trace.allocate(1)  # before the first call that is shown
    trace.clock_ns = 10**18
    trace.allocate(100)
    trace.allocate(50)
    trace.write()
    found = exported(tmp_path / "run")
    ((track, points),) = found.counts.items()
    assert found.tracks[track][0] == "memory of the program"
    assert [value for _, value in points] == [101, 151]


def test_each_device_has_a_counter_of_its_own(tmp_path: Path) -> None:
    write_training(tmp_path / "run" / "ranks" / "0.0", steps=1)
    trace = TraceBuilder(tmp_path / "run" / "ranks" / "0.0" / "memory", clock_ns=10**18)
    trace.allocate(100)
    trace.allocate(7, device=1)
    trace.write()
    found = exported(tmp_path / "run")
    counted = {found.tracks[track][0]: [value for _, value in points] for track, points in found.counts.items()}
    assert counted == {"memory of the program, cpu": [100], "memory of the program, cuda:0": [7]}


def test_a_packed_capsule_and_only_its_last_calls(tmp_path: Path) -> None:
    make_capsule(tmp_path / "capsule")
    assert len(exported(tmp_path / "capsule").of(0, "world")) == 6
    assert [call.about["moment"] for call in exported(tmp_path / "capsule", "--last", "2").of(0, "world")] == [
        "2.1",
        "2.2",
    ]


def test_without_the_package_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_training(tmp_path / "run" / "ranks" / "0.0")
    monkeypatch.setitem(sys.modules, "perfetto.protos.perfetto.trace", None)
    perfetto_packets_cleared()
    assert run(["export", str(tmp_path / "run"), "--format", "perfetto", "-o", str(tmp_path / "t")]) == 4
    said = capsys.readouterr().err
    assert "error: the package perfetto is not installed" in said and "try: pip install" in said
    assert not (tmp_path / "t").exists()


def perfetto_packets_cleared() -> None:
    perfetto_packets = sys.modules["prismdbg.exporters.perfetto_packets"]
    perfetto_packets.messages.cache_clear()


def test_damaged_logs_that_name_another_rank_or_times_before_1970_are_written(tmp_path: Path) -> None:
    write_training(tmp_path / "log")
    log = read_log(tmp_path / "log")
    other = rank_log(replace(columns_of(log), rank=16711680, wall_offset_ns=-(1 << 61)))
    with (tmp_path / "out").open("wb") as file:
        written = write_trace({0: log, 1: other}, {}, file, last=100)
    assert written.calls == 2 * len(log.collectives)
    found = read(tmp_path / "out")
    assert len(found.of(1, "world")) == len(found.of(0, "world")) == len(log.collectives)
