"""Replay from the program's start: virtual peers from the first line, no rendezvous, no sockets, no checkpoint."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from prismdbg.capsule.log.events import Note
from prismdbg.capsule.log.reader import read_log
from prismdbg.errors import PrismError
from prismdbg.model.breakpoints import StopReason
from prismdbg.rank.agent import Agent
from prismdbg.rank.c10d import worlds
from prismdbg.rank.c10d.counters import Counters
from prismdbg.rank.emulation import fake_world
from prismdbg.rank.program.stderr import say
from prismdbg.rank.recording import disk_limit, exception_hooks
from prismdbg.rank.recording.steps import COUNTER
from prismdbg.rank.replay import built_extensions, recorded_clocks
from prismdbg.rank.replay.from_state import begin_prologue
from prismdbg.rank.replay.lone_stores import LoneStores
from prismdbg.rank.replay.recorded_outcomes import RecordedOutcomes
from prismdbg.rank.replay.replayed_rank import Replaying
from prismdbg.rank.tracing import tracer
from prismdbg.settings.rank_config import RankConfig


def begin_replay(config: RankConfig) -> None:
    """Holds the program right after `import torch` until a client resumes it.

    Only the first process that comes here: those that it starts inherit its environment and are not replayed.
    """
    disk_limit.end_there()
    try:
        with (Path(config.socket_dir) / "replay.pid").open("x") as file:
            file.write(str(os.getpid()))
    except FileExistsError:
        return
    if "emulation" not in config.extra:  # an emulated rank has torch's names
        worlds.follow()
    built_extensions.install(config.extra.get("replaced"))
    if "state" in config.extra:
        if config.memory_cap:
            _hold_cap(config)
        fake_world.install()
        stores = LoneStores()
        stores.install()
        COUNTER.install()
        outcomes = _recorded_outcomes(config, read_log(Path(config.log)).notes)
        begin_prologue(config, Path(str(config.extra["state"])), outcomes, stores)
        return
    counters = Counters()
    agent = Agent(Path(config.socket_dir) / "replay.sock")
    replaying = Replaying(Path(config.log), agent, counters)
    if config.memory_cap:
        _hold_cap(config)
    replaying.prepare()
    replaying.install()
    if (clocks := recorded_clocks.begun()) is not None:
        replaying.give_times(clocks)
    COUNTER.listen(replaying.on_step)
    _install_world(config, replaying)
    COUNTER.install()
    exception_hooks.install(replaying)
    _recorded_outcomes(config, replaying.log.notes).listen(replaying.tell)
    replaying.gate.first_of_all(agent.start)  # whoever connects finds the rank stopped
    replaying.hold(StopReason.START)


def _recorded_outcomes(config: RankConfig, notes: Iterable[Note]) -> RecordedOutcomes:
    outcomes = RecordedOutcomes(notes, config.extra.get("replaced", ()))
    outcomes.install()
    return outcomes


def _hold_cap(config: RankConfig) -> None:
    """What failed under it is to fail again, at the same allocation. Where nothing can be traced, nothing fails."""
    try:
        tracer.arm(None, cache_dir=Path(config.cache_dir), from_start=True)
        tracer.cap(config.memory_cap, "")
    except PrismError as error:
        say(f"--memory-cap does not hold in this replay: {error}")


def _install_world(config: RankConfig, replaying: Replaying) -> None:
    if "emulation" not in config.extra:
        fake_world.install()
        stores = LoneStores()
        stores.install()
        stores.listen(replaying.tell)
        return
    from prismdbg.rank.replay.emulated import begin_again
    from prismdbg.settings.emulation import Emulation

    settings = Emulation.from_json(config.extra["emulation"])
    begin_again(settings, replaying.log.notes, replaying.replayer.sources)
