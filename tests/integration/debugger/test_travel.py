"""Images of a captured rank: taken, returned to after whatever ended it, given back. What is debugged there is tried in
`test_time_travel`."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from chain import Taken
from waiting import wait_for

from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.checkpoint import bundle
from prismdbg.debugger.time_travel import Travel, open_travel
from prismdbg.errors import CheckpointError, FacilityError, UsageError
from prismdbg.jobs.injection import cache_dir
from prismdbg.jobs.replay.replay import ReplayRequest
from prismdbg.jobs.replay.session_folder import images_base, sessions_base
from prismdbg.model.moment import Moment
from prismdbg.protocol.client import AgentClient
from prismdbg.runtime.docker.daemon import Daemon
from prismdbg.runtime.docker.engine import engine
from prismdbg.runtime.spec import OUTPUT

pytestmark = [pytest.mark.job, pytest.mark.criu]

RUNTIMES = ["local", pytest.param("docker", marks=pytest.mark.docker)]
over_runtimes = pytest.mark.parametrize("runtime", RUNTIMES)
PRINTED = b"printed after the image was taken\n"


@contextmanager
def travelling(taken: Taken, runtime: str, **options: Any) -> Iterator[Travel]:
    request = ReplayRequest(capsule=Capsule.open(taken.capsule), runtime=runtime, **options)
    with open_travel(request, lambda _: None) as travel:
        yield travel


def go_on(travel: Travel, count: int) -> tuple[str, Any, str]:
    """Where it stops, in which collective, and what that gave, to the last bit."""
    travel.client.ask("resume", count=count, end=travel.end_record)
    while (event := travel.client.next_event(60.0, "the next stop"))["event"] != "stopped":
        pass
    value = travel.client.ask("evaluate", expression="out", digest=True)["value"]
    return str(event["moment"]), event["collective"], str(value["digest"])


def here(travel: Travel) -> str:
    return str(travel.client.ask("progress")["moment"])


def save(travel: Travel) -> int:
    return travel.save(Moment.parse(here(travel))).number


def test_an_image_is_returned_to_in_a_place_that_was_made_after_it(captured_live_native: Taken) -> None:
    """The start moment of a live capture is a place of its own each time."""
    said: list[str] = []
    request = ReplayRequest(capsule=Capsule.open(captured_live_native.capsule), runtime="local")
    with open_travel(request, said.append) as travel:
        go_on(travel, 1)
        first, after = save(travel), go_on(travel, 1)
        travel.return_to(0)
        place = travel.running
        travel.return_to(first)
        assert travel.running is place and go_on(travel, 1) == after
    assert not [text for text in said if "could not" in text]


@over_runtimes
def test_what_comes_after_an_image_is_always_the_same(captured_live_native: Taken, runtime: str) -> None:
    with travelling(captured_live_native, runtime) as travel:
        cuts: list[int] = []
        travel.on_cut = cuts.append
        go_on(travel, 2)
        first, length = save(travel), travel.output_length
        after_first = [go_on(travel, 1) for _ in range(3)]
        second = save(travel)
        after_second = go_on(travel, 2)
        with (travel.own.path / OUTPUT).open("ab") as output:
            output.write(PRINTED)
        for _ in range(2):
            travel.return_to(first)
            assert travel.output_length == cuts[-1] == length
            assert [go_on(travel, 1) for _ in range(3)] == after_first
            travel.return_to(second)
            assert go_on(travel, 2) == after_second
        moments = [kept.moment for kept in travel.checkpoints]
        assert moments == sorted(moments) and [kept.number for kept in travel.checkpoints] == [0, first, second]
        assert all(kept.size_bytes > 50 << 20 and 0 < kept.cost_s < 60 for kept in travel.checkpoints[1:])


@over_runtimes
def test_an_image_outlives_the_rank_and_its_place(captured_live_native: Taken, runtime: str) -> None:
    with travelling(captured_live_native, runtime) as travel:
        go_on(travel, 2)
        number, place = save(travel), here(travel)
        expected = go_on(travel, 1)
        for kill in (_kill_rank, _kill_place):
            kill(travel, runtime)
            wait_for(lambda: travel.running.exit_code() is not None, 20, "its end to be noticed")
            travel.return_to(number)
            assert travel.running.exit_code() is None
            assert here(travel) == place
            assert go_on(travel, 1) == expected
        _kill_place(travel, runtime)
        travel.return_to(0)
        assert go_on(travel, 3) == expected


def _kill_rank(travel: Travel, _: str) -> None:
    os.kill(_pid(travel), signal.SIGKILL)


def _kill_place(travel: Travel, runtime: str) -> None:
    """As `docker kill` does; locally the first process of the rank's namespace, and the kernel ends the rest."""
    if runtime == "docker":
        with engine(Daemon(cache_dir()), may_start=False) as docker:
            (container,) = docker.labelled(travel.own.path.parent.name)
            subprocess.run(["docker", "-H", docker.url, "kill", container], check=True, timeout=60, capture_output=True)
    else:
        parent = Path(f"/proc/{_pid(travel)}/stat").read_text().rpartition(")")[2].split()[1]
        os.kill(int(parent), signal.SIGKILL)


def _pid(travel: Travel) -> int:
    pid = travel.running.rank_pid()
    assert pid is not None
    return pid


@over_runtimes
def test_images_of_a_program_that_was_started(nan_early: Taken, runtime: str) -> None:
    with travelling(nan_early, runtime) as travel:
        travel.keep_origin()
        place = travel.running
        expected = go_on(travel, 4)
        number = save(travel)
        after = go_on(travel, 4)
        travel.return_to(0)
        assert go_on(travel, 4) == expected
        travel.return_to(number)
        assert go_on(travel, 4) == after
        travel.return_to(0)
        assert travel.running is place, "it was not started again"
        assert travel.client.ask("progress")["stopped"] == "start"
        place.kill()
        travel.return_to(0)
        assert travel.running is not place and go_on(travel, 4) == expected


@over_runtimes
def test_nothing_is_left_at_the_end(captured_live_native: Taken, runtime: str) -> None:
    with travelling(captured_live_native, runtime) as travel:
        go_on(travel, 1)
        first, second = save(travel), save(travel)
        session, pid = travel.own.path.parent, _pid(travel)
        images = travel._saved._folder
        assert images.parent == images_base()
        travel.forget(first)
        assert [path.name for path in images.iterdir()] == [str(second)]
        with pytest.raises(UsageError, match="no checkpoint"):
            travel.return_to(first)
    assert not images.exists() and not session.exists() and sessions_base().exists()
    assert not Path(f"/proc/{pid}").exists()
    if runtime == "docker":
        with engine(Daemon(cache_dir()), may_start=False) as docker:
            wait_for(lambda: not docker.labelled(session.name), 20, "the container to be removed")


def test_an_image_that_criu_refuses_costs_nothing(captured_live_native: Taken) -> None:
    """Somebody else is connected to the rank, from outside its network namespace."""
    with travelling(captured_live_native, "local") as travel:
        expected = go_on(travel, 1)
        agent = next(travel.own.path.glob("*.sock"))
        with AgentClient(agent) as stranger:
            stranger.ask("hello")
            with pytest.raises(CheckpointError, match=r"[Uu]nix") as refused:
                save(travel)
        assert "connected to it" in refused.value.hint
        assert here(travel) == expected[0] and len(travel.checkpoints) == 1
        number = save(travel)
        after = go_on(travel, 1)
        travel.return_to(number)
        assert go_on(travel, 1) == after


@pytest.mark.parametrize("runtime", ["local", "plain"])
def test_without_images_the_way_back_is_the_start(
    nan_early: Taken, runtime: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_criu() -> None:
        raise FacilityError("no usable CRIU")

    monkeypatch.setattr(bundle, "find", no_criu if runtime == "local" else bundle.find)
    with travelling(nan_early, runtime, allow_writes=runtime == "plain") as travel:
        expected = go_on(travel, 3)
        reason = "no usable CRIU" if runtime == "local" else "cannot go back in time"
        with pytest.raises(FacilityError, match=reason):
            save(travel)
        travel.return_to(0)
        assert go_on(travel, 3) == expected
