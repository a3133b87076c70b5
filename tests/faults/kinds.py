"""The faults, by the kind of job that they are injected into. Each acts at once and gives its undoing, if any.

A fault that finds nothing to break raises `OSError` or `psutil.Error`: it is not counted, and another one is taken.
"""

from __future__ import annotations

import itertools
import os
import random
import resource
import shutil
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from file_server import FileServer
from waiting import wait_for

from prismdbg.settings.process_stat import start_ticks

Undo = Callable[[], object]


@dataclass(slots=True, kw_only=True)
class Target:
    """A recorded job. `home` is the folder that RUN lies in, `deed` what the ranks do in the next phase."""

    home: Path
    signs: Path
    sockets: Path
    supervisor: psutil.Process
    random: random.Random
    server: FileServer | None = None
    launcher: psutil.Process | None = None
    deed: str = ""
    gone: set[str] = field(default_factory=set)

    @property
    def run(self) -> Path:
        return self.home / "run"

    def rank(self) -> psutil.Process:
        return self.ranks()[self.random.randrange(2)]

    def ranks(self) -> list[psutil.Process]:
        return [psutil.Process(int((self.signs / f"pid.{rank}").read_text())) for rank in range(2)]

    def a_file(self, pattern: str) -> Path:
        found = sorted(self.home.glob(f"run/{pattern}".removesuffix("/.")))
        if not found:
            raise FileNotFoundError(pattern)
        return self.random.choice(found)

    def a_moment(self, longest_s: float = 0.05) -> None:
        time.sleep(self.random.uniform(0, longest_s))


DISK_BYTES = 32 << 20  # a RUN of two ranks begins with about 16 MiB
# The program's own next `open` takes one: with none a bare job ends, with this many it does not.
NEEDED_DESCRIPTORS = 1
NEEDED_FILE_BYTES = 1024  # its own: what it prints goes into a file, and a bare job that may not write there ends, too
Fault = Callable[[Target], "Undo | None"]
SIGNALS = (
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGALRM,
    signal.SIGHUP,
    signal.SIGCHLD,
    signal.SIGWINCH,
    signal.SIGURG,
)


# signals


def to_a_rank(number: signal.Signals) -> Fault:
    return lambda target: target.rank().send_signal(number)


def stopped(of: Callable[[Target], list[psutil.Process]]) -> Fault:
    def fault(target: Target) -> None:
        processes = of(target)
        for process in processes:
            process.suspend()
        target.a_moment(0.3)
        for process in processes:
            process.resume()

    return fault


# files


def cut(pattern: str, share: float) -> Fault:
    def fault(target: Target) -> None:
        path = target.a_file(pattern)
        os.truncate(path, int(path.stat().st_size * share))

    return fault


def garbage(pattern: str) -> Fault:
    def fault(target: Target) -> None:
        path = target.a_file(pattern)
        with path.open("r+b") as file:
            file.seek(target.random.randrange(max(path.stat().st_size, 1)))
            file.write(target.random.randbytes(300))

    return fault


def replaced(pattern: str) -> Fault:
    """By a file of the same size, as an editor or a copy program does."""

    def fault(target: Target) -> None:
        path = target.a_file(pattern)
        other = path.with_name("replaced")
        other.write_bytes(bytes(path.stat().st_size))
        other.replace(path)

    return fault


def removed(pattern: str) -> Fault:
    def fault(target: Target) -> None:
        path = target.a_file(pattern)
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    return fault


def a_file_instead(pattern: str) -> Fault:
    def fault(target: Target) -> None:
        path = target.a_file(pattern)
        path.rename(path.with_name("moved"))
        path.write_text("in the way")

    return fault


def a_loop_instead(pattern: str) -> Fault:
    def fault(target: Target) -> None:
        path = target.a_file(pattern)
        path.unlink()
        path.symlink_to(path.name)

    return fault


def without_rights(pattern: str) -> Fault:
    return lambda target: target.a_file(pattern).chmod(0)


def without_sockets(target: Target) -> None:
    shutil.rmtree(target.sockets)


# disk


def full(target: Target) -> Undo:
    """Only the small disk of its own: never the machine's, should that one not be mounted (any more)."""
    _require_own_disk(target)
    filler = target.home / f"filler-{target.random.getrandbits(32)}"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        for _ in range(2 * DISK_BYTES >> 16):
            file.write(bytes(64 << 10))
    return filler.unlink


def _require_own_disk(target: Target) -> None:
    if not target.home.is_mount() or shutil.disk_usage(target.home).total > DISK_BYTES:
        raise OSError("it has no small disk of its own")


def mounted_again(*options: str, back: str) -> Fault:
    def mount(target: Target, how: str) -> None:
        _require_own_disk(target)
        done = subprocess.run(["mount", "-o", f"remount,{how}", str(target.home)], capture_output=True)
        if done.returncode:
            raise OSError(done.stderr)

    def fault(target: Target) -> Undo:
        mount(target, ",".join(options))
        return lambda: mount(target, back)

    return fault


def unmounted(target: Target) -> None:
    if "mount" in target.gone:
        raise OSError("gone already")
    _require_own_disk(target)
    target.gone.add("mount")
    subprocess.run(["umount", "--lazy", str(target.home)], check=True)


# limits


def limited(number: int, value: Callable[[psutil.Process], int]) -> Fault:
    def fault(target: Target) -> Undo:
        rank = target.rank()
        before = rank.rlimit(number)
        rank.rlimit(number, (value(rank), before[1]))
        return lambda: rank.rlimit(number, before)

    return fault


def spare_descriptors(count: int) -> Callable[[psutil.Process], int]:
    """The limit under which exactly so many numbers are free: a process may have closed some in between."""

    def limit(rank: psutil.Process) -> int:
        taken = {int(path.name) for path in Path(f"/proc/{rank.pid}/fd").iterdir()}
        free = (number for number in itertools.count() if number not in taken)
        return next(itertools.islice(free, count, None))

    return limit


def a_little_more_memory(rank: psutil.Process) -> int:
    return int(rank.memory_info().vms) + (256 << 20)


# in the program


def done_by_the_ranks(deed: str) -> Fault:
    def fault(target: Target) -> None:
        target.deed = deed

    return fault


# the clock


def clock(seconds: int) -> Fault:
    def fault(target: Target) -> None:
        with (target.signs / "clock").open("r+b") as file:
            file.write(struct.pack("q", seconds))

    return fault


# the agent


def told(*messages: bytes, waits: bool = False) -> Fault:
    def fault(target: Target) -> None:
        with connected(target) as client:
            for message in messages:
                client.sendall(message)
            if waits:
                client.recv(1 << 16)

    return fault


def connected(target: Target, path: Path | None = None) -> socket.socket:
    path = path or target.random.choice(sorted(target.sockets.glob("*.sock")) or [target.sockets / "none"])
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    client.settimeout(5)
    try:
        client.connect(str(path))
    except OSError:
        client.close()
        raise
    return client


def crowd(target: Target) -> Undo:
    """More clients than the rank may have files open."""
    undo = limited(resource.RLIMIT_NOFILE, lambda rank: rank.num_fds() + 3)(target)
    clients = []
    try:
        clients = [connected(target) for _ in range(8)]
    except OSError:
        if not clients:
            raise
    return lambda: ([client.close() for client in clients], undo and undo())


def parked(lease: str) -> Fault:
    return told(_held("park", f'"lease_s": {lease}, '), waits=True)


def _held(verb: str, arguments: str = "") -> bytes:
    """A request of this process, for which a rank is held."""
    ticks = start_ticks(os.getpid())
    return f'{{"id": 1, "do": "{verb}", {arguments}"holder": {os.getpid()}, "holder_ticks": {ticks}}}\n'.encode()


def broken_while_parked(fault: Fault) -> Fault:
    """The files of all ranks are closed, as for a checkpoint, and a lease that ends opens them again. The fault lasts
    until then."""

    def broken(target: Target) -> None:
        with ExitStack() as stack:
            clients = [stack.enter_context(connected(target, path)) for path in sorted(target.sockets.glob("*.sock"))]
            for client in clients:
                asked(client, _held("park", '"lease_s": 0.3, '))
                asked(client, _held("close_log"))
            if undo := fault(target):
                stack.callback(undo)
            for client in clients:
                wait_for(lambda: b'"ok":true' not in asked(client, _held("close_log")), 20, "a park to end")  # noqa: B023

    return broken


def asked(client: socket.socket, request: bytes) -> bytes:
    """The answer."""
    client.sendall(request)
    answer = b""
    while not answer.endswith(b"\n"):
        if not (part := client.recv(1 << 16)):
            raise ConnectionError("the rank has closed the connection")
        answer += part
    return answer


# the supervisor, the server of the file system


def supervisor_killed(target: Target) -> None:
    if "supervisor" in target.gone:
        raise OSError("gone already")
    target.gone.add("supervisor")
    target.supervisor.kill()
    target.supervisor.wait(20)


def server_stopped(target: Target) -> Undo:
    assert target.server is not None
    target.server.stop()
    target.gone.add("answers")
    return target.server.process.resume


def server_killed(target: Target) -> None:
    assert target.server is not None
    if "server" in target.gone or "answers" not in target.gone:
        raise OSError("gone already, or not stopped so far: nothing can be stopped afterwards")
    target.gone.add("server")
    target.server.process.kill()
    target.server.process.wait(20)


def supervisor_only(target: Target) -> list[psutil.Process]:
    if "supervisor" in target.gone:
        raise OSError("gone already")
    return [target.supervisor]


SIGNAL_FAULTS: dict[str, Fault] = {
    **{f"{number.name} to a rank": to_a_rank(number) for number in SIGNALS},
    "a rank stopped for a while": stopped(lambda target: [target.rank()]),
    "all ranks stopped for a while": stopped(lambda target: target.ranks()),
    "the supervisor stopped for a while": stopped(supervisor_only),
}
FILE_FAULTS: dict[str, Fault] = {
    "the log cut to nothing": cut("ranks/*/events.*.seg", 0),
    "the log cut in the middle": cut("ranks/*/events.*.seg", 0.001),
    "the log cut a little": cut("ranks/*/events.*.seg", 0.9),
    "payloads cut": cut("ranks/*/payload.*.seg", 0.3),
    "garbage in the log": garbage("ranks/*/events.*.seg"),
    "garbage in payloads": garbage("ranks/*/payload.*.seg"),
    "garbage in supervisor.json": garbage("supervisor.json"),
    "garbage in rank.json": garbage("ranks/*/rank.json"),
    "the log replaced": replaced("ranks/*/events.*.seg"),
    "payloads replaced": replaced("ranks/*/payload.*.seg"),
    "the log removed": removed("ranks/*/events.*.seg"),
    "payloads removed": removed("ranks/*/payload.*.seg"),
    "config.json removed": removed("config.json"),
    "supervisor.json removed": removed("supervisor.json"),
    "the injected folder removed": removed("inject"),
    "a file in a rank's place": a_file_instead("ranks/[01]"),
    "the log a loop of links": a_loop_instead("ranks/*/events.*.seg"),
    "no rights for a rank's folder": without_rights("ranks/[01]"),
    "no rights for RUN": without_rights("."),
    "a rank's folder removed": removed("ranks/[01]"),
    "the sockets removed": without_sockets,
    "RUN removed": removed("."),
}
DISK_FAULTS: dict[str, Fault] = {
    "the disk full": full,
    "the disk read-only": mounted_again("ro", back="rw"),
    "the disk smaller": mounted_again("size=1m", back="size=32m"),
    "no more inodes": mounted_again("nr_inodes=1", back="nr_inodes=10000"),
    "the disk unmounted": unmounted,
}
LIMIT_FAULTS: dict[str, Fault] = {
    "hardly any descriptors left": limited(resource.RLIMIT_NOFILE, spare_descriptors(NEEDED_DESCRIPTORS)),
    "no file may grow": limited(resource.RLIMIT_FSIZE, lambda _: NEEDED_FILE_BYTES),
    "files of 4 KiB": limited(resource.RLIMIT_FSIZE, lambda _: 4096),
    "little memory": limited(resource.RLIMIT_AS, a_little_more_memory),
    "no core files": limited(resource.RLIMIT_CORE, lambda _: 0),
    "no locked memory": limited(resource.RLIMIT_MEMLOCK, lambda _: 0),
    "no pending signals": limited(resource.RLIMIT_SIGPENDING, lambda _: 0),
}
PROGRAM_FAULTS: dict[str, Fault] = {
    deed: done_by_the_ranks(deed)
    for deed in ("fork", "fork-torch", "subprocess", "thread", "close-ours", "chdir", "umask", "environment", "collect")
} | {"signals to default": done_by_the_ranks("signals-to-default")}
CLOCK_FAULTS: dict[str, Fault] = {
    "the clock an hour ahead": clock(3600),
    "the clock a day back": clock(-86400),
    "the clock in 1971": clock(-1_700_000_000),
    "the clock in the next century": clock(3_000_000_000),
    "the clock right again": clock(0),
}
AGENT_FAULTS: dict[str, Fault] = {
    "garbage to the agent": told(b"\xff\x00garbage\n"),
    "half a message": told(b'{"id": 1, "do": "sta'),
    "a long message": told(b"[" * (1 << 20)),
    "an unknown verb": told(b'{"id": 1, "do": "explode"}\n', waits=True),
    "a status": told(b'{"id": 1, "do": "status"}\n', waits=True),
    "parked, and left": parked("0.3"),
    "parked twice, and left": parked("0.2"),
    "more clients than descriptors": crowd,
    "the sockets removed": without_sockets,
}
PARK_FAULTS: dict[str, Fault] = {
    "parked, and no descriptor left": broken_while_parked(limited(resource.RLIMIT_NOFILE, spare_descriptors(0))),
    "parked, and no file may grow": broken_while_parked(LIMIT_FAULTS["no file may grow"]),
    "parked, and the trace removed": broken_while_parked(removed("memory/*/memory.*.seg")),
    "parked, and the log removed": broken_while_parked(removed("ranks/*/events.*.seg")),
    "parked, and RUN removed": broken_while_parked(removed(".")),
}
SUPERVISOR_FAULTS: dict[str, Fault] = {
    "the supervisor killed": supervisor_killed,
    **{name: SIGNAL_FAULTS[name] for name in ("SIGUSR1 to a rank", "all ranks stopped for a while")},
    **{name: FILE_FAULTS[name] for name in ("the log cut to nothing", "payloads removed", "config.json removed")},
    "fork": PROGRAM_FAULTS["fork"],
    "hardly any descriptors left": LIMIT_FAULTS["hardly any descriptors left"],
}
SERVER_FAULTS: dict[str, Fault] = {
    "the file server stopped": server_stopped,
    "the file server stopped again": server_stopped,
    "the file server killed": server_killed,
    "the log removed": FILE_FAULTS["the log removed"],
    "a rank stopped for a while": SIGNAL_FAULTS["a rank stopped for a while"],
}
NOTHING_AFTER = (
    "the sockets removed",
    "RUN removed",
    "parked, and RUN removed",
    "the disk unmounted",
)  # there is little left to break
