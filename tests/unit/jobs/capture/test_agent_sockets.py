"""Socket folders of jobs whose supervisor was killed go; those of jobs that live, or may live, stay."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from prismdbg.jobs.capture import agent_sockets
from prismdbg.jobs.capture.agent_sockets import KEPT_S, make_socket_dir, remove_dead
from prismdbg.settings.process_stat import start_ticks

ELSEWHERE = "00000000.1"


@pytest.fixture
def base() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="pd") as folder:  # pytest's own paths are too long for a socket
        yield Path(folder)


@pytest.fixture(scope="module")
def dead() -> str:
    """The maker's part of a folder's name, of a process that has ended."""
    command = [sys.executable, "-c", "input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        ticks = start_ticks(process.pid)
    return f"{agent_sockets._here()}-{process.pid}-{ticks}"


def living() -> str:
    return f"{agent_sockets._here()}-{os.getpid()}-{start_ticks(os.getpid())}"


def with_socket(folder: Path, backlog: int = 8) -> socket.socket:
    folder.mkdir()
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(folder / "0.sock"))
    listening.listen(backlog)
    return listening


def make_old(folder: Path) -> None:
    os.utime(folder, (0, 0))


def left(base: Path) -> list[str]:
    remove_dead(base)
    return [path.name for path in base.iterdir()]


def test_what_a_killed_maker_left_goes_at_once(base: Path, dead: str) -> None:
    with_socket(base / f"{dead}-a").close()
    (base / f"{dead}-a" / "0.lock").touch()
    (base / f"{dead}-b").mkdir()
    (base / f"{dead}-b" / "1.lock").touch()
    for name in ("4711.opened", "4711-1.rank", "4711-1.tmp"):
        (base / f"{dead}-b" / name).touch()
    assert left(base) == []


def test_a_rank_that_outlives_its_supervisor_keeps_its_socket(base: Path, dead: str) -> None:
    with with_socket(base / f"{dead}-a"):
        assert left(base) == [f"{dead}-a"]
    assert left(base) == []


def test_a_rank_that_has_more_clients_than_it_takes_lives(base: Path, dead: str) -> None:
    with with_socket(base / f"{dead}-a", backlog=0) as listening, socket.socket(socket.AF_UNIX) as client:
        client.connect(listening.getsockname())  # nobody takes it, and there is room for none behind it
        assert left(base) == [f"{dead}-a"]


def test_what_a_living_maker_has_stays_however_old(base: Path) -> None:
    (base / f"{living()}-a").mkdir()
    make_old(base / f"{living()}-a")
    assert left(base) == [f"{living()}-a"]


def test_a_process_that_has_the_number_of_a_dead_maker_is_another(base: Path) -> None:
    name = f"{agent_sockets._here()}-{os.getpid()}-1-a"
    (base / name).mkdir()
    assert left(base) == []


def test_where_the_maker_cannot_be_seen_only_what_is_old_goes(base: Path) -> None:
    names = [f"{ELSEWHERE}-1-1-a", "0123abcd"]
    for name in names:
        with_socket(base / name).close()
    assert sorted(left(base)) == sorted(names)
    for name in names:
        make_old(base / name)
    with with_socket(base / f"{ELSEWHERE}-1-1-alive"):
        make_old(base / f"{ELSEWHERE}-1-1-alive")
        assert left(base) == [f"{ELSEWHERE}-1-1-alive"]
    assert KEPT_S >= 60


def test_where_a_pid_may_mean_another_process_only_what_is_old_goes(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_sockets, "_here", lambda: "unknown")
    name = f"unknown-{os.getpid()}-1-a"
    (base / name).mkdir()
    assert left(base) == [name]
    make_old(base / name)
    assert left(base) == []


def test_a_new_folder_says_who_made_it_and_leaves_room_for_a_socket() -> None:
    folder = make_socket_dir()
    try:
        assert folder.name.startswith(f"{living()}-") and folder.stat().st_mode & 0o777 == 0o700
        longest = f"/tmp/prismdbg-{2**32 - 2}-01234567/{agent_sockets._here()}-{2**22}-{2**40}-01234567/99999.99.sock"
        assert len(longest) < 108
        agent_sockets.remove_dead_sockets()
        assert folder.is_dir()
    finally:
        folder.rmdir()


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives a folder to another user")
@pytest.mark.parametrize("is_link", [False, True])
def test_another_user_who_has_the_name_is_not_in_the_way(
    is_link: bool, base: Path, dead: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everybody may make folders in /tmp."""
    monkeypatch.setattr(agent_sockets, "HOMES", (base,))
    taken = base / f"prismdbg-{os.getuid()}"
    if is_link:
        (base / "elsewhere").mkdir()
        taken.symlink_to(base / "elsewhere")
    else:
        taken.mkdir()
        os.chown(taken, 65534, 65534)
    first, second = make_socket_dir(), make_socket_dir()
    assert first.parent == second.parent and first.parent != taken and first.parent.name.startswith(f"{taken.name}-")
    assert first.parent.stat().st_mode & 0o777 == 0o700 and not list(taken.iterdir())
    first.rename(first.with_name(f"{dead}-a"))
    agent_sockets.remove_dead_sockets()
    assert list(first.parent.iterdir()) == [second]
