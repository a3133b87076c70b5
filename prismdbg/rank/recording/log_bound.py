"""Ends the recording of a rank whose log nobody shortens any more: its supervisor, which does, was killed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from prismdbg.model.sizes import size
from prismdbg.settings.process_identity import is_seen

if TYPE_CHECKING:
    from prismdbg.rank.recording.recorded_rank import Recording


def watched(recording: Recording) -> int:
    """The PID of the supervisor that shortens the log of this rank; 0 where none does, or it cannot be seen from here:
    it may live."""
    config = recording.config
    told = config.supervisor
    return int(told["pid"]) if config.log_bytes and told and is_seen(told) else 0


class LogBound:
    """The rank may still be captured on request, so it is recorded until the log has grown by what it may take. Then
    nothing is removed: what the log refers to, and what its reader needs, only the supervisor knows."""

    def __init__(self, recording: Recording, is_gone: Callable[[], bool]) -> None:
        """`is_gone`: the supervisor."""
        self._recording = recording
        self._is_gone = is_gone
        self._most_bytes = 0

    def look(self) -> None:
        """Opens no file: a checkpoint may be taken meanwhile."""
        if self._recording.lost or not self._is_gone():
            return
        written, may_take = int(self._recording.recorder.stats()["event_bytes"]), self._recording.config.log_bytes
        self._most_bytes = self._most_bytes or written + may_take
        if written >= self._most_bytes:
            self._recording.give_up(
                "`prismdbg record` has ended and no longer shortens the log, which has grown by "
                f"{size(may_take)} since (--log-bytes)",
                is_said=True,
            )
