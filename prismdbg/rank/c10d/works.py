"""Works that the Python kernels hand to the program: recorded ones around the backend's, finished ones in a replay.

A Python subclass of Work whose Python half is collected hangs in c10d::Work::wait, so works are made from futures
or callbacks wherever the backend allows, and the subclasses are kept alive until they were waited for.
"""

from __future__ import annotations

import sys
import threading
import time
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable
from datetime import timedelta
from itertools import count
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d
from torch._C._distributed_c10d import (  # type: ignore[attr-defined]
    PythonCallbackWork,
    _create_work_from_future,
)

from prismdbg.model.collective import Failure
from prismdbg.rank.c10d import together
from prismdbg.rank.c10d.call import Call, is_capturing
from prismdbg.rank.c10d.callback_error import error_of, meant
from prismdbg.rank.c10d.caller import PYTHON_CALLERS, calling_file
from prismdbg.rank.program.not_compiled import not_compiled

_NO_TIMEOUT = timedelta(0)
_SUCCESS = 0  # of `c10d::WorkResult`
_bare_wait = dist.Work.__dict__["wait"]


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


class GroupsInUse:
    """Groups whose threads still hold a callback of ours: they let go of it, under Python's lock, after the program was
    told that the collective is complete. A gloo group that is freed waits for its threads without giving up that lock
    (torch 2.13), so neither would go on. A group is let go here in a thread of the program's, `AFTER_S` after its
    callback was: the group's thread then frees the rest of the work, for which it takes the lock once more."""

    AFTER_S = 1.0

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: dict[int, tuple[Any, object]] = {}
        self._gone: deque[tuple[float, int]] = deque()
        self._numbers = count()

    def keep(self, group: Any, callback: Callable[..., Any]) -> None:
        """Keeps `group` while `callback` lives. Threads of the program may call this at once."""
        self._let_go()
        number = next(self._numbers)
        self._kept[number] = group, weakref.ref(callback, lambda _: self._gone.append((self._clock(), number)))

    def _let_go(self) -> None:
        until = self._clock() - self.AFTER_S
        while True:
            try:
                at_s, number = self._gone.popleft()
            except IndexError:  # also where another thread took the last one
                return
            if at_s > until:
                self._gone.appendleft((at_s, number))
                return
            self._kept.pop(number, None)


_groups_in_use = GroupsInUse()


def wrap(call: Call, result: Any, completion: Completion) -> Any:
    """What the operator returned, with a Work that reports its completion."""
    if call.spec.returns == "nothing":
        completion.done()
        return result
    if call.device != "cpu" and together.join(completion):
        return result
    if call.is_captured:  # a later look at its Work would ask an event that was recorded in the capture, which raises
        completion.abandon()
        return result
    inner = call.work_of(result)
    if inner is None:  # NCCL's: the calling thread's stream is behind the call
        if completion.is_async:
            completion.abandon()
        else:
            completion.done()
        return result
    if call.spec.is_from_any or call.ends_at_wait:
        kind = AnySourceWork if call.spec.is_from_any else BackendWork
        return call.result(kind(inner, completion, call).boxed())
    try:
        future = inner.get_future()
    except RuntimeError:  # gloo's receives and reduce-scatters have none
        return call.result(_callback_work(inner, completion))
    return call.result(_create_work_from_future(_settled(future, completion, call.group)).boxed())


def _callback_work(inner: Any, completion: Completion) -> Any:
    @not_compiled
    def wait(timeout: timedelta) -> bool:
        try:
            inner.wait(timeout)
        except Exception as error:
            if completion.rescue() is not None:
                return True
            completion.fail(error)
            raise
        completion.done()
        return True

    return PythonCallbackWork(wait).boxed()


def _settled(future: Any, completion: Completion, group: Any) -> Any:
    """A future that follows the backend's, and is complete when the recorder was told."""
    outputs = completion.outputs

    @not_compiled
    def settle(done: Any) -> Any:
        try:
            value = done.value()
        except Exception as error:
            if completion.rescue() is not None:
                return outputs
            completion.fail(error)
            raise
        completion.done()
        return value

    _groups_in_use.keep(group, settle)
    return future.then(settle)


class UnwaitedWorks:
    """Keeps the Python halves of works alive until they are waited for. A program may drop a work that it never waits
    for: once the backend has completed it, each further call gives its tensors free. Whether C++ still holds a work is
    not known, so only those that torch's Python functions asked for are ever given up, and of these none that torch's
    registry holds."""

    MANY = 64

    def __init__(self) -> None:
        self._kept: set[Any] = set()
        self._open: OrderedDict[Any, None] = OrderedDict()  # who alone holds one of these has dropped it
        # On its way to the program, in another thread, C++ alone holds a work.
        self._released: deque[Any] = deque(maxlen=self.MANY)

    def add(self, work: Any) -> None:
        if not calling_file().endswith(PYTHON_CALLERS) or _is_registering():
            self._kept.add(work)
            return
        if not is_capturing():
            self._release_complete()
        self._open[work] = None

    def discard(self, work: Any) -> None:
        self._kept.discard(work)
        self._open.pop(work, None)

    def discard_seen(self, work: Any) -> None:
        """The program knows that it is complete; C++ may still wait for it."""
        self._open.pop(work, None)

    def _release_complete(self) -> None:
        """From the oldest on, up to the second one that stays; these are looked at again after all others."""
        stay: list[Any] = []
        while len(stay) < 2:
            try:
                work, references = _oldest(self._open)
            except KeyError:  # none is left
                break
            if references <= _OWN_REFERENCES and _was_released(work):
                self._released.append(work)
            else:
                stay.append(work)
        self._open.update(dict.fromkeys(stay))


def _is_registering() -> bool:
    """Whether torch keeps each work by its tensors, for `wait_tensor` to wait for it later."""
    return bool(getattr(c10d, "_allow_inflight_collective_as_graph_input", bool)())


def _oldest(works: OrderedDict[Any, None]) -> tuple[Any, int]:
    """The oldest work, taken out, and how many references it has now."""
    work, _ = works.popitem(last=False)
    return work, sys.getrefcount(work)


def _was_released(work: Any) -> bool:
    """True also where the backend cannot tell whether it is complete: it is not asked again."""
    try:
        return bool(work.release())
    except Exception:
        return True


_OWN_REFERENCES = _oldest(OrderedDict.fromkeys([object()]))[1]  # Python 3.14 counts fewer
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
        _alive.add(self)

    @not_compiled
    def wait(self, timeout: timedelta | None = None) -> bool:
        if self._inner is not None and self._completion is not None:
            try:
                self._inner.wait(_NO_TIMEOUT if timeout is None else timeout)
            except Exception as error:
                source = self._completion.rescue()
                if source is None:
                    self._completion.fail(error)
                    raise
                self._source = source
                self._inner, self._outputs = None, self._completion.outputs
            else:
                self._end(self._completion)
        _alive.discard(self)
        return True

    def _end(self, completion: Completion) -> None:
        completion.done()

    def synchronize(self) -> None:
        self._order("synchronize")

    def block_current_stream(self) -> None:
        self._order("block_current_stream")

    @not_compiled
    def _order(self, name: str) -> None:
        """Puts the calling thread's stream behind the transfer. Without tensors the host may have to wait, too."""
        if self._inner is not None and self._completion is not None:
            getattr(self._inner, name)()
            if self._is_on_device or self._inner.is_completed():
                self._end(self._completion)
                _alive.discard(self)

    @not_compiled
    def is_completed(self) -> bool:
        if self._inner is None or self._completion is None:
            return True
        completed = bool(self._inner.is_completed())
        if completed and _result_of(self._inner) == _SUCCESS:
            self._see(self._completion)
            _alive.discard_seen(self)
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
            return _complete_future(self._outputs)
        future = self._inner.get_future()
        _alive.discard(self)
        return future if self._completion is None else _settled(future, self._completion, self._group)

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


def amend_wait() -> None:
    """A work made from a future refuses `wait(timeout)` and is silent of a failure, unlike the backends' own works.

    Only for who waits in Python: C++ that calls `wait` of such a work learns of a failure at its next collective.
    """

    @not_compiled
    def wait(self: Any, timeout: timedelta = _NO_TIMEOUT) -> bool:
        try:
            done = bool(_bare_wait(self, timeout))
        except RuntimeError as error:
            if timeout <= _NO_TIMEOUT or not str(error).startswith("FutureWrappingWork::wait()"):
                raise
            settled = threading.Event()
            self.get_future().add_done_callback(lambda _: settled.set())
            if not settled.wait(timeout.total_seconds()):
                raise RuntimeError(f"Timed out waiting {timeout.total_seconds():g} s for a collective") from None
            done = bool(_bare_wait(self))
        _raise_failure(self)
        return done

    dist.Work.wait = wait


def _raise_failure(work: Any) -> None:
    try:
        future = work.get_future()
    except RuntimeError:  # a work without one has raised already
        return
    if not future.done():
        return
    try:
        future.value()
    except Exception as error:
        kind, text = meant(type(error).__name__, str(error))
        if text == str(error):
            raise
        raise error_of(kind, text, dist) from None


def failed(call: Call, failure: Failure) -> Any:
    """A boxed Work that raises what was raised when it was recorded; raises it here where the call itself did."""
    error = error_of(failure.type, failure.text, dist)
    if failure.at_issue or call.spec.returns == "nothing":
        raise error

    def fail(_: Any) -> None:
        raise error

    future: Any = torch.futures.Future()
    future.set_result(None)
    return _create_work_from_future(future.then(fail)).boxed()


def finished(call: Call, source: int = -1, failure: Failure | None = None) -> Any:
    """A boxed Work that is complete."""
    if failure is not None:
        return failed(call, failure)
    if call.spec.is_from_any:
        return AnySourceWork.complete(call.outputs, source).boxed()
    return _create_work_from_future(_complete_future(call.outputs)).boxed()


def _complete_future(outputs: list[torch.Tensor]) -> Any:
    future: Any = torch.futures.Future()
    future.set_result(outputs)
    return future
