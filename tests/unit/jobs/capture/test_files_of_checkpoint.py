"""Which of the files that a rank had open go into its capsule."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from prismdbg.capsule.files import SMALL_FILE_BYTES
from prismdbg.checkpoint.engine import OpenFile
from prismdbg.jobs.capture import assemble
from prismdbg.runtime.environment import of_files


@pytest.mark.parametrize(("now_bytes", "is_written", "taken"), [(20, True, True), (SMALL_FILE_BYTES + 1, True, False),
                                                                (SMALL_FILE_BYTES + 1, False, True)])  # fmt: skip
def test_a_log_that_has_become_large_stays_outside(
    now_bytes: int, is_written: bool, taken: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "job.log")
    Path(path).touch()
    os.truncate(path, now_bytes)
    file = OpenFile(path=path, size_bytes=10, mode=0o600, is_mapped=False, is_written=is_written)
    engine = SimpleNamespace(read=lambda images: SimpleNamespace(files=[file]))
    monkeypatch.setattr(assemble.choice, "find", lambda: engine)
    assert assemble._files_of_image(tmp_path, of_files([])) == ([path] if taken else [])
