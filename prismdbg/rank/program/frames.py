"""Where in the program a thread is: its frames, the program's own among them, the modules it is inside of."""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from types import FrameType, TracebackType
from typing import Any

import torch

from prismdbg.expr.objects import builtin, of_name, short_name, vars_of
from prismdbg.model import frame as rule

_MODULE_CALL = "_call_impl"
_BACKWARD = "_engine_run_backward"
MAX_FRAMES = 2000


def program_frame() -> FrameType | None:
    """The innermost frame that is not prismdbg's.

    A thread of the autograd engine has none (backward on a GPU): there it is the main thread's, which waits in
    `backward()`.
    """
    own = next(outwards(sys._getframe(1)), None)
    if own is not None:
        return own
    return next(outwards(sys._current_frames().get(threading.main_thread().ident or 0)), None)


def outwards(frame: FrameType | None) -> Iterator[FrameType]:
    """The frame and all that called it, innermost first, without prismdbg's own: what it wraps is seen as if it
    was not wrapped."""
    for _ in range(MAX_FRAMES):
        if frame is None:
            return
        if not _is_ours(frame):
            yield frame
        frame = frame.f_back


def raised_through(trace: TracebackType | None) -> Iterator[FrameType]:
    """The frames that an exception has come through, and those around them, innermost first, without prismdbg's own. A
    generator that has ended no longer knows who called it; the traceback does."""
    through: list[FrameType] = []
    while trace is not None:
        if not through or through[-1] is not trace.tb_frame:  # it is there again where it was caught and raised again
            through.append(trace.tb_frame)
        trace = trace.tb_next
    within = (frame for frame in reversed(through) if not _is_ours(frame))
    return islice(chain(within, outwards(through[0].f_back if through else None)), MAX_FRAMES)


def own_frames(frame: FrameType | None) -> Iterator[FrameType]:
    """The program's, not of an installed package, of Python or of prismdbg; innermost first."""
    codes = ((found, found.f_code) for found in outwards(frame))
    return (found for found, code in codes if rule.is_program(code.co_filename) and not rule.is_override(code.co_name))


def program_line(frame: FrameType | None) -> FrameType | None:
    """The frame of the program's own line, by the rule of `model/frame.py`."""
    found = list(outwards(frame))
    return found[rule.source_index(tuple(map(_as_value, found)))] if found else None


def infers_shapes(frame: FrameType | None) -> bool:
    """As the function of that name in `model/frame.py`, of a thread that is in `frame`."""
    return rule.infers_shapes(map(_as_value, outwards(frame)))


def _as_value(frame: FrameType) -> rule.Frame:
    return rule.Frame(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)


def stack_of(frame: FrameType | None) -> list[dict[str, Any]]:
    """Frames from `frame` outwards, innermost first."""
    return described(outwards(frame))


def described(frames: Iterable[FrameType]) -> list[dict[str, Any]]:
    return [{"filename": f.f_code.co_filename, "line": f.f_lineno, "name": f.f_code.co_name} for f in frames]


def locals_of(frame: FrameType | None) -> dict[str, Any]:
    """A copy. Reading a function's locals makes Python keep all of them in a dict of the frame: that is undone,
    or a tensor that the program drops would live on. A dict that the program itself holds is left alone."""
    if frame is None:
        return {}
    snapshot = frame.f_locals
    found = _copied(snapshot)
    held_by_frame_only = 3  # the frame, the name `snapshot`, the argument of getrefcount
    is_snapshot = bool(frame.f_code.co_flags & inspect.CO_OPTIMIZED) and isinstance(snapshot, dict)
    if is_snapshot and sys.getrefcount(snapshot) <= held_by_frame_only:
        snapshot.clear()
    return found


def _copied(snapshot: Any) -> dict[str, Any]:
    """Of a class body it may be a mapping of the program's own, which only its own code can list."""
    if issubclass(type(snapshot), dict):
        return dict.copy(snapshot) if type(snapshot) is dict else dict(_with_text_keys(snapshot))
    return dict(snapshot) if type(snapshot).__name__ == "FrameLocalsProxy" else {}


def innermost(trace: TracebackType | None) -> FrameType | None:
    """The frame that raised; it still knows who called it."""
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace.tb_frame if trace is not None else None


def module_part(module: torch.nn.Module, name: str) -> dict[str, Any]:
    """Its parameters, buffers or modules, without asking it: a program may list them in its own way."""
    held = of_name(vars_of(module) or {}, name)
    if not issubclass(type(held), dict):
        return {}
    return {key: value for key, value in _with_text_keys(held) if value is not None}


def _with_text_keys(held: Any) -> Iterator[tuple[str, Any]]:
    """A name that is a text of a class of the program's own would be asked for its hash."""
    return ((builtin(key), value) for key, value in dict.items(held) if issubclass(type(key), str))


def modules_in(root: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    """It and all below it with their names, each once, as torch lists them."""
    seen: set[int] = set()
    waiting = [("", root)]
    while waiting:
        name, module = waiting.pop()
        if id(module) in seen:
            continue
        seen.add(id(module))
        yield name, module
        inner = module_part(module, "_modules").items()
        waiting += reversed([(f"{name}.{key}" if name else key, part) for key, part in inner])


def tensors_in(root: torch.nn.Module, kind: str) -> Iterator[tuple[str, torch.Tensor]]:
    """Parameters or buffers of all its modules with their names, each once."""
    seen: set[int] = set()
    for name, module in modules_in(root):
        for key, tensor in module_part(module, kind).items():
            if id(tensor) not in seen:
                seen.add(id(tensor))
                yield f"{name}.{key}" if name else key, tensor


def modules_around(frame: FrameType | None) -> tuple[str, ...]:
    """Qualified names of the modules whose call is under way, outermost first: `("DistributedDataParallel",
    "module", "module.layers.3")`. Empty in the backward pass, where no module is called."""
    called = [
        module
        for found in outwards(frame)
        if found.f_code.co_name == _MODULE_CALL
        and issubclass(type(module := locals_of(found).get("self")), torch.nn.Module)
    ]
    if not called:
        return ()
    called.reverse()
    root = called[0]
    names = {id(module): name for name, module in modules_in(root)}
    return tuple(names.get(id(module)) or short_name(type(module)) for module in called)


def in_backward(frame: FrameType | None) -> bool:
    """Whether `backward()` is under way in this thread."""
    return any(found.f_code.co_name == _BACKWARD for found in outwards(frame))


def is_module(wanted: str, name: str) -> bool:
    """`layers.3` is also `module.layers.3`."""
    return name == wanted or name.endswith("." + wanted)


def _is_ours(frame: FrameType) -> bool:
    return "/prismdbg/rank/" in frame.f_code.co_filename
