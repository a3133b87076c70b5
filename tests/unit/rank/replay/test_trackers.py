"""Experiment trackers in a replay, each a fake that has the parts which the real one has."""

from __future__ import annotations

import os
import pickle
import random
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from tiny_log import TinyLog

from prismdbg.jobs.injection import PACKAGE
from prismdbg.rank.replay import trackers
from prismdbg.settings.rank_config import Mode, RankConfig
from prismdbg.settings.trackers import MODULES, NOTE


@pytest.fixture
def log(tmp_path: Path) -> TinyLog:
    return TinyLog(tmp_path / "log")


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test is a program of its own."""
    monkeypatch.setattr(os, "environ", {})
    trackers._say_off.cache_clear()


@pytest.fixture
def off(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Turns off one that was just imported, with these parts."""

    def turned_off(name: str, **parts: Any) -> Any:
        module = ModuleType(name)
        vars(module).update(parts)
        monkeypatch.setitem(sys.modules, name, module)
        config = RankConfig(mode=Mode.REPLAY, socket_dir=str(tmp_path / "own"), log=str(tmp_path / "log"))
        trackers.turn_off(name, config)
        return module

    return turned_off


class Run:
    """As wandb makes one that is disabled."""

    name = property(lambda self: self._name, lambda self, name: setattr(self, "_name", name))

    def __init__(self, folder: Path) -> None:
        self._name = "dummy-0"
        self.project = "dummy"
        self._folder = folder

    @property
    def id(self) -> str:
        return "0"

    @property
    def dir(self) -> str:
        return str(self._folder / "new" / "files")


@pytest.fixture
def wandb(off: Any, tmp_path: Path) -> Any:
    modes: list[str] = []

    def init(entity: str = "", config: Any = None, mode: str = "online", settings: Any = None) -> Run:
        modes.append(mode)
        return Run(tmp_path)

    def login(key: str = "") -> bool:
        raise AssertionError("asks a server")

    return off(
        "wandb",
        init=init,
        login=login,
        setup=lambda settings=None: modes.append(settings.mode),
        Settings=lambda mode="online": SimpleNamespace(mode=mode),
        modes=modes,
    )


@pytest.mark.parametrize("asked", [(), ("me", None, "offline"), ("me", None, "online")])
def test_a_run_is_disabled_whatever_the_program_asks_for(
    wandb: Any, log: TinyLog, asked: tuple[Any, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert Path(wandb.init(*asked).dir).is_dir(), "programs write into it"
    wandb.init(config={}, settings=wandb.Settings("offline"))
    wandb.setup()
    wandb.setup(settings=wandb.Settings("offline"))
    assert wandb.login(key="0") is True
    assert wandb.modes == ["disabled"] * 4
    assert os.environ["WANDB_CONFIG_DIR"] == os.devnull, "its settings of the user may not be in the capsule"
    assert capsys.readouterr().err == "prismdbg: wandb is off: a replay reports to no tracker\n"


def test_it_has_what_the_tracker_gave_the_recorded_run(wandb: Any, log: TinyLog, tmp_path: Path) -> None:
    """Rank 0 sends its id to all, and a text of another length is another call."""
    folder = str(tmp_path / "recorded" / "files")
    log.note(NOTE, run={"id": "abc", "name": "first", "project": "mine", "dir": folder, "finish": "no"})
    log.note("seed")
    log.note(NOTE, run={"id": "def"})
    first, second, third = wandb.init(), wandb.init(), wandb.init()
    assert (first.id, first.name, first.project, first.dir) == ("abc", "first", "mine", folder)
    assert (second.id, second.name, second.project) == ("def", "dummy-0", "dummy")
    assert (third.id, third.name) == ("0", "dummy-0")
    first.name = "renamed"
    assert (first.name, hasattr(first, "finish"), Path(folder).is_dir()) == ("renamed", False, True)


def test_one_whose_folder_cannot_be_made_goes_on_without(wandb: Any, log: TinyLog, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    log.note(NOTE, run={"dir": str(tmp_path / "file" / "files")})
    assert wandb.init().id == "0"


def test_a_log_that_cannot_be_read_leaves_the_run_as_it_is(
    wandb: Any, log: TinyLog, capsys: pytest.CaptureFixture[str]
) -> None:
    log.note(NOTE, run=5)
    assert (wandb.init().id, wandb.init().id) == ("0", "0")
    assert "does not have its recorded id and name: CapsuleError(" in capsys.readouterr().err


@pytest.mark.parametrize("run", [{}, {"run": {"dir": 7, "id": [1]}}, {"run": {"dir": None, "id": {}}}])
def test_so_do_values_of_another_type(wandb: Any, log: TinyLog, tmp_path: Path, run: dict[str, Any]) -> None:
    log.note(NOTE, **run)
    log.note(NOTE, run={"id": "abc"})
    first, second = wandb.init(), wandb.init()
    assert (first.id, first.dir, second.id) == ("0", str(tmp_path / "new" / "files"), "abc")


def test_a_run_whose_class_cannot_be_changed_is_returned(off: Any, log: TinyLog) -> None:
    log.note(NOTE, run={"id": "abc"})
    assert off("wandb", init=lambda mode="": "a run", setup=None).init() == "a run"


def test_a_run_with_recorded_values_can_be_pickled(wandb: Any, log: TinyLog) -> None:
    log.note(NOTE, run={"id": "abc", "project": "mine"})
    run = wandb.init()
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        again = pickle.loads(pickle.dumps(run, protocol))  # noqa: S301
        assert (type(again), again.project) == (Run, "mine")
    assert (run.id, str(type(run))) == ("abc", str(Run))


class Store:
    """As mlflow's store of runs in a folder; it draws names from the program's generator."""

    def __init__(self, root: str, artifacts: str) -> None:
        random.random()
        self.root, self.made = root, list[Any]()

    def create_experiment(self, name: str, artifact_location: str | None = None, tags: Any = None) -> None:
        self.made.append((name, artifact_location, random.random()))

    def create_run(self, experiment: str, user: str, *, run_name: str | None) -> None:
        self.made.append((experiment, run_name or random.random()))


@pytest.fixture
def store_of(off: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    class StoreRegistry:
        def __init__(self, group_name: str) -> None:
            self.group_name = group_name

        def get_store_builder(self, store_uri: str) -> Any:
            return lambda **given: store_uri

    parts = (("tracking", Store), ("model_registry", lambda root: SimpleNamespace(root=root)))
    for kind, file_store in parts:
        module = ModuleType(f"mlflow.store.{kind}.file_store")
        vars(module).update(FileStore=file_store)
        monkeypatch.setitem(sys.modules, module.__name__, module)
    registry = off("mlflow.tracking.registry", StoreRegistry=StoreRegistry)

    def built(uri: str, group: str = "mlflow.tracking_store") -> Any:
        return registry.StoreRegistry(group).get_store_builder(uri)(store_uri=uri, artifact_uri=None)

    return built


@pytest.mark.parametrize("uri", ["http://host:5000", "https://host", "databricks", "postgresql+psycopg2://host/db"])
def test_what_goes_to_a_server_goes_to_a_folder(
    store_of: Any, uri: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    random.seed(3)
    before = random.getstate()
    store = store_of(uri)
    store.create_experiment("mine", "s3://bucket", tags=[])
    store.create_run("0", "me", run_name=None)
    assert store.made[0][:2] == ("mine", None), "artifacts, too"
    assert random.getstate() == before, "the program draws what it drew"
    models = store_of(uri, "mlflow.model_registry_store")
    assert store.root == store_of(uri).root != models.root
    assert Path(models.root).parent == Path(store.root).parent == tmp_path / "own" / "mlflow", "it ends with the replay"
    assert capsys.readouterr().err == "prismdbg: mlflow is off: a replay reports to no tracker\n"


@pytest.mark.parametrize("uri", ["", "/runs", "file:///runs", "sqlite:///mlflow.db"])
def test_a_local_store_is_the_programs(store_of: Any, uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert store_of(uri) == uri
    assert not capsys.readouterr().err


def test_a_comet_experiment_is_disabled(off: Any, capsys: pytest.CaptureFixture[str]) -> None:
    comet = off("comet_ml", login=None)
    assert os.environ["COMET_AUTO_LOG_DISABLE"] == "1" and comet.login("key")
    assert "comet_ml is off" in capsys.readouterr().err


def test_a_neptune_run_connects_to_nothing(off: Any) -> None:
    class Connected:
        def __init__(self, project: str = "", mode: str = "async") -> None:
            self.mode = mode

    neptune = off("neptune", Run=Connected)
    assert (neptune.Run("a", "sync").mode, neptune.Run(mode="offline").mode) == ("debug", "debug")


def test_each_that_is_awaited_is_known() -> None:
    assert trackers._OFF.keys() == set(MODULES)


PROGRAM = """
import subprocess, sys, wandb
print(wandb.init(), flush=True)
subprocess.run([sys.executable, "-c", "import wandb; print(wandb.init())"], check=True)
"""


def started(folder: Path, mode: Mode, program: str) -> subprocess.CompletedProcess[str]:
    TinyLog(folder / "log")
    config = folder / "config.json"
    RankConfig(mode=mode, socket_dir="", log=str(folder / "log")).save(config)
    path = f"{PACKAGE / 'rank' / 'inject'}:{PACKAGE.parent}:{folder}"
    return subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": path, "PRISMDBG_CONFIG": str(config), "PATH": "/bin"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        cwd=folder,
    )


@pytest.mark.parametrize(
    ("mode", "seen"), [(Mode.REPLAY, "disabled"), (Mode.RECORD, "None"), (Mode.EMULATE, "disabled")]
)
def test_it_is_off_in_all_processes_but_those_that_are_recorded(tmp_path: Path, mode: Mode, seen: str) -> None:
    """Also in one that has not imported torch."""
    fake = "class Text(str): dir = '.'\ndef init(mode=None): return Text(mode)\ndef setup(): pass"
    (tmp_path / "wandb.py").write_text(fake)
    done = started(tmp_path, mode, PROGRAM)
    assert done.stdout.split() == [seen, seen], done.stderr
    assert done.stderr.count("is off") == 2 * (mode is not Mode.RECORD)


@pytest.mark.parametrize("mode", [Mode.REPLAY, Mode.RECORD])
def test_a_folder_of_runs_is_no_tracker(tmp_path: Path, mode: Mode) -> None:
    """Where wandb is not installed, `import wandb` finds the folder that it made in the working directory."""
    (tmp_path / "wandb" / "run-1").mkdir(parents=True)
    done = started(tmp_path, mode, "import wandb; print(hasattr(wandb, 'init'))")
    assert (done.stdout, done.stderr) == ("False\n", "")


def test_one_that_cannot_be_turned_off_is_said(off: Any, capsys: pytest.CaptureFixture[str]) -> None:
    off("wandb", start=None)
    assert "prismdbg: wandb stays on: AttributeError(" in capsys.readouterr().err
