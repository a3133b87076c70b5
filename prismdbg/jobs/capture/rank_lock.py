"""Who speaks to a live rank does so alone.

A connection that somebody else opens while the rank is being dumped would be in its image, and no engine takes those.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from prismdbg.errors import RankLost, UsageError
from prismdbg.protocol.client import NotWaitedFor

BOUND_S = 10.0  # a dump takes about a second; a park longer
POLL_S = 0.01


@contextmanager
def alone_with_rank(
    socket: Path, *, bound_s: float = BOUND_S, given_up: Callable[[], bool] | None = None
) -> Iterator[None]:
    """Holds the lock beside the agent's `socket`; a process that is killed lets go of it.

    `UsageError` where another one has it for that long, `NotWaitedFor` where it is `given_up` meanwhile; `RankLost`
    where the socket's folder is gone.
    """
    try:
        descriptor = os.open(socket.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise RankLost(
            f"no agent answers at {socket}: {error.strerror}", hint="run `prismdbg status RUN`: the process has ended"
        ) from error
    try:
        _give_to_owner(descriptor, socket.parent)
        _take(descriptor, time.monotonic() + bound_s, given_up)
        yield
    finally:
        os.close(descriptor)


def _take(descriptor: int, deadline: float, given_up: Callable[[], bool] | None) -> None:
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                hint = "try again when the other capture of this rank is done"
                raise UsageError("another command is capturing this rank", hint=hint) from None
            if given_up is not None and given_up():
                raise NotWaitedFor("the wait for another capture of the rank was cancelled") from None
            time.sleep(POLL_S)
        else:
            return


def _give_to_owner(descriptor: int, folder: Path) -> None:
    """Root may capture anybody's rank; its owner may, too, after that."""
    owner = folder.stat()
    if os.geteuid() == 0:
        with contextlib.suppress(OSError):  # a file system that knows no owners
            os.fchown(descriptor, owner.st_uid, owner.st_gid)
