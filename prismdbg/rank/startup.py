"""Begins in each Python process of a recorded job, before the program's first line: arms a hook on the import of torch,
of modules with a random generator and of training frameworks, then runs the sitecustomize that ours shadows.

Imports no torch and costs about a millisecond; whatever fails here is said on one line and the program goes on.
"""

from __future__ import annotations

import importlib.machinery
import os
import sys
import types
from collections.abc import Callable
from functools import partial

import prismdbg
from prismdbg.capsule.spawned import is_spawned
from prismdbg.rank.frameworks import adapters
from prismdbg.rank.program import clocks, dates, process_runs
from prismdbg.rank.program.imports import AfterImport
from prismdbg.rank.program.stderr import say
from prismdbg.rank.recording.inputs import (
    clock_reads,
    seeds,
    started_in,  # noqa: F401  it sees where we are now
    unseeded,
)
from prismdbg.settings import trackers
from prismdbg.settings.seeds import MODULES, WANTED

_WATCHED = {process_runs.MODULE: process_runs.watch, "datetime": dates.watch, "uuid": unseeded.watch_uuid}


def begin(file: str) -> None:
    """`file`: our sitecustomize."""
    is_configured = bool(os.environ.get("PRISMDBG_CONFIG"))
    if is_configured:
        _arm(os.path.dirname(file))
    told = {name: os.environ.pop(name, "") for name in ("PRISMDBG_REDACTED", "PRISMDBG_REDACTED_FILES")}
    given, forks = (os.environ.pop(name, "") for name in ("PRISMDBG_SPAWNED", "PRISMDBG_FORKED"))
    if any(told.values()):  # in a replay: before anything can read them
        from prismdbg.rank.replay import redacted

        redacted.install_from(told)
    if is_configured and is_spawned(sys.orig_argv):
        _tried(lambda: _follow_spawn(given), "what multiprocessing gives this process is not kept")
    if forks:  # in a replay
        _tried(lambda: _go_on_as_forked(forks), "the rank is not begun again")
    _tried(lambda: _run_shadowed(file), "the next sitecustomize failed")


def _tried(action: Callable[[], None], what: str) -> None:
    try:
        action()
    except Exception as error:
        say(f"{what}: {error!r}")


def _arm(inject: str) -> None:
    # The package is known from here on. An import of the program's must not ask the server of RUN's file system.
    sys.path[:] = [entry for entry in sys.path if entry != inject]
    _tried(_begin_clocks, "what the program reads from clocks is not recorded")
    _tried(_watch_imports, "the random generators are not set")
    for name in _WATCHED.keys() & sys.modules.keys():
        _tried(partial(_imported, name), f"what {name} gives is not recorded")
    _tried(_take_installed, "the installed prismdbg is not found")


def _watch_imports() -> None:
    names = (*MODULES, *adapters.NAMES, *trackers.MODULES, *clocks.REPLACES_THEM, *_WATCHED)
    sys.meta_path.insert(0, AfterImport(names, _imported, "not active"))
    seeds.prepare()


def _go_on_as_forked(forks: str) -> None:
    from prismdbg.rank.replay import forked

    forked.install(forks.splitlines())


def _is_ours(file: str, path: str | None) -> bool:
    """A job that is recorded inside a recorded job has the same sitecustomize on its path twice."""
    if path is None:
        return False
    try:
        with open(file, "rb") as mine, open(path, "rb") as other:
            return mine.read() == other.read()
    except OSError:  # in a zip file
        return False


def _run_shadowed(file: str) -> None:
    here = os.path.dirname(os.path.realpath(file))
    for entry in sys.path:
        if os.path.realpath(entry or ".") == here:
            continue
        spec = importlib.machinery.PathFinder.find_spec("sitecustomize", [entry])
        if spec is not None and spec.loader is not None and not _is_ours(file, spec.origin):
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
    if name in _WATCHED:
        _WATCHED[name](sys.modules[name])
        return
    try:
        seeds.imported(name)
    except Exception as error:
        say(f"the random generator of {name} is not recorded: {error!r}")
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
