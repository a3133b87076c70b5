"""Works that the Python kernels hand to the program: recorded ones around the backend's, finished ones in a replay.

A Python subclass of Work whose Python half is collected hangs in c10d::Work::wait, so works are made from futures
or callbacks wherever the backend allows.
"""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import (  # type: ignore[attr-defined]
    PythonCallbackWork,
    _create_work_from_future,
)

from prismdbg.model.collective import Failure
from prismdbg.rank.c10d import together
from prismdbg.rank.c10d.backend_work import NO_TIMEOUT, AnySourceWork, BackendWork
from prismdbg.rank.c10d.call import Call
from prismdbg.rank.c10d.callback_error import error_of, meant
from prismdbg.rank.c10d.caller import FUNCTIONAL_CALLERS, calling_file
from prismdbg.rank.c10d.completion import Completion
from prismdbg.rank.c10d.settled import complete_future, settled
from prismdbg.rank.c10d.unwaited_works import leave_registry
from prismdbg.rank.program.not_compiled import not_compiled

_bare_wait = dist.Work.__dict__["wait"]


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
    if not call.spec.is_from_any and call.ends_at_wait and calling_file().endswith(FUNCTIONAL_CALLERS):
        return call.result(_callback_work(inner, completion))
    if call.spec.is_from_any or call.ends_at_wait:
        kind = AnySourceWork if call.spec.is_from_any else BackendWork
        return call.result(kind(inner, completion, call).boxed())
    try:
        future = inner.get_future()
    except RuntimeError:  # gloo's receives and reduce-scatters have none
        return call.result(_callback_work(inner, completion))
    return call.result(_create_work_from_future(settled(future, completion, call.group)).boxed())


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


def amend_wait() -> None:
    """A work made from a future refuses `wait(timeout)` and is silent of a failure, unlike the backends' own works.

    Only for who waits in Python: C++ that calls `wait` of such a work learns of a failure at its next collective.
    """

    @not_compiled
    def wait(self: Any, timeout: timedelta = NO_TIMEOUT) -> bool:
        try:
            done = bool(_bare_wait(self, timeout))
        except RuntimeError as error:
            if timeout <= NO_TIMEOUT or not str(error).startswith("FutureWrappingWork::wait()"):
                raise
            settled = threading.Event()
            self.get_future().add_done_callback(lambda _: settled.set())
            if not settled.wait(timeout.total_seconds()):
                raise RuntimeError(f"Timed out waiting {timeout.total_seconds():g} s for a collective") from None
            done = bool(_bare_wait(self))
        _raise_failure(self)
        leave_registry(self)
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
    return _create_work_from_future(complete_future(call.outputs)).boxed()
