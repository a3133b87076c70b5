"""Ray Train runs the program's function in a thread of a worker, keeps what it raises, and kills the worker: nothing
else would tell that the rank has failed, or that it was done."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from prismdbg.rank.program import process_runs


def install(module: Any) -> None:
    """`module`: ray.train.v2._internal.execution.worker_group.thread_runner."""
    run, construct = module.ThreadRunner.run, module.construct_user_exception_with_traceback

    @functools.wraps(run)
    def running(self: Any, target: Callable[[], Any]) -> None:
        @functools.wraps(target)
        def training() -> Any:
            result = target()
            process_runs.tell_end(0)
            return result

        run(self, training)

    @functools.wraps(construct)
    def constructing(error: BaseException, exclude_frames: int = 0, **named: Any) -> Any:
        """Without the frame of `training`, which its users do not know."""
        process_runs.tell(error)
        process_runs.tell_end(1)
        return construct(error, exclude_frames=exclude_frames + 1, **named)

    module.ThreadRunner.run, module.construct_user_exception_with_traceback = running, constructing
