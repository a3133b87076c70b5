"""What a replay may take of the machine, in every place it can run in: bombs, kept small by small limits."""

from __future__ import annotations

import os
import subprocess
import sysconfig
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from counting import ask, program_spec, short_folder
from runtime_places import Case

from prismdbg.errors import WaitTimeout
from prismdbg.model.deadline import Deadline
from prismdbg.runtime import starter_process
from prismdbg.runtime.limits import LimitReached, Limits
from prismdbg.runtime.local_runtime import LocalRuntime
from prismdbg.runtime.rank_folder import RankFolder
from prismdbg.runtime.runtime import RunningRank
from prismdbg.runtime.spec import RANK, ReplaySpec

MIB = 1 << 20
SMALL = Limits(memory_bytes=256 * MIB, processes=64, shared_bytes=16 * MIB, disk_bytes=64 * MIB)
FORKS = """
import os, time
found = 0
while found < 500:
    try:
        child = os.fork()
    except OSError:
        break
    if not child:
        os.closerange(3, 100)  # nobody waits for the test's connection
        time.sleep(60)
        os._exit(0)
    found += 1
"""
TAKES_MEMORY = "held = bytearray()\nwhile True:\n    held += bytes(1 << 24)\n"
FILLS = """
found = "filled"
try:
    with open(path, "wb") as file:
        for _ in range(256):
            file.write(bytes(1 << 20))
except OSError as error:
    found = error.strerror
"""
MANY_FILES = """
import os
for number in range(64):
    with open(f"{folder}/{number}", "wb") as file:
        file.write(bytes(4 << 20))
"""
IN_A_CLOSED_FOLDER = """
import os
inner = f"{folder}/closed"
os.mkdir(inner)
files = [open(f"{inner}/{number}", "wb") for number in range(64)]
os.chmod(inner, 0)
for file in files:
    file.write(bytes(4 << 20))
    file.flush()
"""
HIDDEN_FILES = """
import os, sys
sys.held = held = []
for number in range(3):
    held.append(open(f"{folder}/{number}", "wb"))
    os.unlink(f"{folder}/{number}")
    for _ in range(48):
        held[-1].write(bytes(1 << 20))
    held[-1].flush()
"""


@pytest.fixture
def small(case: Case) -> Iterator[tuple[Case, ReplaySpec, Path, RunningRank]]:
    planned, socket = case.plan()
    spec = replace(planned, limits=SMALL)
    with RankFolder(spec.session / RANK):
        rank = case.runtime.start(spec)
        try:
            yield case, spec, socket, rank
        finally:
            pid = rank.rank_pid()
            rank.kill()
            assert pid is None or not Path(f"/proc/{pid}/status").exists()
            assert not list(Path("/sys/fs/cgroup").glob(f"**/prismdbg-{os.getpid()}-{spec.session.name}"))


Small = tuple[Case, ReplaySpec, Path, RunningRank]


def _does(socket: Path, code: str, **names: object) -> Any:
    head = "".join(f"{name} = {value!r}\n" for name, value in names.items())
    return ask(socket, f"run {(head + code).encode().hex()}").get("found")


def _attempts(socket: Path, code: str, **names: object) -> None:
    """What it may not survive."""
    try:
        _does(socket, code, **names)
    except (OSError, ValueError):
        return


def test_it_has_only_so_many_processes(small: Small) -> None:
    _, _, socket, rank = small
    forked = _does(socket, FORKS)
    assert 10 < forked < SMALL.processes
    ask(socket, "end 3")
    with pytest.raises(LimitReached, match="limit of processes: 64") as reached:
        rank.wait(30)
    assert "--limit-pids" in reached.value.hint and reached.value.exit_code == 4


def test_one_that_takes_more_memory_is_ended(small: Small) -> None:
    _, _, socket, rank = small
    _attempts(socket, TAKES_MEMORY)
    with pytest.raises(LimitReached, match="limit of memory: 256MiB") as reached:
        rank.wait(60)
    assert "--limit-memory" in reached.value.hint


def test_shared_memory_ends_where_it_is_full(small: Small) -> None:
    case, _, socket, rank = small
    if case.runtime.name == "plain":
        pytest.skip("a plain process has the machine's own /dev/shm, which counts as its memory")
    assert _does(socket, FILLS, path="/dev/shm/full") == "No space left on device"
    ask(socket, "end 3")
    with pytest.raises(LimitReached, match=r"shared memory.*16MiB") as reached:
        rank.wait(30)
    assert "--limit-shm" in reached.value.hint


def test_without_a_group_full_installations_are_the_limit_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    if reason := LocalRuntime().available():
        pytest.skip(str(reason))
    monkeypatch.setattr(starter_process, "make_group", lambda *_: None)
    with short_folder() as folder:
        planned, socket = program_spec(folder)
        spec = replace(planned, limits=replace(SMALL, processes=4096))  # it counts all of this user
        with RankFolder(spec.session / RANK):
            rank = LocalRuntime().start(spec)
            try:
                full = str(Path(sysconfig.get_path("stdlib"), "full"))
                assert _does(socket, FILLS, path=full) == "No space left on device"
                ask(socket, "end 3")
                with pytest.raises(LimitReached, match="limit of memory: 256MiB"):
                    rank.wait(30)
            finally:
                rank.kill()


def test_no_file_grows_beyond_the_disk_limit(small: Small) -> None:
    """Neither its output, which is a file like others."""
    _, spec, socket, _ = small
    assert _does(socket, FILLS, path=str(spec.session / RANK / "large")) == "File too large"
    assert (spec.session / RANK / "large").stat().st_size <= SMALL.disk_bytes


@pytest.mark.parametrize("code", [MANY_FILES, IN_A_CLOSED_FOLDER], ids=["open", "closed"])
def test_its_folder_holds_only_so_much(small: Small, code: str) -> None:
    _, spec, socket, rank = small
    _attempts(socket, code, folder=str(spec.session / RANK))
    with pytest.raises(LimitReached, match="limit of disk: 64MiB") as reached:
        rank.wait(30)
    assert "--limit-disk" in reached.value.hint


def test_what_it_has_removed_and_still_holds_fills_no_disk() -> None:
    """In a file system as small as its limits; on a large one it is as far from being full."""
    if os.geteuid() != 0 or (reason := LocalRuntime().available()):
        pytest.skip("it mounts a file system" if os.geteuid() != 0 else str(reason))
    with short_folder() as disk:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={160 * MIB}", "prismdbg-test", disk], check=True)
        try:
            (disk / "s").mkdir(mode=0o700)
            planned, socket = program_spec(disk / "s")
            spec = replace(planned, limits=replace(SMALL, memory_bytes=512 * MIB))
            with RankFolder(spec.session / RANK):
                rank = LocalRuntime().start(spec)
                try:
                    _attempts(socket, HIDDEN_FILES, folder=str(spec.session / RANK))
                    with pytest.raises(LimitReached, match="limit of disk: 64MiB"):
                        rank.wait(30)
                finally:
                    rank.kill()
        finally:
            subprocess.run(["umount", "-l", disk], check=True)


def test_one_that_ends_well_met_no_limit(small: Small) -> None:
    _, _, socket, rank = small
    _does(socket, FORKS)
    ask(socket, "end 0")
    assert rank.wait(30) == 0


@pytest.mark.parametrize("case", ["local-start", "docker-start"], indirect=True)
def test_a_place_with_endless_folders_is_given_up_at_the_deadline(case: Case) -> None:
    """Of a capsule, as many as it may name: they take a minute."""
    case.start()[0].kill()  # the container image is there
    spec, _ = case.plan()
    folders = (*spec.folders, *(f"/data/{number}" for number in range(190_000)))
    began = time.monotonic()
    with pytest.raises(WaitTimeout, match=r"within 2 s: .* was not complete"):
        case.runtime.start(replace(spec, folders=folders, deadline=Deadline.after(2)))
    assert time.monotonic() - began < 25
