"""A rank under a starter, with the starter's part played by a file: waiting, exit codes, errors, cleaning up."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from prismdbg.errors import CapsuleError, CheckpointError, RuntimeFailure, WaitTimeout
from prismdbg.runtime.limits import LimitReached
from prismdbg.runtime.parent_death_fifo import ParentDeathFifo
from prismdbg.runtime.spec import (
    CONTROL_FOLDER,
    Bind,
    ImageOrigin,
    LaidFile,
    ProgramOrigin,
    ReplaySpec,
    Saving,
    StarterEngine,
)
from prismdbg.runtime.started_rank import StartedRank
from prismdbg.runtime.starter_spec import Isolation, clear_start, make_folders, read_progress, write_spec


class FakePlace:
    def __init__(self, code: int | None = None, met: tuple[str, ...] = ()) -> None:
        self.code = code
        self.met = met
        self.said = ""
        self.removed = 0

    def outer_pid(self) -> int | None:
        return None

    def ended(self) -> int | None:
        return self.code

    def limits_met(self) -> tuple[str, ...]:
        assert not self.removed, "the counters go with the place"
        return self.met

    def last_words(self) -> str:
        assert not self.removed, "its output goes with the place"
        return self.said

    def runs(self) -> None:
        pass

    def remove(self) -> None:
        self.removed += 1

    def describe(self) -> str:
        return "a fake place"


PROGRAM = ProgramOrigin(executable="/bin/python", argv=("python", "train.py"), env={"A": "b"}, cwd="/work")


def image_origin(session: Path) -> ImageOrigin:
    engine = StarterEngine(
        name="fast",
        folder=Path("/fast"),
        command=("/fast/it",),
        capabilities=(),
        explain=lambda what, log: CheckpointError(f"{what} explained: {log}"),
        explain_foreign=lambda what, log: CapsuleError(f"{what} explained: {log}"),
    )
    return ImageOrigin(
        engine=engine,
        images=session / "images",
        root_pid=7,
        pids=(7, 8),
        names=("/data/f",),
        standards=((1, "pipe:[5]"),),
    )


def spec(session: Path, origin: ImageOrigin | ProgramOrigin = PROGRAM) -> ReplaySpec:
    return ReplaySpec(
        name="rank 2",
        origin=origin,
        session=session,
        python="/bin/python",
        capsule=Path("/capsule"),
        files=(LaidFile(source=Path("/capsule/f"), target="/data/f", size_bytes=3),),
        start_s=0.3,
    )


def control(session: Path) -> Path:
    make_folders(session)
    return session / CONTROL_FOLDER


def say(session: Path, *events: dict[str, object]) -> None:
    with (control(session) / "status.jsonl").open("a") as file:
        file.writelines(json.dumps(event) + "\n" for event in events)


def started(session: Path, place: FakePlace, origin: ImageOrigin | ProgramOrigin = PROGRAM) -> StartedRank:
    return StartedRank(spec(session, origin), place, ParentDeathFifo(control(session)))


def test_it_runs_once_the_starter_says_so(tmp_path: Path) -> None:
    say(tmp_path, {"event": "starting"}, {"event": "started", "pid": 12})
    place = FakePlace()
    rank = started(tmp_path, place).until_running()
    assert rank.exit_code() is None and place.removed == 0
    with pytest.raises(WaitTimeout, match="rank 2 to end"):
        rank.wait(0.05)
    say(tmp_path, {"event": "exited", "code": 3})
    assert rank.wait(1) == 3
    assert place.removed == 1


def test_the_ranks_own_code_counts_and_not_the_starters(tmp_path: Path) -> None:
    say(tmp_path, {"event": "restored", "pid": 7}, {"event": "exited", "code": 0})
    rank = started(tmp_path, FakePlace(code=1)).until_running()
    assert rank.wait(1) == 0


def test_a_limit_is_told_where_the_starter_was_killed_at_it_as_well(tmp_path: Path) -> None:
    """Memory that a killed rank has not yet given back: the next victim is the starter, which then says nothing."""
    say(tmp_path, {"event": "started", "pid": 12})
    with pytest.raises(LimitReached, match="limit of memory"):
        started(tmp_path, FakePlace(code=137, met=("memory",))).wait(1)


def test_what_the_starter_says_of_limits_comes_first(tmp_path: Path) -> None:
    say(tmp_path, {"event": "started", "pid": 12}, {"event": "exited", "code": 1, "limits": []})
    assert started(tmp_path, FakePlace(code=1, met=("memory",))).wait(1) == 1


def test_a_rank_that_came_back_has_not_ended(tmp_path: Path) -> None:
    say(tmp_path, {"event": "started", "pid": 12}, {"event": "exited", "code": 3})
    rank = started(tmp_path, FakePlace()).until_running()
    assert rank.exit_code() == 3
    say(tmp_path, {"event": "restored", "pid": 12})
    assert rank.exit_code() is None
    say(tmp_path, {"event": "exited", "code": 4})
    assert rank.exit_code() == 4
    rank.kill()
    assert rank.exit_code() == 4


def test_a_session_can_be_started_again(tmp_path: Path) -> None:
    write_spec(spec(tmp_path), Isolation.NAMESPACES)
    ParentDeathFifo(control(tmp_path)).let_go()
    say(tmp_path, {"event": "exited", "code": 3})
    output = spec(tmp_path).output
    output.write_text("said")
    clear_start(tmp_path)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [output]
    write_spec(spec(tmp_path), Isolation.NAMESPACES)


def test_a_place_that_is_gone_ends_the_rank(tmp_path: Path) -> None:
    say(tmp_path, {"event": "started", "pid": 12})
    place = FakePlace()
    rank = started(tmp_path, place).until_running()
    place.code = 137
    assert rank.exit_code() == 137
    assert rank.rank_pid() is None


@pytest.mark.parametrize(
    ("events", "error", "message"),
    [
        ([{"event": "failed", "what": "no overlay"}], RuntimeFailure, "rank 2 .* a fake place: no overlay"),
        (
            [{"event": "failed", "what": "slow", "engine": True}],
            CapsuleError,
            r"restore the rank explained: the log\nError \(starter\): slow",
        ),
        ([], WaitTimeout, r"0\.3 s for rank 2 to start in a fake place"),
    ],
)
def test_a_start_that_fails_removes_the_place(
    tmp_path: Path, events: list[dict[str, object]], error: type[Exception], message: str
) -> None:
    say(tmp_path, *events)
    (control(tmp_path) / "restore.log").write_text("the log")
    place = FakePlace()
    with pytest.raises(error, match=message):
        started(tmp_path, place, image_origin(tmp_path)).until_running()
    assert place.removed == 1


def test_an_image_of_the_replay_itself_is_not_the_capsules(tmp_path: Path) -> None:
    say(tmp_path, {"event": "failed", "what": "slow", "engine": True})
    origin = image_origin(tmp_path)
    own = replace(spec(tmp_path, origin), saving=Saving(engine=origin.engine, folder=tmp_path, start_from="3"))
    with pytest.raises(CheckpointError, match="explained"):
        StartedRank(own, FakePlace(), ParentDeathFifo(control(tmp_path))).until_running()


@pytest.mark.parametrize(
    ("log", "said", "told"),
    [
        ("Traceback\nSyntaxError: old python\n", "", ":\nTraceback\nSyntaxError: old python"),
        ("", "exec /own/python: no such file\n", ": exec /own/python: no such file"),
        ("of the log", "of the place", ": of the log"),
        ("", "\n".join("abcdefgh"), ":\nd\ne\nf\ng\nh"),
        ("", "", ""),
    ],
)
def test_a_starter_that_ends_without_a_message_is_told_with_its_last_lines(
    tmp_path: Path, log: str, said: str, told: str
) -> None:
    (control(tmp_path) / "starter.log").write_text(log)
    place = FakePlace(code=1)
    place.said = said
    with pytest.raises(RuntimeFailure) as failed:
        started(tmp_path, place).until_running()
    what = "the process that starts the rank in a fake place ended with exit code 1 and no message"
    assert str(failed.value) == f"{what}{told}"


def test_a_line_that_is_only_half_written_is_not_read(tmp_path: Path) -> None:
    say(tmp_path, {"event": "starting"})
    with (control(tmp_path) / "status.jsonl").open("a") as file:
        file.write('{"event": "started", "pi')
    assert read_progress(tmp_path).pid is None
    assert read_progress(tmp_path / "nothing").failure == ""


@pytest.mark.parametrize(
    "line",
    [b'{"x": 1}', b"[]", b"7", b"null", b"\xff\xfe", b"[" * 100_000, b'{"event": 3, "pid": "x"}', b"x" * 200_000,
     b'{"event": "exited", "code": "0"}', b'{"event": "failed", "what": {"a": []}, "engine": 1}'],
)  # fmt: skip
def test_lines_that_the_starter_never_writes_are_passed_over(tmp_path: Path, line: bytes) -> None:
    """Where the starter has no more rights than the rank, the rank can write there."""
    say(tmp_path, {"event": "started", "pid": 12})
    with (control(tmp_path) / "status.jsonl").open("ab") as file:
        file.write(line + b"\n")
    say(tmp_path, {"event": "exited", "code": 3})
    assert read_progress(tmp_path).exit_code == 3


def test_a_status_that_is_no_file_says_nothing(tmp_path: Path) -> None:
    status, secret = control(tmp_path) / "status.jsonl", tmp_path / "secret"
    secret.write_text('{"event": "exited", "code": 3}\n')
    for make in (lambda: status.symlink_to(secret), lambda: os.mkfifo(status), status.mkdir):
        make()
        assert read_progress(tmp_path).exit_code is None
        status.rmdir() if status.is_dir() else status.unlink()


def test_what_the_starter_is_told(tmp_path: Path) -> None:
    bind = Bind(source=Path("/a"), target="/b")
    path = write_spec(
        spec(tmp_path, image_origin(tmp_path)), Isolation.NAMESPACES, binds=[bind], files=spec(tmp_path).files
    )
    told = json.loads(path.read_text())
    assert path.stat().st_mode & 0o777 == 0o600
    assert told["isolation"] == "namespaces" and told["program"] is None
    assert told["restore"]["standards"] == [[1, "pipe:[5]"]]
    assert (told["restore"]["engine"], told["restore"]["command"]) == ("fast", ["/fast/it"])
    assert told["binds"] == [{"source": "/a", "target": "/b", "read_only": True, "known": None}]
    assert told["files"][0]["size_bytes"] == 3
    with pytest.raises(FileExistsError):
        write_spec(spec(tmp_path), Isolation.NONE)


def test_every_replay_sees_its_session_the_capsule_and_the_engine(tmp_path: Path) -> None:
    targets = {bind.target: bind.read_only for bind in spec(tmp_path, image_origin(tmp_path)).all_binds()}
    assert targets == {f"{tmp_path}/rank": False, f"{tmp_path}/given": True, "/capsule": True, "/fast": True}
    assert "/fast" not in {bind.target for bind in spec(tmp_path).all_binds()}
