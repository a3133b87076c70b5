"""What a killed capture left in RUN is removed by the next one; what is being written is not, wherever that is."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from waiting import wait_for

from prismdbg.jobs.capture.capture import LEFTOVER, remove_leftovers
from prismdbg.jobs.storage.run_folder import RunFolder, write_json

NO_SUCH_PID = 2**22 + 1
WRITES = """
import sys
from pathlib import Path
from prismdbg.capsule.partial import partial_folder
with partial_folder(Path(sys.argv[1]) / "images") as images, \\
        partial_folder(Path(sys.argv[1]) / "checkpoints" / "0" / "checkpoint") as checkpoint:
    (images / "pages-1.img").write_text("made")
    print(images, checkpoint, flush=True)
    sys.stdin.read()
"""
REMOVES = """
import sys
from pathlib import Path
from prismdbg.jobs.capture.capture import remove_leftovers
from prismdbg.jobs.storage.run_folder import RunFolder
remove_leftovers(RunFolder(Path(sys.argv[1])))
"""
ELSEWHERE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
needs_namespace = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("unshare") is None, reason="a PID namespace needs root and unshare"
)
WHERE = pytest.mark.parametrize(
    "where", [(), pytest.param(ELSEWHERE, marks=needs_namespace)], ids=["here", "namespace"]
)


@contextmanager
def writing(run: Path, where: Sequence[str]) -> Iterator[tuple[subprocess.Popen[str], list[Path]]]:
    """A process that writes, and what it writes to."""
    line = [*where, sys.executable, "-c", WRITES, str(run)]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process, [Path(word) for word in process.stdout.readline().split()]
        finally:
            process.kill()


@WHERE
def test_what_is_being_written_stays(tmp_path: Path, where: Sequence[str]) -> None:
    with writing(tmp_path, where) as (_, folders):
        remove_leftovers(RunFolder(tmp_path))
        assert len(folders) == 2 and all(folder.is_dir() for folder in folders)
        assert folders[0].name.startswith(LEFTOVER) and (folders[0] / "pages-1.img").exists()


@WHERE
def test_it_stays_for_who_looks_from_elsewhere(tmp_path: Path, where: Sequence[str]) -> None:
    with writing(tmp_path, ()) as (_, folders):
        subprocess.run([*where, sys.executable, "-c", REMOVES, str(tmp_path)], check=True, timeout=60)
        assert len(folders) == 2 and all(folder.is_dir() for folder in folders)


@WHERE
def test_what_a_killed_writer_left_goes(tmp_path: Path, where: Sequence[str]) -> None:
    with writing(tmp_path, where) as (process, folders):
        process.send_signal(signal.SIGKILL)
        process.wait(30)
        assert len(folders) == 2 and all(folder.is_dir() for folder in folders)

        def are_gone() -> bool:  # the process inside of a namespace ends a little later
            remove_leftovers(RunFolder(tmp_path))
            return not any(folder.exists() for folder in folders)

        wait_for(are_gone, 30, "the folders of a killed process to go")


@pytest.mark.parametrize("is_alive", [True, False])
def test_what_a_rank_was_about_to_write_over_goes_with_it(tmp_path: Path, is_alive: bool) -> None:
    run = RunFolder(tmp_path)
    folder = run.ranks / "0"
    folder.mkdir(parents=True)
    write_json(folder / "rank.json", {"rank": 0, "pid": os.getpid() if is_alive else NO_SUCH_PID, "environment": {}})
    received, spares = folder / "payload.00007.seg", [folder / f"payload.{number}.spare" for number in (3, 4)]
    for path in (received, *spares):
        path.write_bytes(b"x")
    remove_leftovers(run)
    assert received.exists() and [path.exists() for path in spares] == [is_alive] * 2


def test_halves_of_reports_go_once_they_are_old(tmp_path: Path) -> None:
    """Nothing tells whether their writer lives."""
    run, old_ns = RunFolder(tmp_path), time.time_ns() - 25 * 3600 * 10**9
    (run.nodes / "n1").mkdir(parents=True)
    names = (".supervisor.json.new.a1_2b3c4", "nodes/.now.a1_2b3c4", "nodes/n1/.beat.json.new.a1_2b3c4")
    halves = [run.path / name for name in names]
    kept = [run.supervisor_json, run.path / "supervisor.json.20260101", run.path / ".run.json.new.a1_2b3c4"]
    for path in (*halves, *kept):
        path.touch()
        if path != kept[-1]:
            os.utime(path, ns=(old_ns, old_ns))
    remove_leftovers(run)
    assert not [path for path in halves if path.exists()] and all(path.exists() for path in kept)


def test_what_is_called_so_is_what_a_killed_writer_leaves(tmp_path: Path) -> None:
    killed = "import json, os; json.dumps = lambda *_, **__: os._exit(1)"
    writes = "from prismdbg.jobs.storage.run_folder import write_json; from pathlib import Path"
    line = f"{killed}\n{writes}\nwrite_json(Path({str(tmp_path)!r}) / 'supervisor.json', {{}})"
    assert subprocess.run([sys.executable, "-c", line], timeout=60, check=False).returncode == 1
    (left,) = tmp_path.iterdir()
    os.utime(left, (0, 0))
    remove_leftovers(RunFolder(tmp_path))
    assert not left.exists()
