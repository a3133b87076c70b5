"""Where the agents of one job listen: a folder with a short path, for a Unix socket's path ends at 108 bytes.

The folder's name says which process made it: its PID and start, as PID namespace and boot count them.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import time
from pathlib import Path

from prismdbg.errors import FacilityError, RankLost, UsageError
from prismdbg.jobs.capture.rank_lock import alone_with_rank
from prismdbg.jobs.storage.own_folder import own_folder, own_folders
from prismdbg.jobs.storage.ranks_alive import process_with
from prismdbg.settings.process_stat import start_ticks

HOMES = (Path("/run"), Path("/tmp"))  # the first one that its user may write to holds the folders
KEPT_S = 3600.0  # where it cannot be known whether the maker lives
_UNKNOWN = "unknown"
_CONFIG = "config"
_LEFT = (_CONFIG, "*.lock", "*.opened*", "*.rank", "*.tmp")  # mostly by ranks, beside their sockets


def make_socket_dir() -> Path:
    """A new one. Its maker removes it at the job's end; where that was killed, the next command does."""
    home = next((home for home in HOMES if os.access(home, os.W_OK)), HOMES[-1])
    base = own_folder(home, _name(), 0o700)
    base.mkdir(mode=0o700, exist_ok=True)
    if base.is_symlink() or base.stat().st_uid != os.getuid():
        raise FacilityError(
            f"{base} belongs to another user", hint="ask its owner to remove it: the ranks' agents need it"
        )
    remove_dead(base)
    folder = base / f"{_here()}-{os.getpid()}-{start_ticks(os.getpid())}-{secrets.token_hex(4)}"
    folder.mkdir(mode=0o700)
    return folder


def keep_for(config: Path, folder: Path) -> None:
    """From now on `folder` outlives its maker while a process runs that was started with this configuration."""
    with contextlib.suppress(OSError):
        (folder / _CONFIG).write_text(str(config))


def remove_dead_sockets() -> None:
    """What supervisors of this user that were killed have left. Whatever cannot be removed stays."""
    for base in (base for home in HOMES for base in own_folders(home, _name())):
        with contextlib.suppress(OSError):
            remove_dead(base)


def _name() -> str:
    return f"prismdbg-{os.getuid()}"


def remove_dead(base: Path) -> None:
    """Folders in which no agent answers, whose job has ended, and whose maker is gone, or made them long ago.

    Ranks outlive a supervisor that is killed, and one that begins afterwards makes its folder again: only what was
    seen to be dead goes.
    """
    for folder in base.iterdir():
        with contextlib.suppress(OSError):
            sockets = list(folder.glob("*.sock"))
            if _is_abandoned(folder) and not any(map(answers, sockets)) and not _has_job(folder):
                for path in (*sockets, *(file for ours in _LEFT for file in folder.glob(ours))):
                    path.unlink(missing_ok=True)
                folder.rmdir()


def _is_abandoned(folder: Path) -> bool:
    match folder.name.split("-"):
        case [here, pid, ticks, _] if here == _here() != _UNKNOWN and pid.isdecimal():
            return str(start_ticks(int(pid))) != ticks
    return time.time() - folder.stat().st_mtime > KEPT_S


def _has_job(folder: Path) -> bool:
    """Whether a process of it runs: it may not have become a rank yet."""
    try:
        config = (folder / _CONFIG).read_text()
    except OSError:
        return False
    return process_with(Path(config)) is not None


def _here() -> str:
    """Where a PID means the same process: this boot of this machine, this PID namespace."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
        return f"{boot}.{Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:  # a sandbox that shows neither
        return _UNKNOWN


def answers(path: Path) -> bool:
    """Whether an agent listens there. A rank that is being captured does, though nobody may ask it now."""
    try:
        with alone_with_rank(path, bound_s=0):
            return _listens(path)
    except UsageError:
        return True
    except RankLost:
        return False


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(1.0)
        try:
            client.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:  # it is there, and has more to do than it can
            return True
    return True
