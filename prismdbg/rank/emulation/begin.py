"""Puts a process into the place of one rank of a world that is not there."""

from __future__ import annotations

import os
from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from prismdbg.capsule.log_format import StepSource
from prismdbg.rank import alone, triggers
from prismdbg.rank.config import RankConfig
from prismdbg.rank.emulation.donors import store_key
from prismdbg.rank.emulation.peers import EmulatedPeers
from prismdbg.rank.emulation.recorder import EmulatedRecorder
from prismdbg.rank.emulation.settings import WORLD, Emulation
from prismdbg.rank.emulation.store import EmulatedStore, StoreState
from prismdbg.rank.emulation.turn import Need, Turn
from prismdbg.rank.recording import Recording
from prismdbg.rank.steps import COUNTER


def begin_emulation(config: RankConfig) -> None:
    """From here on torch.distributed needs nobody else, and every collective is recorded.

    A program that cannot be emulated is ended: unhindered it would wait for thousands of peers.
    """
    try:
        _begin(config)
    except Exception as error:
        raise SystemExit(f"prismdbg: this rank cannot be emulated: {error!r}") from error


def _begin(config: RankConfig) -> None:
    settings = Emulation.from_json(config.extra["emulation"])
    turn = Turn(settings.ask_fd, settings.say_fd, settings.until)
    peers = EmulatedPeers(settings, turn)
    recorder = EmulatedRecorder(peers)
    recording = Recording(config, recorder, "emulated")
    recorder.on_group(recording.on_group)
    recorder.mode(1)
    _install_world(settings, peers, turn)
    COUNTER.listen(recording.on_step)
    COUNTER.listen(_Limit(settings.steps, recorder))
    COUNTER.install()
    triggers.install(_Witness(recording, peers))
    os.register_at_fork(after_in_child=lambda: _in_child(recording))


def _in_child(recording: Recording) -> None:
    """What the rank forks (a DataLoader worker, say) is no rank."""
    recording.is_child = True
    recording.recorder.mode(0)


class _Limit:
    """Ends the program at a step's boundary, as `sys.exit(0)` there would."""

    def __init__(self, steps: int, recorder: EmulatedRecorder) -> None:
        self._steps = steps
        self._recorder = recorder

    def __call__(self, step: int, _: StepSource) -> None:
        if self._steps and step >= self._steps:
            self._recorder.mode(0)  # what the program does on its way out is answered, and belongs to no step
            raise SystemExit(0)


class _Witness:
    def __init__(self, recording: Recording, peers: EmulatedPeers) -> None:
        self._recording = recording
        self._peers = peers

    def exception(self, report: dict[str, Any], error: BaseException) -> None:
        if self._recording.ensure_open():
            self._recording.note("incident", **report)

    def end(self, code: int) -> None:
        if self._recording.is_open:
            self._recording.note("synthesized", rows=self._peers.summary())
        self._recording.end(code)


def _install_world(settings: Emulation, peers: EmulatedPeers, turn: Turn) -> None:
    def lacks(key: str) -> None:
        source = 0 if settings.rank else -1  # keys for everybody are set by rank 0
        need = Need(
            rank=settings.rank,
            source=source,
            key=store_key(key),
            collective="key of the store",
            axis=WORLD,
            identity=repr(key),
        )
        turn.lacks(need)

    state = StoreState(settings.rank, settings.world, peers.inbox.store_value, peers.outbox.keep_key, lacks)
    alone.install(lambda: EmulatedStore(state))

    def lone_store(*_: Any, **__: Any) -> EmulatedStore:
        return EmulatedStore(state)

    for module in (dist, c10d):
        module.TCPStore = lone_store
    if dist.get_debug_level() is dist.DebugLevel.DETAIL:  # it would open gloo's sockets to compare the ranks' calls
        dist.set_debug_level(dist.DebugLevel.INFO)
    os.environ.pop("TORCH_DIST_INIT_BARRIER", None)
