"""What every place to run a rank in promises, over all of them, with a small real process."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from counting import (
    PYTHON,
    Captured,
    ask,
    program_spec,
    short_folder,
    with_bound,
)
from runtime_places import Case, walled
from waiting import wait_for

from prismdbg.checkpoint.cache import cache_folder
from prismdbg.errors import CapsuleError, CheckpointError, RuntimeFailure, WaitTimeout
from prismdbg.runtime import docker_runtime, starter_process
from prismdbg.runtime.docker.daemon import Daemon
from prismdbg.runtime.docker.engine import engine
from prismdbg.runtime.docker_runtime import DockerRuntime
from prismdbg.runtime.local_runtime import LocalRuntime
from prismdbg.runtime.plain_runtime import PlainRuntime
from prismdbg.runtime.runtime import Runtime
from prismdbg.runtime.spec import CONTROL_FOLDER, GIVEN, RANK, ImageOrigin, LaidFile, ProgramOrigin, ReplaySpec

OTHER_USER = 1000


def test_the_rank_answers_on_its_socket_and_goes_on(case: Case, request: pytest.FixtureRequest) -> None:
    rank, socket = case.start()
    try:
        first = ask(socket, "status")
        wait_for(lambda: ask(socket, "status")["count"] > first["count"] + 3, 20, "the rank to go on counting")
        assert rank.exit_code() is None
    finally:
        rank.kill()
    if case.origin == "image":
        image: Captured = request.getfixturevalue("captured")
        assert first["count"] >= image.count, "it began anew instead of going on"
        assert first["pid"] == image.image.root_pid
    else:
        assert first["color"] == "green"


def test_the_rank_has_no_capabilities(case: Case) -> None:
    rank, socket = case.start()
    try:
        status = ask(socket, "status")
        pid = rank.rank_pid()
        seen = Path(f"/proc/{pid}/status").read_text()
    finally:
        rank.kill()
    assert status["cap_eff"] == 0
    assert status["cap_bnd"] == 0 or os.geteuid() != 0
    assert "CapEff:\t0000000000000000" in seen
    if case.origin == "start":
        assert status["no_new_privs"] == "1"


@walled
def test_the_rank_is_alone(case: Case) -> None:
    rank, socket = case.start()
    try:
        status = ask(socket, "status")
    finally:
        rank.kill()
    assert status["interfaces"] == ["lo"]
    assert len(status["processes"]) <= 3 and os.getpid() not in status["processes"]


@walled
def test_what_the_rank_writes_is_thrown_away(case: Case, request: pytest.FixtureRequest) -> None:
    with short_folder() as folder:
        target = f"/prismdbg-test-{os.getpid()}" if case.runtime.name == "docker" else str(folder / "written")
        spec, socket = case.plan()
        rank = case.runtime.start(replace(spec, folders=(*spec.folders, str(folder))))
        try:
            answer = ask(socket, f"write {target}")
        finally:
            rank.kill()
        assert "error" not in answer
        assert not Path(target).exists()
    if case.origin == "image":
        image: Captured = request.getfixturevalue("captured")
        lines = (image.capsule / image.files[0].source.name).read_text().splitlines()
        assert lines == [str(number) for number in range(1, len(lines) + 1)], "a replay wrote into the capsule"


@walled
def test_the_ranks_files_lie_where_it_knows_them(case: Case) -> None:
    spec, socket = case.plan()
    content = spec.session / GIVEN / "content"
    content.write_text("0123456789")
    sizes = {f"/prismdbg-{os.getpid()}/a/b": 4, f"/prismdbg-{os.getpid()}/log": 10 << 30, "/dev/shm/some": 10}
    small, log, shared = sizes
    files = (
        LaidFile(source=content, target=small, size_bytes=4),
        LaidFile(source=None, target=log, size_bytes=10 << 30),
        LaidFile(source=content, target=shared),
    )
    rank = case.runtime.start(replace(spec, files=(*spec.files, *files)))
    try:
        assert {path: ask(socket, f"size {path}")["size"] for path in sizes} == sizes
    finally:
        rank.kill()
    assert not Path(small).exists() and not Path(shared).exists()


@pytest.mark.parametrize("case", ["local-start"], indirect=True)
def test_the_rank_reaches_its_files_whatever_the_umask_of_the_command(case: Case) -> None:
    """A restored one may be another user, for whom root replays it."""
    if os.geteuid() != 0:
        pytest.skip("only root can give a rank another user")
    spec, socket = case.plan()
    for path in (spec.session / RANK, *(spec.session / RANK).rglob("*")):
        os.chown(path, OTHER_USER, OTHER_USER)
    content = spec.session / GIVEN / "content"
    content.write_text("0123456789")
    target = f"/prismdbg-{os.getpid()}/made/folder/file"
    files = (*spec.files, LaidFile(source=content, target=target))
    before = os.umask(0o077)
    try:
        rank = case.runtime.start(replace(spec, files=files, uid=OTHER_USER, gid=OTHER_USER))
    finally:
        os.umask(before)
    try:
        assert ask(socket, f"size {target}")["size"] == 10
    finally:
        rank.kill()


def test_output_and_exit_code_are_kept(case: Case) -> None:
    spec, socket = case.plan()
    rank = case.runtime.start(spec)
    try:
        wait_for(lambda: spec.output.exists() and "counted to" in spec.output.read_text(), 20, "its output")
        ask(socket, "end 7")
        assert rank.wait(30) == 7
        assert rank.rank_pid() is None
        assert spec.output.read_text().startswith("counted to")
    finally:
        rank.kill()
    assert rank.exit_code() == 7


def test_the_same_origin_starts_again_and_again(case: Case) -> None:
    counts = []
    for _ in range(3):
        rank, socket = case.start()
        try:
            counts.append(ask(socket, "status")["count"])
        finally:
            rank.kill()
    if case.origin == "image":
        assert max(counts) - min(counts) < 100, f"a restore did not start where the image was taken: {counts}"


def test_kill_ends_the_rank_and_is_harmless_twice(case: Case) -> None:
    rank, socket = case.start()
    ask(socket, "status")
    pid = rank.rank_pid()
    assert pid is not None
    rank.kill()
    rank.kill()
    wait_for(lambda: not _lives(pid), 20, "the rank to be gone")
    assert rank.exit_code() is not None
    assert rank.rank_pid() is None


def test_the_bound_of_the_whole_replay_holds(case: Case) -> None:
    spec, _ = case.plan()
    rank = case.runtime.start(with_bound(spec, 1.5))
    try:
        with pytest.raises(WaitTimeout, match="counting rank"):
            rank.wait(0.01)
        pid = rank.rank_pid()
        assert rank.wait(30) == 124
        assert pid is None or not _lives(pid)
    finally:
        rank.kill()


def test_a_start_that_fails_leaves_nothing(case: Case, daemon: Daemon) -> None:
    spec, _ = case.plan()
    if isinstance(spec.origin, ProgramOrigin):
        broken = replace(spec, origin=replace(spec.origin, executable="/nowhere/python"))
        with pytest.raises(CapsuleError, match="executable must be"):
            case.runtime.start(broken)
    else:
        cut = tuple(replace(file, size_bytes=1) for file in spec.files)
        broken = replace(spec, files=cut, folders=(), binds=())
        with pytest.raises(CheckpointError, match="could not restore"):
            case.runtime.start(broken)
    assert not _processes_of(spec.session)
    if case.runtime.name == "docker":
        with engine(daemon, may_start=False) as docker:
            wait_for(lambda: not docker.labelled(spec.session.name), 20, "the container to be removed")


@pytest.mark.parametrize("case", ["local-start", "plain-start", "docker-start"], indirect=True)
def test_a_starter_that_cannot_begin_is_told_with_its_exit_code_and_what_it_wrote(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container that removes itself takes its output along: it ended `with 137 and no message`, whatever it said."""
    fails = "import os; os.write(2, b'Fatal Python error\\nno encodings\\n'); os._exit(3)"
    for module in (docker_runtime, starter_process):
        monkeypatch.setattr(module, "starter_command", lambda python, *_: [*python, "-ISc", fails])
    with pytest.raises(RuntimeFailure) as failed:
        case.start()
    assert str(failed.value).endswith("ended with exit code 3 and no message:\nFatal Python error\nno encodings")


@pytest.mark.parametrize("case", ["local-image", "docker-image"], indirect=True)
def test_a_restore_that_hangs_is_given_up(case: Case) -> None:
    spec, _ = case.plan()
    assert isinstance(spec.origin, ImageOrigin)
    hanging = (PYTHON, "-c", "import time; time.sleep(1000)")
    with pytest.raises(CheckpointError, match="did not restore the rank within 1 s"):
        case.runtime.start(
            replace(spec, origin=replace(spec.origin, engine=replace(spec.origin.engine, command=hanging), timeout_s=1))
        )
    wait_for(lambda: not _processes_of(spec.session), 20, "everything to be gone")


def test_when_the_client_dies_the_rank_ends(case: Case, daemon: Daemon) -> None:
    """The client is another process here, and is killed without a chance to clean up."""
    if case.runtime.name == "docker" and not daemon.running_pid():
        pytest.skip("an engine that is not ours cannot be named to the other process")
    spec, socket = case.plan()
    starting = _start_elsewhere(case.runtime.name, spec)
    try:
        ask(socket, "status")
        inside = wait_for(lambda: _processes_of(spec.session), 20, "the rank's processes")
        starting.kill()
        starting.wait()
        wait_for(lambda: not any(_lives(pid) for pid in inside), 30, "the rank to end with its client")
        if case.runtime.name == "docker":
            with engine(daemon, may_start=False) as docker:
                wait_for(lambda: not docker.labelled(spec.session.name), 30, "the container to be removed")
    finally:
        starting.kill()
        starting.wait()


def test_a_plain_process_refuses_what_it_cannot_give(new_session: Callable[[], Path]) -> None:
    spec, _ = program_spec(new_session())
    assert PlainRuntime().refuses(spec) is None
    assert "--allow-writes" in str(PlainRuntime().refuses(replace(spec, allow_writes=False)))


def _start_elsewhere(name: str, spec: ReplaySpec) -> subprocess.Popen[bytes]:
    """A process that starts the replay with this very spec, and then waits to be killed."""
    child = os.fork()
    if child == 0:
        try:
            runtimes: dict[str, Runtime] = {
                "local": LocalRuntime(),
                "docker": DockerRuntime(Daemon(cache_folder())),
                "plain": PlainRuntime(),
            }
            runtimes[name].start(spec)
            signal.pause()
        finally:
            os._exit(1)
    return _Forked(child)  # type: ignore[return-value]


class _Forked:
    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._ended = False

    def kill(self) -> None:
        if not self._ended:
            os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> None:
        if not self._ended:
            os.waitpid(self.pid, 0)
            self._ended = True


def _processes_of(session: Path) -> list[int]:
    """Starters of this session, by the spec file they were given."""
    wanted = os.fsencode(session / CONTROL_FOLDER / "spec.json")
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if wanted in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
