"""Called once `import torch` is complete in a process whose environment names a configuration."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from prismdbg.capsule.secrets import own_rules
from prismdbg.model import user_code
from prismdbg.rank.program import clocks, dates, process_runs
from prismdbg.rank.program.not_compiled import not_compiled
from prismdbg.rank.program.stderr import say
from prismdbg.rank.recording import process_tree
from prismdbg.rank.recording.backward_pass import BackwardPass
from prismdbg.rank.recording.inputs import unseeded
from prismdbg.rank.recording.recorder import Recorder
from prismdbg.settings.rank_config import Mode, RankConfig, from_environment

_started = False


def start() -> None:
    """Puts this process into the configured mode. Raises only before anything was installed."""
    global _started
    config = from_environment()
    if config is None or _started:
        return
    _started = True
    user_code.use(config.user_code)
    own_rules.use_texts(config.secret_names, config.secret_values)
    for function in (*clocks.CALLED, *dates.CALLED, *unseeded.CALLED):
        not_compiled(function)
    clocks.leave_out(str(Path(torch.__file__).parent))  # built where its sources lie, it is no installed package
    if config.mode is Mode.RECORD:
        _record(config)
    elif config.mode is Mode.EMULATE:
        from prismdbg.rank.emulation.begin import begin_emulation

        clocks.observe(None)
        begin_emulation(config, _serve)
    else:
        from prismdbg.rank.replay.from_start import begin_replay

        begin_replay(config)


def _record(config: RankConfig) -> None:
    from prismdbg.rank.c10d import gloo_threads, store, unknown_ops, worlds
    from prismdbg.rank.recording import exception_hooks, restore_point
    from prismdbg.rank.recording.recorded_rank import Recording
    from prismdbg.rank.recording.repeated_exceptions import RepeatedExceptions
    from prismdbg.rank.recording.state_snapshots import StateSnapshots
    from prismdbg.rank.recording.steps import COUNTER

    process_tree.tell_those_below()
    recorder, kind = make_recorder(config)
    recording = Recording(config, recorder, kind, _serve)
    exceptions = RepeatedExceptions()

    class Witness:
        def exception(self, report: dict[str, Any], error: BaseException) -> None:
            if recording.is_open or (_may_be_a_rank(config) and recording.ensure_open()):
                recording.note("incident", **exceptions.numbered(report))

        def end(self, code: int) -> None:
            recording.end(code)
            if recording.is_open or not recording.is_child:
                gloo_threads.let_go()

    def unknown(name: str, why: str) -> None:
        if recording.ensure_open():
            recording.note("unknown", op=name, text=why)

    store.prefer_one_that_can_be_saved()
    recording.opened_files.install()
    recording.outcomes.install()
    recorder.on_group(recording.on_group)
    worlds.follow(recording.new_world, recording.made_world)
    BackwardPass(recorder.backward).install()
    recorder.mode(1)
    unknown_ops.install(unknown)
    COUNTER.listen(recording.on_step)
    if config.state_every:
        snapshots = StateSnapshots(recording, config.state_every)
        snapshots.watch()
        restore_point.answer_with(snapshots.reached, give_up=snapshots.give_up)
        COUNTER.listen(snapshots.on_step)
    COUNTER.install()
    exception_hooks.install(Witness())
    process_runs.listen_to_end(lambda _: recorder.tidy())
    os.register_at_fork(after_in_child=lambda: _in_child(recording))


def _serve(recording: Any, path: Path) -> None:
    from prismdbg.rank.recording_verbs import serve

    serve(recording, path)


def _may_be_a_rank(config: RankConfig) -> bool:
    """A launcher raises when its workers do, and a worker of a rank inherits its environment: neither is a rank. A rank
    may have started others, too, but then it is in their group."""
    is_started_as_one = "RANK" in os.environ and multiprocessing.parent_process() is None
    return is_started_as_one and (dist.is_initialized() or not process_tree.has_ranks_below(config))


def _in_child(recording: Any) -> None:
    """A rank's forked child (a DataLoader worker, say) is none, and writes nothing into its parent's log. That of a
    launcher that has imported torch may become a rank."""
    recording.is_child = True
    if recording.folder is not None or dist.is_initialized():
        recording.lost = recording.lost or "a forked child"
        clocks.observe(None)
        recording.recorder.mode(0)
        return
    process_tree.tell_those_below()
    recording.recorder.mode(1)  # the native recorder's state is new in a child
    if recording.memory is not None:
        recording.memory.leave("a forked child; only a process that starts its own program is traced")


def make_recorder(config: RankConfig) -> tuple[Recorder, str]:
    """The native recorder where it was built for this torch, else the Python one, with one line of why."""
    from prismdbg.rank.recording import coalescing

    recorder, kind = _native_or_python(config)
    coalescing.install(recorder)
    return recorder, kind


def _native_or_python(config: RankConfig) -> tuple[Recorder, str]:
    from prismdbg.rank.recording.python_recorder import PythonRecorder

    if not config.native:
        return PythonRecorder(), "python"
    from prismdbg.rank.c10d import schemas
    from prismdbg.rank.native import build as native_build
    from prismdbg.rank.tracing import tracer

    path, reason = native_build.find(Path(config.cache_dir))
    if path is not None:
        try:
            module: Any = native_build.load(Path(config.cache_dir))
            module.install(schemas.read().positions())
            tracer.use(module)
            return module, "native"
        except Exception as error:
            reason = f"the native recorder cannot be used: {error}"
    if os.environ.get("RANK", "0") == "0":
        say(f"recording with the Python kernels: {reason}")
    return PythonRecorder(), "python"
