"""Which operators a step of the program calls, on tensors of which shapes: `prismdbg sample` times each alone.

Operators of the backward pass are operators like others. Views take no time and are left out. Of a tensor subclass, the
operators on its parts count.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode

from prismdbg.rank.program.isolation import is_quiet

NAMESPACES = ("aten", "fsdp")  # FSDP copies parameters into what it sends, and out of it
_PLAIN = (torch.Tensor, torch.nn.Parameter)
_MADE = "unknown"


class OperatorCalls(TorchDispatchMode):  # type: ignore[misc]
    """Writes those of the newest complete step into `path`, each time that a step ends."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._step: Counter[str] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if not all(each in _PLAIN for each in types):
            return (
                func(*args, **(kwargs or {})) if any(issubclass(each, FakeTensor) for each in types) else NotImplemented
            )
        if func.namespace == "c10d":
            return func._op(*args, **(kwargs or {}))  # no frame of torch: who called it is looked for in the frames
        if func.namespace in NAMESPACES and not _is_view(func) and not is_quiet():
            self._step[_said(func, args, kwargs or {})] += 1
        return func(*args, **(kwargs or {}))

    def on_step(self, number: int, _source: object) -> None:
        calls = [{**json.loads(call), "count": count} for call, count in self._step.items()]
        self._step.clear()
        text = json.dumps({"step": number, "threads": torch.get_num_threads(), "calls": calls})
        temporary = self._path.with_suffix(".part")
        temporary.write_text(text)
        temporary.replace(self._path)


def _is_view(func: Any) -> bool:
    """Its result is an argument, and nothing is written."""
    returns = func._schema.returns
    return bool(returns) and all(r.alias_info is not None and not r.alias_info.is_write for r in returns)


def _said(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    given = {name: _value(value) for name, value in kwargs.items()}
    return json.dumps({"op": str(func), "args": [_value(arg) for arg in args], "kwargs": given}, sort_keys=True)


def _value(value: Any) -> Any:
    """As JSON: a tensor by its sizes, its type and the order of its dimensions in memory."""
    if isinstance(value, torch.Tensor):
        order = sorted(range(value.dim()), key=lambda at: (-value.stride(at), at))
        found: dict[str, Any] = {"tensor": list(value.shape), "dtype": str(value.dtype), "order": order}
        is_index = value.dtype in (torch.int64, torch.int32) and value.numel()
        return {**found, "high": int(value.max()) + 1} if is_index else found
    if isinstance(value, list | tuple):
        return [_value(each) for each in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, torch.dtype):
        return {"dtype": str(value)}
    if isinstance(value, torch.device | torch.layout | torch.memory_format):
        return {_MADE: ""}  # the usual one
    return {_MADE: str(type(value))}
