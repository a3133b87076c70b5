"""What a capsule must hold to be replayed: one rule for who makes it, who verifies it, and who replays it."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import torch
from capsules import STARTED
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_log import FLOATS, TinyLog

from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.capsule.log import format as fmt
from prismdbg.capsule.log.coverage import capsule_span
from prismdbg.capsule.log.reader import read_log
from prismdbg.capsule.manifest import Incident, IncidentKind, Origin
from prismdbg.cli import main
from prismdbg.cli.exit_codes import ExitCode
from prismdbg.errors import CapsuleError, NotReplayable
from prismdbg.jobs.capture.assemble import Ingredients, assemble
from prismdbg.jobs.storage.run_folder import RunFolder, write_json
from prismdbg.jobs.storage.verify import findings, require_replayable
from prismdbg.model import ops
from prismdbg.model.collective import State
from prismdbg.model.moment import Moment
from prismdbg.rank.replay.peers import RecordedPeers
from prismdbg.runtime.environment import Environment

RANK = {"rank": 0, "world_size": 2, "environment": {}, "cwd": "/", "argv": ["x"], "orig_argv": ["python", "x"]}
OPS = ("allreduce_", "broadcast_", "barrier")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One collective of a generated log. `state`: of its answer; `kept`: its payload is still in the window."""

    op: str
    root: int
    state: str  # completed, failed or pending
    kept: bool
    ends_step: bool


CALLS = st.builds(
    Call,
    op=st.sampled_from(OPS),
    root=st.sampled_from((0, 1)),
    state=st.sampled_from(("completed", "completed", "completed", "failed", "pending")),
    kept=st.sampled_from((True, True, True, False)),
    ends_step=st.booleans(),
)


@st.composite
def capsules(draw: st.DrawFn) -> tuple[list[Call], dict[str, Any]]:
    """A log, and where in it a capsule starts and ends."""
    calls = draw(st.lists(CALLS, min_size=1, max_size=8))
    past = draw(st.integers(0, len(calls)))
    in_flight = draw(st.sets(st.integers(0, past - 1), max_size=2)) if past else set()
    moments = moments_of(calls)
    last = draw(st.sampled_from([None, *moments[past:]]))
    return calls, {"past_records": past, "in_flight": tuple(sorted(in_flight)), "last_moment": last}


def moments_of(calls: list[Call]) -> list[Moment]:
    found, step, number = [], 0, 0
    for call in calls:
        number += 1
        found.append(Moment(step, number))
        if call.ends_step:
            step, number = step + 1, 0
    return found


def written(folder: Path, calls: list[Call]) -> RunFolder:
    run = RunFolder(folder)
    log = TinyLog(run.ranks / "0")
    log.group("0", (0, 1), "default_pg")
    for call, moment in zip(calls, moments_of(calls), strict=True):
        outputs = () if call.op == "barrier" else (FLOATS,)
        root = call.root if call.op == "broadcast_" else -1
        record = log.issue(moment.step, moment.collective, op=call.op, root=root, inputs=outputs, outputs=outputs)
        if call.state == "pending":
            continue
        has_payload = bool(outputs) and call.state == "completed" and not (call.op == "broadcast_" and root == 0)
        if has_payload and call.kept:
            (log.folder / fmt.payload_segment(record)).write_bytes(bytes(16))
        status = fmt.Status.OK if call.state == "completed" else fmt.Status.FAILED
        flags = fmt.CompleteFlag.PAYLOAD if has_payload else 0
        size = 16 if has_payload else 0
        log.append(fmt.Kind.COMPLETE, fmt.COMPLETE.pack(record, 3000, 0, size, record, -1, status, flags, 0, 0))
    write_json(log.folder / "rank.json", {**RANK, **STARTED, "versions": {}, "hardware": {}})
    write_json(run.environment, Environment(()).to_json())
    return run


def made(home: Path, calls: list[Call], where: dict[str, Any]) -> tuple[Capsule, bool]:
    """The capsule, or the evidence: then False."""
    run = written(home / "run", calls)
    incident = Incident(kind=IncidentKind.HANG, text="rank 0 waits")
    parts = Ingredients(
        run=run, folder=run.ranks / "0", output=home / "capsule", origin=Origin.START, incident=incident, **where
    )
    try:
        return assemble(parts), True
    except NotReplayable as error:
        return Capsule.open(error.evidence), False


def answered(capsule: Capsule) -> bool:
    """Whether a replay has every answer that the recorded rank had."""
    log, peers = read_log(capsule.log), RecordedPeers(capsule.log)
    span = capsule_span(capsule, log)
    for record in (*span.in_flight, *span.records):
        received = (
            [] if record.op == "barrier" or (record.op == "broadcast_" and record.root == 0) else [torch.zeros(4)]
        )
        try:
            call = SimpleNamespace(received=received, spec=ops.OPS[record.op], rank=0, root=record.root)
            answer = peers.answer(cast(Any, call), record)
        except CapsuleError:
            return False
        if answer is None and record.state is State.COMPLETED:
            return False
    return True


@settings(max_examples=60, deadline=None)
@given(capsules())
def test_making_verifying_and_replaying_go_by_one_rule(drawn: tuple[list[Call], dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as home:
        capsule, is_made = made(Path(home), *drawn)
        assert [str(f) for f in findings(capsule.path) if f.severity == "fatal"] == []
        assert (main.run(["verify", str(capsule.path)]) == ExitCode.OK) is is_made
        assert answered(capsule) is is_made
        try:
            require_replayable(capsule)
            assert is_made
        except CapsuleError:
            assert not is_made


def test_what_came_before_the_start_of_a_rank_that_hangs_elsewhere_is_not_asked_for(tmp_path: Path) -> None:
    """It issued nothing since: it starts and ends at its last collective, whose payload nobody needs."""
    call = Call(op="allreduce_", root=0, state="completed", kept=False, ends_step=False)
    capsule, is_made = made(tmp_path, [call, call], {"past_records": 2})
    assert is_made and capsule.manifest.moment_a == capsule.manifest.moment_b == Moment(0, 2)
    require_replayable(capsule)


def test_an_answer_to_what_was_in_flight_is_asked_for(tmp_path: Path) -> None:
    pending = Call(op="allreduce_", root=0, state="completed", kept=False, ends_step=False)
    capsule, is_made = made(tmp_path, [pending], {"past_records": 1, "in_flight": (0,)})
    assert not is_made and capsule.manifest.not_replayable
