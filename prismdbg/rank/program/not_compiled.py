"""Functions of ours that a compiled program calls, kept from TorchDynamo.

In a call that torch.compile left to Python, dynamo looks at every Python frame that begins, also below C++. It would
compile ours, slowly, and sometimes fail at it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from torch._C._dynamo import eval_frame

Function = TypeVar("Function", bound=Callable[..., Any])


def _strategy() -> Any:
    """That dynamo passes over a frame and those that it calls; None in a torch that has no such names: these are its
    own, and a recording must not end for them."""
    try:
        skip = eval_frame._FrameAction.SKIP
        return eval_frame._FrameExecStrategy(skip, skip)
    except AttributeError:
        return None


_SKIPPED = _strategy()


def not_compiled(function: Function) -> Function:
    """The same function; dynamo passes over its frames and over those of all that it calls, and does not inline it.
    torch._dynamo is not imported for it."""
    passed_over(function)
    function._torchdynamo_disable = True  # type: ignore[attr-defined]
    return function


def passed_over(function: Function) -> Function:
    """As `not_compiled`, of one that may be inlined: in a graph that must be whole, what is not is an error. Let it
    return at once where torch.compiler.is_compiling()."""
    if _SKIPPED is not None:
        eval_frame.set_code_exec_strategy(function.__code__, _SKIPPED)
    return function
