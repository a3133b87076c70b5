"""What a killed capture left in RUN is removed by the next one; what is being written is not, wherever that is."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from waiting import wait_for

from prismdbg.jobs.capture.capture import LEFTOVER, remove_leftovers
from prismdbg.jobs.storage.run_folder import RunFolder

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
