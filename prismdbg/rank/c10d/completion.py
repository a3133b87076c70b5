"""Tells the recorder when a collective is complete."""

from __future__ import annotations

import threading
from typing import Protocol

import torch

from prismdbg.model.collective import Failure
from prismdbg.rank.c10d.call import Call


class Recorder(Protocol):
    """Whom a completion tells."""

    def complete(
        self, call: Call, record_id: int, source: int, failure: Failure | None, at_ns: int | None = None
    ) -> None: ...

    def rescue(self, call: Call, record_id: int) -> bool | int: ...

    def note(self, kind: str, text: str) -> None: ...


class Completion:
    """Tells the recorder once that a collective is complete, before the program can see it."""

    def __init__(self, recorder: Recorder, call: Call, record_id: int) -> None:
        self._recorder = recorder
        self._call: Call | None = call
        self.record_id = record_id
        self._lock = threading.RLock()  # a signal's handler may wait for the same work
        self._is_telling = False

    def done(self, source: int = -1, at_ns: int | None = None) -> None:
        """`at_ns`: None for now."""
        self._finish(source, None, at_ns)

    def fail(self, error: Exception, at_issue: bool = False) -> None:
        self._finish(-1, Failure(type(error).__name__, str(error), at_issue))

    def abandon(self) -> None:
        """Nobody says when it is complete: nothing of what it receives is kept."""
        if self._call is not None:
            self._call.outputs = []
        self.done()

    def keep_values(self, are_wanted: bool) -> None:
        """It is told later that it is complete, when the program may have overwritten what was received: copies, on
        its device, or nothing."""
        with self._lock:  # another thread may tell it meanwhile
            if self._call is not None:
                self._call.outputs = [tensor.detach().clone() for tensor in self._call.outputs] if are_wanted else []

    @property
    def outputs(self) -> list[torch.Tensor]:
        return self._call.outputs if self._call is not None else []

    @property
    def is_async(self) -> bool:
        """Whether the calling thread's stream is not behind it when it returns."""
        return self._call is not None and (self._call.is_async or self._call.spec.is_p2p)

    def note(self, kind: str, text: str) -> None:
        self._recorder.note(kind, text)

    def rescue(self) -> int | None:
        """The sender of what was filled in the backend's place, -1 where that is not said; None where nobody could."""
        answer = self._call is not None and self._recorder.rescue(self._call, self.record_id)
        if isinstance(answer, bool):
            return -1 if answer else None
        return answer

    def _finish(self, source: int, failure: Failure | None, at_ns: int | None = None) -> None:
        with self._lock:
            if self._call is None or self._is_telling:
                return
            self._is_telling = True
            try:
                self._recorder.complete(self._call, self.record_id, source, failure, at_ns)
                self._call = None
            finally:
                self._is_telling = False
