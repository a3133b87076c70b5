"""What every test may use. Tests that need a facility are skipped with the reason its probe gives, never silently."""

from __future__ import annotations

import fcntl
import functools
import gc
import importlib.util
import itertools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest
from broad import is_broad, unknown
from disk_space import DiskSpace, limit_files
from hypothesis import HealthCheck, settings
from spawning import Spawn
from unstable import Unstable
from waiting import wait_for

from prismdbg.errors import FacilityError

settings.register_profile(
    "prismdbg",
    deadline=None,  # a busy machine is no defect
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    derandomize="CI" in os.environ,
)
settings.load_profile("prismdbg")

ROOT = Path(__file__).resolve().parent.parent


_KEPT_IMAGES = 6
_KEEPS_NO_BYTECODE = sys.dont_write_bytecode  # as the environment says
BUILT = ("criu", "native", "starter-python")  # in the cache, by `prismdbg setup` and the first replay


def pytest_configure(config: pytest.Config) -> None:
    """A shell that starts us in the background has SIGINT ignored, and every process below us would inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if "PYTEST_XDIST_WORKER" in os.environ:
        _take_own_cache()
    os.environ["XDG_CONFIG_HOME"] = str(
        ROOT / "tests" / "no-config"
    )  # a developer's own defaults are none of the tests'
    os.environ["XDG_STATE_HOME"] = os.devnull  # nor are lines that they typed, and nothing is added to them
    for name in ("COLUMNS", "LINES"):  # a worker has them, and a screen would believe them, not its terminal
        os.environ.pop(name, None)
    config.pluginmanager.register(DiskSpace())
    limit_files()
    if config.getoption("name_unstable"):
        config.pluginmanager.register(Unstable())


_held: list[int] = []  # the lock of this worker's cache, for as long as it lives


def _take_own_cache() -> None:
    """Tests that run side by side, in this run or in another one, have an engine, containers and builds of their own:
    nobody stops another's, or writes over a library that another one's ranks have mapped."""
    from prismdbg.jobs.injection import cache_dir

    shared = cache_dir()
    own = _unused(shared.with_name(f"{shared.name}-tests"))
    for part in BUILT:
        if (shared / part).is_dir():
            shutil.copytree(
                shared / part, own / shared.name / part, symlinks=True, dirs_exist_ok=True, copy_function=_copied_once
            )
    os.environ["XDG_CACHE_HOME"] = str(own)


def _unused(caches: Path) -> Path:
    """The first that no living worker has."""
    for number in itertools.count():
        own = caches / str(number)
        own.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(own / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            continue
        _held.append(descriptor)
        return own
    raise AssertionError("numbers have no end")


def _copied_once(source: str, target: str) -> str:
    """What is there is the same: folders are named after what they were built of."""
    return target if os.path.lexists(target) else shutil.copy2(source, target)


def pytest_unconfigure() -> None:
    """A worker's engine ends with the worker. Each checkout has images of its own, of about 850 MB: those of checkouts
    that are long gone would fill the disk."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        from prismdbg.jobs.injection import cache_dir
        from prismdbg.runtime.docker.daemon import Daemon
        from prismdbg.runtime.docker.engine import Engine
        from prismdbg.runtime.docker.image import stored_environments

        daemon = Daemon(cache_dir())
        try:
            if daemon.running_pid() is not None:
                with closing(Engine(daemon.url)) as docker:
                    for image in stored_environments(docker)[:-_KEPT_IMAGES]:
                        docker.remove_unused_image(image.tag)
        finally:
            daemon.stop()


def pytest_collectstart() -> None:
    """The bytecode of tests is kept for the next run, whatever the environment says: compiling them takes longer than
    the rest of the collection. Set before each file, because the starter unsets it when a test imports it. All that a
    collection makes stays: the garbage collector would only look through it, again and again."""
    sys.dont_write_bytecode = False
    gc.disable()


def pytest_collection_finish() -> None:
    sys.dont_write_bytecode = _KEEPS_NO_BYTECODE
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if is_broad(item.path.name, item.name):
            item.add_marker(pytest.mark.broad)
    whole_files = not any("::" in argument for argument in config.args) and not config.getoption("lf", False)
    if whole_files and (entries := unknown((item.path.name, item.name) for item in items)):
        raise pytest.UsageError(f"tests/broad.py names what is not there: {', '.join(entries)}")


@pytest.hookimpl(optionalhook=True)  # absent with -p no:xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from distribution import DockerOnOneWorker

    return DockerOnOneWorker(config, log) if config.option.dist == "loadfile" else None


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the files in tests/golden again")
    parser.addoption(
        "--name-unstable",
        action="store_true",
        help="of tests that failed, with --last-failed: name those that pass now",
    )


@functools.cache
def _lacking(marker: str) -> str:
    """Why a test with this marker cannot run here, as the product itself says it; empty where it can."""
    if marker == "criu":
        from prismdbg.checkpoint import bundle

        try:
            bundle.find()
        except FacilityError as error:
            return f"{error} ({error.hint})"
    if marker == "docker":
        from prismdbg.jobs.injection import cache_dir
        from prismdbg.runtime.docker.daemon import Daemon
        from prismdbg.runtime.docker_runtime import DockerRuntime

        return DockerRuntime(Daemon(cache_dir())).available() or ""
    if marker == "job" and importlib.util.find_spec("torch") is None:
        return "torch is not installed (make setup)"
    return ""


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in ("job", "criu", "docker"):
        if item.get_closest_marker(marker) is not None and (reason := _lacking(marker)):
            pytest.skip(reason)


@pytest.fixture(scope="session")
def new_session_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """For what several files look at: stays till the end."""
    session = tmp_path_factory.mktemp("session")
    return lambda name: Path(tempfile.mkdtemp(prefix=f"{name}-", dir=session))


@pytest.fixture(scope="module", autouse=True)
def _folders_of_the_file(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    new_session_folder: Callable[[str], Path],  # there before it is asked what is
) -> Iterator[None]:
    """They go with its last test, unless one failed: those of the whole suite would fill a small disk."""
    base = tmp_path_factory.getbasetemp()
    before, failed = set(base.iterdir()), request.session.testsfailed
    yield
    if request.session.testsfailed == failed:
        for folder in set(base.iterdir()) - before:
            shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A path for `prismdbg record -o`; nothing is there yet."""
    return tmp_path / "run"


@pytest.fixture(scope="session")
def prismdbg_command() -> tuple[str, ...]:
    """How to start the command line, the one of this tree, whether or not it is installed."""
    return (sys.executable, "-c", "from prismdbg.cli.main import main; main()")


@pytest.fixture(scope="session")
def child_environment() -> dict[str, str]:
    """The environment for processes that tests start: this tree is importable, threads are few."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    paths = [str(ROOT), str(ROOT / "tui"), *filter(None, [environment.get("PYTHONPATH")])]
    return {**environment, "PYTHONPATH": os.pathsep.join(paths)}


@pytest.fixture
def spawn(child_environment: dict[str, str]) -> Iterator[Spawn]:
    """Starts processes, each in a session of its own; whatever of them still lives at the end is killed."""
    started: list[subprocess.Popen[str]] = []

    def start(*command: str, **options: object) -> subprocess.Popen[str]:
        options = {"env": child_environment, "text": True, "start_new_session": True, **options}
        process = subprocess.Popen(command, **options)  # type: ignore[call-overload]
        started.append(process)
        return process  # type: ignore[no-any-return]

    yield start
    for process in started:
        _end_session(process)


def _end_session(process: subprocess.Popen[str]) -> None:
    if process.poll() is None or _group_lives(process.pid):
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    process.wait(timeout=30)
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
    wait_for(lambda: not _group_lives(process.pid), 30, f"the processes of group {process.pid} to end")


def _group_lives(group: int) -> bool:
    """Zombies do not count: in a container nobody may reap them."""
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return any(
        process.info["status"] != psutil.STATUS_ZOMBIE and _group_of(process.info["pid"]) == group
        for process in psutil.process_iter(["pid", "status"])
    )


def _group_of(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return -1
