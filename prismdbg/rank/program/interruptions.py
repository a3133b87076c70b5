"""Exceptions that come to the program in the middle of ours: from the handler of a signal (an alarm, a preemption), or
from another thread (`PyThreadState_SetAsyncExc`). Whoever keeps what fails in ours from the program passes them on.

Standard library only, for it is needed before torch is there.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import CodeType, FrameType

_KNOWN = frozenset(("builtins", "prismdbg", "prismdbg_native", "torch")) | sys.stdlib_module_names
_OURS = (f"{Path(__file__).parents[2]}{os.sep}", f"{Path(os.__file__).parent}{os.sep}", "<frozen ")
_PACKAGES = (f"site-packages{os.sep}", f"dist-packages{os.sep}")
_TORCH = f"{os.sep}torch{os.sep}"
_HAS_REST = 0x04  # of a function's code: CO_VARARGS


def is_for_the_program(error: BaseException) -> bool:
    """Whether it came from a handler, or is none that Python, torch and prismdbg raise, and came in their code. A
    timeout of the operating system has a number. What the program's own code raises, called by ours, is not."""
    last: FrameType | None = None
    trace = error.__traceback__
    while trace is not None:
        last, trace = trace.tb_frame, trace.tb_next
        if _is_a_handler(last):
            return True
    if last is None or not _is_ours(last.f_code.co_filename):
        return False
    if isinstance(error, TimeoutError) and error.errno is None:
        return True
    return type(error).__module__.partition(".")[0] not in _KNOWN


def _is_a_handler(frame: FrameType) -> bool:
    """Python calls the handler of a signal with the frame that it interrupts."""
    if (back := frame.f_back) is None:
        return False
    values = frame.f_locals
    given = [values.get(name) for name in _positional(frame.f_code)]
    return any(one is back for each in given for one in (each if type(each) is tuple else (each,)))


def _positional(code: CodeType) -> tuple[str, ...]:
    rest = code.co_argcount + code.co_kwonlyargcount
    return (*code.co_varnames[: code.co_argcount], *code.co_varnames[rest : rest + bool(code.co_flags & _HAS_REST)])


def _is_ours(path: str) -> bool:
    if any(packages in path for packages in _PACKAGES):
        return _TORCH in path or path.startswith(_OURS[0])
    return path.startswith(_OURS)
