"""Where the agents of one job listen: a folder with a short path, for a Unix socket's path ends at 108 bytes."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import time
from pathlib import Path

from prismdbg.errors import FacilityError, RankLost, UsageError
from prismdbg.workflows.rank_lock import alone_with_rank

KEPT_S = 3600.0


def make_socket_dir() -> Path:
    """A new one. `record` removes it at the job's end; where it was killed, a later `record` does."""
    home = Path("/run") if os.access("/run", os.W_OK) else Path("/tmp")
    base = home / f"prismdbg-{os.getuid()}"
    base.mkdir(mode=0o700, exist_ok=True)
    if base.is_symlink() or base.stat().st_uid != os.getuid():
        raise FacilityError(f"{base} belongs to somebody else", hint="have it removed, the ranks' agents need it")
    remove_dead(base)
    folder = base / secrets.token_hex(4)
    folder.mkdir(mode=0o700)
    return folder


def remove_dead(base: Path) -> None:
    """Folders in which no agent answers and for a long time none has begun to."""
    for folder in base.iterdir():
        with contextlib.suppress(OSError):
            is_old = time.time() - folder.stat().st_mtime > KEPT_S
            if is_old and not any(map(_answers, folder.glob("*.sock"))):
                shutil.rmtree(folder)


def _answers(path: Path) -> bool:
    """A rank that is being captured does, though nobody may ask it now."""
    try:
        with alone_with_rank(path, bound_s=0):
            return _accepts(path)
    except UsageError:
        return True
    except RankLost:
        return False


def _accepts(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(1.0)
        try:
            client.connect(str(path))
        except OSError:
            return False
    return True
