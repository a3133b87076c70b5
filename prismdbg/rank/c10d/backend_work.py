"""Works in Python around those of a backend.

C++ hangs where it waits for one whose Python half is collected, so they are kept alive until they were waited for.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from prismdbg.rank.c10d.call import Call
from prismdbg.rank.c10d.callback_error import error_of
from prismdbg.rank.c10d.completion import Completion
from prismdbg.rank.c10d.settled import complete_future, settled
from prismdbg.rank.c10d.unwaited_works import UnwaitedWorks
from prismdbg.rank.program.not_compiled import not_compiled

NO_TIMEOUT = timedelta(0)
_SUCCESS = 0  # of `c10d::WorkResult`
_alive = UnwaitedWorks()


def _result_of(inner: Any) -> int | None:
    """The result of a complete work; None where the backend does not tell. NCCL has noted a failure by then, a success
    perhaps not yet. `exception()` is not asked: it raises in torch 2.11, and newer versions print a warning."""
    try:
        result = inner.get_future_result()
        return int(result.value()) if result.done() else _SUCCESS
    except Exception:
        return None


def _failure_of(inner: Any) -> Exception | None:
    """Why a complete work has failed, as far as the backend says so without being waited for."""
    if _result_of(inner):
        return error_of("DistBackendError", "the backend says that it failed", dist)
    try:
        future = inner.get_future()
    except Exception:  # it has none
        return None
    try:
        if future.done():
            future.value()
    except Exception as error:
        return error
    return None


class BackendWork(dist.Work):  # type: ignore[misc]
    """The backend's own work. Its call ends where the program waits for it, takes its future, or sees that it is
    complete. As reading what was received waits for the device, a poll does not read it. Where it may have failed, a
    poll leaves it open: `wait()` says why."""

    _source = -1

    def __init__(self, inner: Any, completion: Completion | None, call: Call | None = None) -> None:
        super().__init__()
        self._inner = inner
        self._outputs: list[torch.Tensor] = []  # where there is no inner one
        self._completion = completion
        self._group = call.group if call is not None else None
        self._is_on_device = call is not None and call.device != "cpu"
        _alive.add(self, 1 if call is None else len(call.outputs))

    @not_compiled
    def wait(self, timeout: timedelta | None = None) -> bool:
        if self._inner is not None and self._completion is not None:
            try:
                self._inner.wait(NO_TIMEOUT if timeout is None else timeout)
            except Exception as error:
                source = self._completion.rescue()
                if source is None:
                    self._completion.fail(error)
                    raise
                self._source = source
                self._inner, self._outputs = None, self._completion.outputs
            else:
                self._end(self._completion)
        _alive.discard_waited(self)
        return True

    def _end(self, completion: Completion) -> None:
        completion.done()

    @not_compiled
    def synchronize(self) -> None:
        if self._order("synchronize"):
            _alive.discard_waited(self)

    @not_compiled
    def block_current_stream(self) -> None:
        if self._order("block_current_stream"):
            _alive.discard_waited(self)

    def _order(self, name: str) -> bool:
        """Puts the calling thread's stream behind the transfer. Without tensors the host may have to wait, too. Whether
        this ends the call."""
        if self._inner is not None and self._completion is not None:
            getattr(self._inner, name)()
            if not self._is_on_device and not self._inner.is_completed():
                return False
            self._end(self._completion)
        return True

    @not_compiled
    def is_completed(self) -> bool:
        if self._inner is None or self._completion is None:
            return True
        completed = bool(self._inner.is_completed())
        if completed and _result_of(self._inner) == _SUCCESS:
            self._see(self._completion)
            _alive.discard(self)
        return completed

    def _see(self, completion: Completion) -> None:
        completion.abandon()

    def release(self) -> bool:
        """Lets the tensors of a complete work go. False where it is not complete."""
        if self._inner is not None and self._completion is not None:
            if not self._inner.is_completed():
                return False
            self._end_dropped(self._completion)
        self._inner = self._completion = self._group = None
        return True

    def _end_dropped(self, completion: Completion) -> None:
        error = _failure_of(self._inner)
        if error is None:
            self._see(completion)
        elif completion.rescue() is None:
            completion.fail(error)

    @not_compiled
    def get_future(self) -> Any:
        if self._inner is None:  # torch's own would call this one again
            return complete_future(self._outputs)
        future = self._inner.get_future()
        _alive.discard(self)
        return future if self._completion is None else settled(future, self._completion, self._group)

    def is_success(self) -> bool:
        return True if self._inner is None else bool(self._inner.is_success())

    def exception(self) -> Any:
        return None if self._inner is None else self._inner.exception()

    def result(self) -> Any:
        return self._outputs if self._inner is None else self._inner.result()


class AnySourceWork(BackendWork):
    """A receive from any source: the only work whose sender the program asks for."""

    @classmethod
    def complete(cls, outputs: list[torch.Tensor], source: int) -> AnySourceWork:
        work = cls(None, None)
        work._outputs, work._source = outputs, source
        return work

    def _end(self, completion: Completion) -> None:
        self._source = self._inner._source_rank()
        completion.done(self._source)

    def _see(self, completion: Completion) -> None:
        if self._is_on_device:
            completion.abandon()
        else:
            self._end(completion)

    def _source_rank(self) -> int:
        """A poll may have left it to the backend."""
        return self._source if self._source >= 0 or self._inner is None else int(self._inner._source_rank())

    source_rank = _source_rank
