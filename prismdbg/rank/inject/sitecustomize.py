"""First on a recorded job's PYTHONPATH: arms a hook on the import of torch, of modules with a random generator and of
training frameworks, then runs the sitecustomize it shadows.

Imports no torch and costs about a millisecond; whatever fails here is said on one line and the program goes on.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
import types


def _is_ours(path: str | None) -> bool:
    """A job that is recorded inside a recorded job has this file on its path twice."""
    if path is None:
        return False
    with open(__file__, "rb") as mine, open(path, "rb") as other:
        return mine.read() == other.read()


def _say(text: str) -> None:
    """Where stderr cannot be written to, an exception from here ends Python before the program's first line."""
    try:
        from prismdbg.rank.program.stderr import say
    except Exception:  # RUN is gone
        return
    say(text)


def _run_shadowed() -> None:
    here = os.path.dirname(os.path.realpath(__file__))
    for entry in sys.path:
        if os.path.realpath(entry or ".") == here:
            continue
        spec = importlib.machinery.PathFinder.find_spec("sitecustomize", [entry])
        if spec is not None and spec.loader is not None and not _is_ours(spec.origin):
            module = types.ModuleType("sitecustomize")
            module.__spec__, module.__file__ = spec, spec.origin
            spec.loader.exec_module(module)
            return


def _take_installed() -> None:
    """What this folder lacks of prismdbg, its host's half, a program gets from where it is installed, if anywhere."""
    for finder in sys.meta_path:
        spec = finder.find_spec("prismdbg", None)
        if spec is not None:
            prismdbg.__path__.extend(spec.submodule_search_locations or ())
            return


def _imported(name: str) -> None:
    if name in adapters.NAMES:
        adapters.imported(name)
        return
    if name in trackers.MODULES:
        _tracker_imported(name)
        return
    if name in clocks.REPLACES_THEM:
        dates.leave()
        clocks.leave()
        return
    if name in WATCHED:
        WATCHED[name](sys.modules[name])
        return
    try:
        seeds.imported(name)
    except Exception as error:
        _say(f"the random generator of {name} is not recorded: {error!r}")
    if name == "torch":
        from prismdbg.rank import boot

        boot.start()


def _begin_clocks() -> None:
    """What the program reads from clocks is recorded, or given to it as it was recorded."""
    clocks.watch()
    if not os.environ.get(WANTED):
        clocks.observe(clock_reads.READS)
    elif (early := (extra := seeds.configured().get("extra", {})).get("clock_reads")) is not None:
        from prismdbg.rank.replay import recorded_clocks

        recorded_clocks.begin(early, extra.get("replaced", ()))


def _follow_spawn(path: str) -> None:
    """`path`: in a replay, of what the rank was given."""
    if path:
        from prismdbg.rank.replay import spawned as replayed

        replayed.install(path)
    else:
        from prismdbg.rank.recording.inputs import spawned

        spawned.install()


def _tracker_imported(name: str) -> None:
    """By any process of the job: what a replayed rank starts reports nothing, either."""
    from prismdbg.settings.rank_config import Mode, from_environment

    config = from_environment()
    if config is None or getattr(sys.modules[name], "__file__", None) is None:  # a folder of runs, that wandb made
        return
    if config.mode is not Mode.RECORD:
        from prismdbg.rank.replay.trackers import turn_off

        turn_off(name, config)
    elif name == "wandb":
        from prismdbg.rank.recording.inputs import tracker_runs

        tracker_runs.watch(sys.modules[name])


if os.environ.get("PRISMDBG_CONFIG"):
    import prismdbg
    from prismdbg.capsule.spawned import is_spawned
    from prismdbg.rank.frameworks import adapters
    from prismdbg.rank.program import clocks, dates, process_runs
    from prismdbg.rank.program.imports import AfterImport
    from prismdbg.rank.recording.inputs import (
        clock_reads,
        seeds,
        started_in,  # noqa: F401  it sees where we are now
        unseeded,
    )
    from prismdbg.settings import trackers
    from prismdbg.settings.seeds import MODULES, WANTED

    # The package is known from here on. An import of the program's must not ask the server of RUN's file system.
    sys.path[:] = [entry for entry in sys.path if entry != os.path.dirname(__file__)]
    try:
        _begin_clocks()
    except Exception as error:
        _say(f"what the program reads from clocks is not recorded: {error!r}")
    WATCHED = {process_runs.MODULE: process_runs.watch, "datetime": dates.watch, "uuid": unseeded.watch_uuid}
    try:
        names = (*MODULES, *adapters.NAMES, *trackers.MODULES, *clocks.REPLACES_THEM, *WATCHED)
        sys.meta_path.insert(0, AfterImport(names, _imported, "not active"))
        seeds.prepare()
    except Exception as error:
        _say(f"the random generators are not set: {error!r}")
    for name in WATCHED.keys() & sys.modules.keys():
        try:
            _imported(name)
        except Exception as error:
            _say(f"what {name} gives is not recorded: {error!r}")
    try:
        _take_installed()
    except Exception as error:
        _say(f"the installed prismdbg is not found: {error!r}")
told = {name: os.environ.pop(name, "") for name in ("PRISMDBG_REDACTED", "PRISMDBG_REDACTED_FILES")}
given, forks = (os.environ.pop(name, "") for name in ("PRISMDBG_SPAWNED", "PRISMDBG_FORKED"))
if any(told.values()):  # in a replay: before anything can read them
    from prismdbg.rank.replay import redacted

    redacted.install_from(told)
if os.environ.get("PRISMDBG_CONFIG") and is_spawned(sys.orig_argv):
    try:
        _follow_spawn(given)
    except Exception as error:
        _say(f"what multiprocessing gives this process is not kept: {error!r}")
if forks:  # in a replay
    try:
        from prismdbg.rank.replay import forked

        forked.install(forks.splitlines())
    except Exception as error:
        _say(f"the rank is not begun again: {error!r}")
try:
    _run_shadowed()
except Exception as error:
    _say(f"the next sitecustomize failed: {error!r}")
