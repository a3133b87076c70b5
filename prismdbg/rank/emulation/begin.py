"""Puts a process into the place of one rank of a world that is not there."""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from prismdbg.capsule.log.format import StepSource
from prismdbg.capsule.log.notes import DECISIONS, DRIFT, SHAPING
from prismdbg.errors import FacilityError
from prismdbg.model.schedule import Schedule
from prismdbg.rank.c10d import unknown_ops
from prismdbg.rank.c10d.call import is_capturing
from prismdbg.rank.emulation import checkpoints
from prismdbg.rank.emulation.clocks import WallClock
from prismdbg.rank.emulation.cuda_device import CudaDevice
from prismdbg.rank.emulation.device_waits import DeviceWaits
from prismdbg.rank.emulation.notes import StoreNotes
from prismdbg.rank.emulation.open_calls import PacedClock
from prismdbg.rank.emulation.operator_calls import OperatorCalls
from prismdbg.rank.emulation.pace import Pace
from prismdbg.rank.emulation.peers import EmulatedPeers
from prismdbg.rank.emulation.processor import ProcessorWaits
from prismdbg.rank.emulation.reads import Reads
from prismdbg.rank.emulation.real_groups import RealGroups
from prismdbg.rank.emulation.recorder import EmulatedRecorder
from prismdbg.rank.emulation.scheduler_client import SchedulerClient
from prismdbg.rank.emulation.store import StoreState
from prismdbg.rank.emulation.world import StepLimit, install_world, refuse_ranks
from prismdbg.rank.program import missing_gpus, process_runs
from prismdbg.rank.program.isolation import ours
from prismdbg.rank.program.stderr import say
from prismdbg.rank.recording import exception_hooks
from prismdbg.rank.recording.recorded_rank import Recording, Serve
from prismdbg.rank.recording.steps import COUNTER
from prismdbg.settings.donor_value import store_key
from prismdbg.settings.emulation import RANK_PROCESS, STORE_KEY, WORLD, ClockKind, Emulation
from prismdbg.settings.missing_value import MissingValue
from prismdbg.settings.process_stat import text_of
from prismdbg.settings.rank_config import RankConfig


def begin_emulation(config: RankConfig, serve: Serve) -> None:
    """From here on torch.distributed needs nobody else, and every collective is recorded.

    A program that cannot be emulated is ended: unhindered it would wait for thousands of peers. What the rank starts (a
    DataLoader worker, a compiler) is no rank; one that wants to be is told so.
    """
    if os.environ.setdefault(RANK_PROCESS, str(os.getpid())) != str(os.getpid()):
        refuse_ranks()
        return
    try:
        _begin(config, serve)
    except Exception as error:
        raise SystemExit(f"prismdbg: this rank cannot be emulated: {error!r}") from error


def _begin(config: RankConfig, serve: Serve) -> None:
    settings = Emulation.from_json(config.extra["emulation"])
    turn = SchedulerClient(settings.ask_fd, settings.say_fd, settings.until)
    real = RealGroups(settings)
    peers = EmulatedPeers(settings, turn, real)
    beat = _clock(settings, turn)
    recorder = EmulatedRecorder(peers, beat, real)
    recording = Recording(config, recorder, "emulated", serve)
    recording.now_ns = beat.now_ns
    if beat.wall is not None and beat.pace is not None:
        beat.devices = DeviceWaits(CudaDevice, is_capturing, recording.note)
    if config.memory_cap and recording.memory is not None and recording.memory.missing:
        raise FacilityError(recording.memory.missing)
    recorder.on_group(recording.on_group)
    recorder.mode(1)
    unknown_ops.install(unknown_ops.refuse)
    recording.opened_files.install()
    _install_world(settings, peers, turn, recording, real)
    limit = StepLimit(settings.steps, recorder.leave)
    COUNTER.listen(turn.begin_step)
    COUNTER.listen(beat.begin_step)
    COUNTER.listen(lambda step, _: _hash_what_ends(recording, limit, step))
    COUNTER.listen(recording.on_step)
    if beat.wall is not None and beat.pace is not None:
        COUNTER.listen(_noted_drift(beat.pace, recording))
    if beat.wall is not None:  # on a virtual clock nothing takes longer for it
        COUNTER.listen(ProcessorWaits(recording.note))
    if settings.shapes:
        calls = OperatorCalls(Path(settings.shapes))
        calls.__enter__()  # for as long as the program runs
        COUNTER.listen(calls.on_step)
    COUNTER.listen(limit)
    COUNTER.install()
    reads = Reads(lambda: peers.rests_on_assumptions)
    reads.install()
    exception_hooks.install(_Witness(recording, peers, reads, recorder))
    process_runs.listen_to_end(lambda _: recorder.tidy())
    os.register_at_fork(after_in_child=lambda: _in_child(recording))
    if settings.together:
        atexit.register(real.settle)  # after all that the program has registered


def _hash_what_ends(recording: Recording, limit: StepLimit, step: int) -> None:
    """Where the step begins, as a capture's hashes are: on the way out the optimizer may be gone."""
    if limit.is_reached(step) and recording.ensure_open():
        with ours():
            recording.hash_state()


def _noted_drift(pace: Pace, recording: Recording) -> Callable[[int, StepSource], None]:
    """By how much the peers of the step that begins compute longer than scheduled."""

    def note(step: int, _: StepSource) -> None:
        if pace.is_on:
            recording.note(DRIFT, step=step, ppm=pace.drift_ppm)

    return note


def _in_child(recording: Recording) -> None:
    """What the rank forks (a DataLoader worker, say) is no rank."""
    recording.is_child = True
    recording.lost = recording.lost or "a forked child"  # also if it takes steps before the rank calls
    recording.recorder.mode(0)
    refuse_ranks()


class _Witness:
    def __init__(self, recording: Recording, peers: EmulatedPeers, reads: Reads, recorder: EmulatedRecorder) -> None:
        self._recording = recording
        self._recorder = recorder
        self._peers = peers
        self._reads = reads

    def exception(self, report: dict[str, Any], error: BaseException) -> None:
        missing_gpus.advise(error, "emulate with --ranks-per-node {gpus}")
        if self._recording.ensure_open():
            self._recording.note("incident", **report)

    def end(self, code: int) -> None:
        if self._recording.is_open:
            self._recorder.settle()
            sent = self._peers.outbox.tally()
            self._recording.note("synthesized", rows=self._peers.summary(), sent=sent)
            if shaping := self._peers.shaping():
                self._recording.note(SHAPING, rows=shaping)
            if decisions := self._reads.decisions():
                self._recording.note(DECISIONS, rows=decisions)
            if beyond := sent.get("beyond_budget_bytes"):
                text = f"{beyond} bytes sent by rank {self._recording.rank} do not fit into --donor-bytes"
                say(f"{text}: their receivers get noise with the same statistics")
            for text in checkpoints.told:
                self._recording.note("checkpoint", text=text)
            self._recording.note("resources", **_resources(self._recording))
        self._recording.end(code)


def _resources(recording: Recording) -> dict[str, int]:
    """What this rank took: bytes of memory, of these shared with other processes, and of its log."""
    lines = text_of(Path("/proc/self/status")).splitlines()
    kibibytes = {
        name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines) if "kB" in rest
    }
    return {
        "peak_bytes": kibibytes.get("VmHWM", 0) << 10,
        "shared_bytes": kibibytes.get("RssFile", 0) << 10,
        "log_bytes": int(recording.recorder.stats()["event_bytes"]),
    }


def _install_world(
    settings: Emulation, peers: EmulatedPeers, turn: SchedulerClient, recording: Recording, real: RealGroups
) -> None:
    partners = frozenset(real.circle) - {settings.rank}

    def note(kind: str, **data: Any) -> None:
        if recording.ensure_open():  # a rendezvous comes before the first collective
            recording.note(kind, **data)

    def lacks(key: str) -> None:
        otherwise = 0 if settings.rank else -1  # keys for everybody are set by rank 0
        partner = state.partner_of(key)
        source = otherwise if partner is None else partner
        lacked = MissingValue(
            rank=settings.rank,
            source=source,
            key=store_key(key),
            collective=STORE_KEY,
            axis=WORLD,
            identity=repr(key),
        )
        turn.lacks(lacked)

    def look(key: str) -> bytes | None:
        if partners:  # they run at the same time
            peers.inbox.refresh()
        return peers.inbox.store_value(key)

    others = StoreNotes(look, note)
    state = StoreState(settings.rank, settings.world, others.value, peers.outbox.keep_key, lacks, partners)
    install_world(state, real)


def _clock(settings: Emulation, turn: SchedulerClient) -> PacedClock:
    """What the rank is told to live by: where the peers are not paced, the wall clock runs on."""
    wall = WallClock()
    leaves_out = not settings.together  # ranks that run at once have one clock
    turn.stood = wall.leave_out
    if not settings.schedule:
        return PacedClock(None, wall, turn.refuse, leaves_out=leaves_out)
    schedule = Schedule.load(Path(settings.schedule))
    if settings.clock is ClockKind.VIRTUAL:
        return PacedClock(Pace(schedule, None), None, turn.refuse)
    return PacedClock(Pace(schedule, wall.now_ns), wall, turn.refuse, leaves_out=leaves_out)
