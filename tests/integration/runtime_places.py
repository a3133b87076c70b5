"""The places a rank can run in, as fixtures for those who try what each of them promises."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from counting import Captured, ask, capture, counting, image_spec, program_spec, short_folder

from prismdbg.checkpoint import bundle
from prismdbg.checkpoint.cache import cache_folder
from prismdbg.errors import FacilityError
from prismdbg.runtime.docker.daemon import Daemon
from prismdbg.runtime.docker_runtime import DockerRuntime
from prismdbg.runtime.local_runtime import LocalRuntime
from prismdbg.runtime.plain_runtime import PlainRuntime
from prismdbg.runtime.runtime import RunningRank, Runtime
from prismdbg.runtime.spec import ReplaySpec

Plan = Callable[[], tuple[ReplaySpec, Path]]


@dataclass(frozen=True, slots=True)
class Case:
    """One runtime and one origin; `plan` makes a new session for it each time."""

    runtime: Runtime
    origin: str
    plan: Plan

    def start(self, spec: ReplaySpec | None = None) -> tuple[RunningRank, Path]:
        planned, socket = self.plan()
        return self.runtime.start(spec or planned), socket


@pytest.fixture(scope="session")
def daemon() -> Iterator[Daemon]:
    """An engine that was started for the tests is stopped after them; another one is left alone."""
    one = Daemon(cache_folder())
    ran_before = one.running_pid() is not None
    yield one
    if not ran_before:
        one.stop()


@pytest.fixture(scope="module")
def captured() -> Iterator[Captured]:
    try:
        criu = bundle.find()
    except FacilityError as error:
        pytest.skip(str(error))
    with short_folder() as home, short_folder() as capsule, counting(home) as one:
        taken = capture(criu, one, capsule)
        yield taken
        assert ask(one.socket, "status")["count"] > taken.count, "the process that was dumped did not go on"


@pytest.fixture
def new_session() -> Iterator[Callable[[], Path]]:
    with short_folder() as folder:
        numbers = iter(range(100))

        def make() -> Path:
            session = folder / f"s{next(numbers)}"
            session.mkdir(mode=0o700)
            return session

        yield make


WALLED = ["local-image", "local-start", "docker-image", "docker-start"]
walled = pytest.mark.parametrize("case", WALLED, indirect=True)


@pytest.fixture(params=[*WALLED, "plain-start"])
def case(request: pytest.FixtureRequest, new_session: Callable[[], Path], daemon: Daemon) -> Case:
    place, origin = str(request.param).split("-")
    runtimes: dict[str, Runtime] = {
        "local": LocalRuntime(),
        "docker": DockerRuntime(daemon),
        "plain": PlainRuntime(),
    }
    runtime = runtimes[place]
    if reason := runtime.available():
        pytest.skip(reason)
    if origin == "start":
        return Case(runtime, origin, lambda: program_spec(new_session()))
    image: Captured = request.getfixturevalue("captured")
    case = Case(runtime, origin, lambda: image_spec(image, new_session()))
    if reason := runtime.refuses(case.plan()[0]):
        pytest.skip(reason)
    return case
