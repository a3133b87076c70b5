"""In a replay, clients of experiment trackers report nothing: the program ran once, and its run is there already. Nor
do those of emulated ranks, which train nothing.

Standard library only: a tracker may be imported before torch is, and by any process that the rank starts.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import os
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, SupportsIndex
from urllib.parse import urlsplit

from prismdbg.rank.program.stderr import say
from prismdbg.settings.rank_config import Mode, RankConfig, from_environment
from prismdbg.settings.trackers import NOTE, VALUES

_LOCAL = ("", "file", "sqlite")
_NAMED_WITHOUT_SCHEME = ("databricks", "databricks-uc", "uc")
_MLFLOW_MODELS = "mlflow.model_registry_store"


def turn_off(name: str, config: RankConfig) -> None:
    """The import of one of `MODULES` is complete."""
    try:
        _OFF[name](sys.modules[name], config)
    except Exception as error:  # another version's parts
        say(f"{name} stays on: {error!r}")


def _wandb(wandb: Any, config: RankConfig) -> None:
    """A disabled run answers as one does that reports, with other values of its own."""
    os.environ["WANDB_CONFIG_DIR"] = os.devnull  # the user's settings may not be in the capsule, and need not be
    start = _with(wandb.init, mode="disabled")
    recorded = _recorded_runs(Path(config.log)) if config.log else iter(())

    @functools.wraps(wandb.init)
    def init(*args: Any, **named: Any) -> Any:
        _say_off("wandb")
        run = start(*args, **named)
        try:
            _like_recorded(run, next(recorded, {}))
        except Exception as error:  # a damaged log, or another version's parts: the program has a run all the same
            say(f"the run of wandb does not have its recorded id and name: {error!r}")
        return run

    def setup(settings: Any = None) -> Any:
        settings = settings or wandb.Settings()
        settings.mode = "disabled"
        return set_up(settings)

    set_up = wandb.setup
    wandb.init, wandb.setup, wandb.login = init, setup, _logged_in


def _recorded_runs(log: Path) -> Iterator[dict[str, Any]]:
    """Read when the program first asks."""
    from prismdbg.capsule.log.reader import read_log

    for note in read_log(log).notes:
        if note.kind == NOTE:
            yield note.data.get("run", {})


def _like_recorded(run: Any, values: dict[str, Any]) -> None:
    """Gives the run what the tracker gave then: other ranks were sent it, and paths are made of it."""
    known = {name: values[name] for name in VALUES if name in values and _is_plain(name, values[name])}
    run.__class__ = _with_values(type(run), known)
    vars(run).update(known)
    with contextlib.suppress(OSError):
        Path(run.dir).mkdir(parents=True, exist_ok=True)


def _is_plain(name: str, value: object) -> bool:
    """As a recorder notes it: the log may be damaged."""
    return isinstance(value, str) or (name != "dir" and isinstance(value, int | None))


def _with_values(plain: Any, known: dict[str, Any]) -> type:
    """A class that has these values in place of properties. Pickle finds no such class by its name, so that a run of it
    is pickled as one of `plain`."""

    def reduced(self: Any, protocol: SupportsIndex) -> Any:
        made = plain.__reduce_ex__(self, protocol)
        if isinstance(made, str):
            return made
        function, arguments, *rest = made
        arguments = (plain if each is type(self) else each for each in arguments)
        return (functools.partial(function, *arguments), (), *rest)  # pickle checks what it is told without `partial`

    own = {"__module__": plain.__module__, "__qualname__": plain.__qualname__, "__reduce_ex__": reduced}
    return type(plain.__name__, (plain,), {**known, **own})


def _mlflow(registry: Any, config: RankConfig) -> None:
    """What goes to a server goes to the replay's own folder, which ends with it. A store that is local already is the
    program's as any file of it is."""
    original = registry.StoreRegistry.get_store_builder
    folder = f"{config.socket_dir}/mlflow"

    def get_store_builder(self: Any, store_uri: str) -> Any:
        if urlsplit(store_uri).scheme in _LOCAL and store_uri not in _NAMED_WITHOUT_SCHEME:
            return original(self, store_uri)
        _say_off("mlflow")
        os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"  # else newer ones refuse a folder
        return functools.partial(_models if self.group_name == _MLFLOW_MODELS else _runs, folder)

    registry.StoreRegistry.get_store_builder = get_store_builder


def _models(folder: str, **_: Any) -> Any:
    return importlib.import_module("mlflow.store.model_registry.file_store").FileStore(f"{folder}/models")


def _runs(folder: str, **_: Any) -> Any:
    store: Any = importlib.import_module("mlflow.store.tracking.file_store")

    class Runs(store.FileStore):  # type: ignore[misc]
        """A server draws names and numbers itself; here the program's own generator would be drawn from."""

        def create_experiment(self, name: Any, artifact_location: Any = None, tags: Any = None) -> Any:
            with _generator_kept():
                return super().create_experiment(name, None, tags)

        def create_run(self, *args: Any, **named: Any) -> Any:
            with _generator_kept():
                return super().create_run(*args, **named)

    with _generator_kept():
        return Runs(f"{folder}/runs", f"{folder}/runs")


@contextlib.contextmanager
def _generator_kept() -> Iterator[None]:
    state = random.getstate()
    try:
        yield
    finally:
        random.setstate(state)


def _comet(comet_ml: Any, _: RankConfig) -> None:
    """It asks for this when an experiment is made; an argument `disabled=False` does not overrule it."""
    os.environ["COMET_AUTO_LOG_DISABLE"] = "1"
    comet_ml.login = _logged_in
    _say_off("comet_ml")


def _neptune(neptune: Any, _: RankConfig) -> None:
    neptune.Run.__init__ = _with(neptune.Run.__init__, mode="debug")
    _say_off("neptune")


def _logged_in(*_: Any, **__: Any) -> bool:
    return True


def _with(function: Callable[..., Any], **forced: Any) -> Callable[..., Any]:
    """`function`, called with these arguments whatever the program says of them."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def called(*args: Any, **named: Any) -> Any:
        given = signature.bind(*args, **named)
        given.arguments.update(forced)
        return function(*given.args, **given.kwargs)

    return called


@functools.cache
def _say_off(tracker: str) -> None:
    config = from_environment()
    runs = "an emulated rank" if config is not None and config.mode is Mode.EMULATE else "a replay"
    say(f"{tracker} is off: {runs} reports to no tracker")


_OFF = {"comet_ml": _comet, "mlflow.tracking.registry": _mlflow, "neptune": _neptune, "wandb": _wandb}
