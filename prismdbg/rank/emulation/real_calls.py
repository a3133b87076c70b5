"""Works of a real backend in an emulated rank: they also tell the log who waits for them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch.distributed as dist

from prismdbg.rank.c10d.call import Call
from prismdbg.rank.c10d.completion import Completion
from prismdbg.rank.c10d.watched_work import WatchedWork
from prismdbg.rank.recording.python_recorder import PythonRecorder
from prismdbg.rank.tracing import tracer


class RealCall:
    """A `Watcher` of what the backend does."""

    def __init__(self, recorder: PythonRecorder, completion: Completion, inner: dist.Work) -> None:
        self._recorder, self._completion, self.inner = recorder, completion, inner

    def wait(self) -> None:
        began_ns, log_ns = time.monotonic_ns(), self._recorder.now_ns()
        self.inner.wait()
        self._recorder.waited(self._completion.record_id, log_ns)
        tracer.waited(self._completion.record_id, began_ns)

    def is_there(self) -> bool:
        return bool(self.inner.is_completed())

    def promise(self, keep: Callable[[], None], *, is_seen: bool = False) -> None:
        raise AssertionError("its future is the backend's own")

    def ends_backward(self) -> None:
        raise AssertionError("its future is the backend's own")


class RealWork(WatchedWork):
    """Its future is the backend's own: it knows of a failure."""

    def __init__(self, call: RealCall, outputs: list[Any]) -> None:
        super().__init__(call, outputs)
        self._call = call

    def get_future(self) -> Any:
        future = self._call.inner.get_future()
        future.add_done_callback(lambda _: self.let_go())
        return future


def told(recorder: PythonRecorder, call: Call, wrapped: Any, completion: Completion) -> Any:
    """What the operator returns where Python may wait for it later; else it is left as it is."""
    if call.spec.returns == "nothing" or call.spec.is_from_any or not (call.is_async or call.spec.is_p2p):
        return wrapped
    return call.result(RealWork(RealCall(recorder, completion, call.work_of(wrapped)), call.outputs).boxed())
