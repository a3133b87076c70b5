"""What clients ask of a stopped thread: the value of an expression, the names of a frame, lines of its source."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from types import FrameType
from typing import Any

import torch

from prismdbg.errors import PrismError, UsageError
from prismdbg.expr.evaluator import evaluate
from prismdbg.expr.parser import Expression, parse
from prismdbg.expr.place import ExpressionError
from prismdbg.rank.debug.breakpoints import HELD
from prismdbg.rank.debug.digest import digest_of
from prismdbg.rank.debug.gate import Stop
from prismdbg.rank.debug.rendering import render, short, type_name
from prismdbg.rank.debug.scope import Program, environment, in_frames
from prismdbg.rank.debug.tensor_bytes import read_bytes
from prismdbg.rank.program.frames import locals_of, outwards, raised_through
from prismdbg.rank.program.isolation import quiet
from prismdbg.rank.program.source_lines import source_lines
from prismdbg.rank.program.tensor_parts import in_numbers, is_tensor, local

HELD_HINT = "type `trace on`: the program's memory is known only while the rank is traced"
MAX_LOCALS = 200
MAX_LINES = 400
MAX_LINE = 400


def evaluate_at(stop: Stop, text: str, frame: int = 0, digest: bool = False) -> dict[str, Any]:
    """The value of `text` as JSON. Names: the stop's own (input, out, op, ...), `local`, then the frame's.

    digest: with one of the whole value, by which a change is seen, if it has one.
    """

    def rendered(value: Any, names: Names, expression: Expression) -> dict[str, Any]:
        found = {**render(value), **(_digest(value) if digest else {})}
        hidden = sorted(name for name in expression.names if name in stop.names and name in names.locals)
        return {**found, "hidden": hidden} if hidden else found

    return _answered(lambda: _evaluated(stop, text, frame, rendered))


def _digest(value: Any) -> dict[str, str]:
    with contextlib.suppress(Exception):  # the value is shown in any case
        return {"digest": digest_of(value)}
    return {}


def address_of(stop: Stop, text: str, frame: int = 0) -> dict[str, Any]:
    """Where in memory a tensor's elements lie."""

    def found(value: Any, _names: Names, _expression: Expression) -> dict[str, Any]:
        part = local(value)
        if not is_tensor(part) or not part.numel():
            raise UsageError(f"{text} is a {type_name(value)}: it has no memory", hint="name one tensor with elements")
        part = _own(stop, part)
        return {"address": part.data_ptr(), "bytes": part.untyped_storage().nbytes(), "device": str(part.device)}

    return _answered(lambda: _evaluated(stop, text, frame, found))


def bytes_of(stop: Stop, text: str, frame: int, offset: int, count: int) -> dict[str, Any]:
    """`count` bytes of a tensor's elements, from `offset` on."""

    def found(value: Any, _names: Names, _expression: Expression) -> dict[str, Any]:
        part = local(value)
        if not is_tensor(part):
            raise UsageError(f"{text} is a {type_name(value)}: it has no elements", hint="name one tensor")
        return read_bytes(part, offset, count)

    return _answered(lambda: _evaluated(stop, text, frame, found))


def _own(stop: Stop, tensor: torch.Tensor) -> torch.Tensor:
    """The program's own tensor, of what was copied when it was sent."""
    for copy, own in zip(stop.names.get("input", ()), stop.sent, strict=False):
        if not (copy.is_sparse or tensor.is_sparse) and _storage(copy) == _storage(tensor):
            return own
    return tensor


def _storage(tensor: torch.Tensor) -> int:
    """Where it begins."""
    return int(tensor.untyped_storage().data_ptr())


def difference_at(stop: Stop, text: str, frame: int, recorded: Callable[[Stop], list[torch.Tensor]]) -> dict[str, Any]:
    """A tensor of the stopped collective against the recorded one: the same expression with the recorded `out`."""

    def compared(value: Any, _names: Names, expression: Expression) -> dict[str, Any]:
        if "out" not in expression.names:
            raise UsageError("only received data is recorded byte by byte", hint="write for instance: diff out[0]")
        names = {**stop.names, "out": recorded(stop)}
        as_recorded = Names(replace(stop, names=names), frame_at(stop, frame))
        return _difference(local(value), local(evaluate(expression, environment(as_recorded.lookup))))

    return _answered(lambda: _evaluated(stop, text, frame, compared))


def _difference(now: Any, then: Any) -> dict[str, Any]:
    if not is_tensor(now) or not is_tensor(then):
        raise UsageError("only tensors are compared", hint="write for instance: diff out[0]")
    same = (now == then) | (now.isnan() & then.isnan())
    differing = int((~same).sum())
    if not differing:
        return {"equal": True, "differing": 0, "elements": now.numel(), "largest": None}
    gap = (in_numbers(now.detach()) - in_numbers(then)).abs()
    finite = gap[torch.isfinite(gap)]
    largest = float(finite.max()) if finite.numel() else None
    value = render(now.detach().to(torch.float64) - then.to(torch.float64)) if not now.is_complex() else None
    return {
        "equal": False, "differing": differing, "elements": now.numel(), "largest": largest, "value": value,
    }  # fmt: skip


def _evaluated(
    stop: Stop, text: str, frame: int, use: Callable[[Any, Names, Expression], dict[str, Any]]
) -> dict[str, Any]:
    """What `use` makes of the value, in quiet."""
    expression = parse(text)
    names = Names(stop, frame_at(stop, frame))
    with quiet():
        return use(evaluate(expression, environment(names.lookup)), names, expression)


def _answered(action: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    outcome = _attempt(action)
    if isinstance(outcome, PrismError):  # raised here, so that its traceback holds no value of the program
        raise outcome
    return outcome


def _attempt(action: Callable[[], dict[str, Any]]) -> dict[str, Any] | PrismError:
    try:
        return action()
    except ExpressionError as error:
        return error.again()
    except PrismError as error:
        return type(error)(str(error), hint=error.hint)
    except Exception as error:
        return UsageError(f"{type(error).__name__}: {str(error)[:300]}")


class Names:
    """Where an expression's names are looked up: the stop, then the frame's locals, then its globals."""

    def __init__(self, stop: Stop, frame: FrameType | None) -> None:
        self._own = stop.names
        self._frame = frame
        self.locals = locals_of(frame)
        self._globals: Mapping[str, Any] = frame.f_globals if frame is not None else {}

    def lookup(self, name: str) -> Any:
        """The program's further frames come last, as in a stop's condition."""
        if name in self._own:
            return self._own[name]
        if name == "local":
            return Program(self.of_program)
        try:
            return self.of_program(name)
        except KeyError:
            raise KeyError(name, HELD_HINT if name in HELD else self._hint()) from None

    def of_program(self, name: str) -> Any:
        for names in (self.locals, self._globals):
            if name in names:
                return names[name]
        return in_frames(name, self._frame)

    def _hint(self) -> str:
        known = [*self._own, *(n for n in self.locals if not n.startswith("_"))][:30]
        return f"use one of: {' '.join(known)}" if known else "run to a collective with `next`: there are names"


def frames_of(stop: Stop) -> Iterator[FrameType]:
    """Innermost first."""
    return outwards(stop.frame) if stop.trace is None else raised_through(stop.trace)


def frame_at(stop: Stop, number: int) -> FrameType | None:
    """Frame `number` outwards from the innermost one, which is 0; they are numbered as `where` lists them."""
    if number < 0:
        raise UsageError(f"no frame number {number}", hint="count frames from 0, the innermost")
    frame = next(islice(frames_of(stop), number, None), None)
    if frame is None and number:
        raise UsageError(f"no frame number {number}", hint="type `where` to list the frames")
    return frame


def locals_at(stop: Stop, number: int) -> list[dict[str, Any]]:
    """Names of the frame, then of the stop, with what they are in one line each, and whether they are tensors."""
    with quiet():
        names = locals_of(frame_at(stop, number))
        own = [("local", name, value) for name, value in names.items() if not name.startswith("__")]
        listed = [*own[:MAX_LOCALS], *(("stop", name, value) for name, value in stop.names.items())]
        return [
            {
                "from": origin,
                "name": name,
                "type": type_name(value),
                "text": short(value),
                "tensor": is_tensor(value),
            }
            for origin, name, value in listed
        ]


def source_at(stop: Stop, number: int, around: int, line: int | None = None) -> dict[str, Any]:
    """`around` lines before and after `line` (else where the frame stands), as the rank's own files have them."""
    frame = frame_at(stop, number)
    if frame is None:
        return {"filename": "", "line": 0, "first": 0, "lines": []}
    filename, at = frame.f_code.co_filename, line if line is not None else frame.f_lineno
    lines = source_lines(frame)
    first = max(1, at - around)
    last = min(len(lines), at + around, first + MAX_LINES)
    return {
        "filename": filename,
        "function": frame.f_code.co_qualname,
        "line": frame.f_lineno,
        "first": first,
        "length": len(lines),
        "lines": [text.rstrip("\n")[:MAX_LINE] for text in lines[first - 1 : last]],
    }
