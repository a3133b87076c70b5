"""The rank ends at each point of a capture: that is what is said, not what broke at that moment."""

from __future__ import annotations

import itertools
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from chain import PARTS, prismdbg
from jobs import plain_environment, prepare_run, remove_sockets, started
from waiting import wait_for

from prismdbg.capsule.log.reader import read_log
from prismdbg.checkpoint import choice
from prismdbg.checkpoint.engine import Engine
from prismdbg.cli import main
from prismdbg.cli.exit_codes import ExitCode
from prismdbg.jobs.capture import capture
from prismdbg.jobs.injection import job_environment
from prismdbg.jobs.record import checkpoints
from prismdbg.jobs.storage.run_folder import RunFolder, read_json, write_json
from prismdbg.protocol.client import AgentClient

pytestmark = [pytest.mark.job, pytest.mark.criu]

ERRNO_WORDS = re.compile(
    "errno|no such file|broken pipe|reset by peer|refused|connection closed|Traceback", re.IGNORECASE
)


class Rank:
    """A recorded rank that trains, and can be ended at any moment."""

    def __init__(self, run: RunFolder, folder: Path) -> None:
        self.run, self.folder = run, folder
        self.pid = int(read_json(folder / "rank.json")["pid"])

    def end(self) -> None:
        """Nobody waits until it is gone: the capture goes on at once."""
        with suppress(ProcessLookupError):  # a test has ended it
            os.kill(self.pid, signal.SIGKILL)

    def once(self, action: Callable[[], object]) -> Callable[[], None]:
        """Ends it, the first time."""
        done: list[bool] = []

        def end() -> None:
            if not done:
                done.append(True)
                action()
                self.end()

        return end


@pytest.fixture(scope="module")
def attempts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Rank]]:
    """Begins the next rank of one job, when the last one is gone."""
    home = tmp_path_factory.mktemp("attempts")
    run = prepare_run(home / "run", native=True, window_steps=0)
    environment = job_environment(run.inject, run.config, plain_environment())
    command = [sys.executable, str(PARTS / "one_rank.py"), str(home)]
    numbers = itertools.count()
    with started(command, home / "output.txt", env=environment) as job:
        write_json(run.run_json, {})

        def begin() -> Rank:
            number = next(numbers)
            (home / str(number)).touch()
            folder = run.ranks / (f"0.{number}" if number else "0")

            def trains() -> bool:
                return (folder / "rank.json").exists() and bool(read_log(folder).steps)

            wait_for(lambda: trains() or not job.alive, 120, "the rank to be recorded")
            assert job.alive, job.output
            return Rank(run, folder)

        yield begin
    remove_sockets(run)


@pytest.fixture
def rank(attempts: Callable[[], Rank]) -> Iterator[Rank]:
    begun = attempts()
    yield begun
    begun.end()


def before_it_is_looked_at(rank: Rank, patch: pytest.MonkeyPatch) -> None:
    end, original = rank.once(lambda: None), capture.predict_image
    patch.setattr(capture, "predict_image", lambda *told: (end(), original(*told))[1])


def before_the_connection(rank: Rank, patch: pytest.MonkeyPatch) -> None:
    end, original = rank.once(lambda: None), AgentClient.__init__

    def connect(self: AgentClient, *told: Any, **named: Any) -> None:
        end()
        original(self, *told, **named)

    patch.setattr(AgentClient, "__init__", connect)


def after(verb: str) -> Callable[[Rank, pytest.MonkeyPatch], None]:
    """The answer has come; the next request meets a rank that ends."""

    def arm(rank: Rank, patch: pytest.MonkeyPatch) -> None:
        end, original = rank.once(lambda: None), AgentClient.ask

        def ask(self: AgentClient, asked: str, **told: Any) -> Any:
            answer = original(self, asked, **told)
            if asked == verb:
                end()
            return answer

        patch.setattr(AgentClient, "ask", ask)

    return arm


def in_an_answer(rank: Rank, patch: pytest.MonkeyPatch) -> None:
    """The request is sent, its answer never comes, or half of it."""
    from prismdbg.protocol.wire import Connection

    end, original = rank.once(lambda: None), Connection.send

    def send(self: Connection, message: dict[str, Any]) -> None:
        original(self, message)
        if message.get("do") == "park":
            end()

    patch.setattr(Connection, "send", send)


def during_the_dump(rank: Rank, patch: pytest.MonkeyPatch) -> None:
    engine = type(choice.find())
    original = engine.dump

    def dump(found: Engine, pid: int, images: Path, **told: Any) -> Any:
        def end_it() -> None:
            wait_for(lambda: any(images.glob("*.img")), 60, "the first image")
            rank.end()

        watcher = threading.Thread(target=end_it)
        watcher.start()
        try:
            return original(found, pid, images, **told)
        finally:
            watcher.join()

    patch.setattr(engine, "dump", dump)


def after_the_dump(rank: Rank, patch: pytest.MonkeyPatch) -> None:
    engine = type(choice.find())
    original = engine.dump

    def dump(*told: Any, **named: Any) -> Any:
        cost = original(*told, **named)
        rank.end()
        return cost

    patch.setattr(engine, "dump", dump)


def during_the_copy(rank: Rank, patch: pytest.MonkeyPatch) -> None:
    original = capture.assemble

    def copy(*told: Any) -> Any:
        rank.end()
        return original(*told)

    patch.setattr(capture, "assemble", copy)


ENDED = [
    before_it_is_looked_at, before_the_connection, after("window"), in_an_answer, after("park"), after("status"),
    after("close_log"), during_the_dump, after_the_dump,
]  # fmt: skip
IDS = ["first", "connection", "window", "answer", "park", "status", "close_log", "dump", "dumped"]


@pytest.mark.parametrize("arm", ENDED, ids=IDS)
def test_a_rank_that_ends_before_its_image_is_there(
    arm: Any, rank: Rank, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arm(rank, monkeypatch)
    output = tmp_path / "capsule"
    code = main.run(["capture", str(rank.run.path), "--rank", "0", "-o", str(output)])
    said = capsys.readouterr().err
    assert code == ExitCode.RANK_LOST, said
    assert f"rank {rank.folder.name} has ended" in said and "prismdbg why" in said
    assert not ERRNO_WORDS.search(said), said
    assert not output.exists() and not list(rank.run.path.glob(f"{capture.LEFTOVER}*"))


def test_a_rank_that_ends_while_its_capsule_is_written(
    rank: Rank, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    during_the_copy(rank, monkeypatch)
    output = tmp_path / "capsule"
    code = main.run(["capture", str(rank.run.path), "--rank", "0", "-o", str(output)])
    said = capsys.readouterr().err
    assert code == ExitCode.OK, said
    assert not ERRNO_WORDS.search(said), said
    verified = prismdbg("verify", output)
    assert verified.code == 0, verified.out


def test_a_rank_that_ends_as_its_checkpoint_is_kept(rank: Rank, monkeypatch: pytest.MonkeyPatch) -> None:
    """The images are whole and stay; only the rank cannot be told any more."""
    original = checkpoints._drop_old

    def drop(*told: Any) -> Any:
        rank.end()
        return original(*told)

    monkeypatch.setattr(checkpoints, "_drop_old", drop)
    with pytest.raises(capture.RankLost, match=f"rank {rank.folder.name} has ended"):
        checkpoints.take(rank.run, rank.folder, lambda _: None)
    assert len(checkpoints.list_checkpoints(rank.run, rank.folder)) == 1


def test_what_reads_the_run_while_the_rank_ends(rank: Rank) -> None:
    """Each in the moment after it was killed, and once it is gone."""
    rank.end()
    for command in ("status", "why", "debug", "memory", "status", "why"):
        said = prismdbg(command, rank.run.path, *(["--rank", 0] if command == "debug" else []))
        assert said.code in {ExitCode.OK, ExitCode.RANK_LOST, ExitCode.USAGE, ExitCode.BAD_CAPSULE}, said
        assert not re.search("errno|broken pipe|reset by peer", said.err, re.IGNORECASE), said.err
