"""What a screen says where something that was chosen on it cannot be opened."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from prismdbg_tui.refusals import why_refused

from prismdbg.errors import RankLost


def refused_with(error: BaseException) -> str:
    def opens() -> None:
        raise error

    return why_refused(opens)


def test_the_reason_and_what_to_do(tmp_path: Path) -> None:
    assert refused_with(RankLost("rank 3 has ended", hint="prismdbg why")) == "rank 3 has ended\ntry: prismdbg why"
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(tmp_path))
    assert refused_with(full) == f"{tmp_path}: No space left on device\ntry: free some space there"
    assert why_refused(tmp_path.stat) == ""


@pytest.mark.parametrize(
    "error",
    [
        TimeoutError("timed out"),
        ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"),
        FileNotFoundError(errno.ENOENT, "No such file or directory", "/job/run"),
        PermissionError(errno.EACCES, "Permission denied"),
    ],
)
def test_what_nobody_has_foreseen_is_raised(error: OSError) -> None:
    with pytest.raises(type(error)):
        refused_with(error)
