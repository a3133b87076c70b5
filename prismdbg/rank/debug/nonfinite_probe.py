"""Every operator's outputs, looked at for the first NaN or infinity: for one stretch of a replay that is thrown away.

Slow, and on the program's own dispatch path: whoever used it goes back in time before the program goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from prismdbg.model.moment import Moment
from prismdbg.rank.debug.unfilled_memory import UnfilledMemory, leaves_it_unfilled
from prismdbg.rank.program.frames import program_frame, program_line, stack_of
from prismdbg.rank.program.isolation import is_quiet, unseen

MAX_FRAMES = 12


class NonfiniteProbe(TorchDispatchMode):  # type: ignore[misc]
    """`found`: the first operator that gives what is looked for; born: none of its inputs had it."""

    def __init__(self, nan_only: bool, moment: Callable[[], Moment]) -> None:
        super().__init__()
        self._nan_only = nan_only
        self._moment = moment
        self._unfilled = UnfilledMemory()
        self._resize = torch.UntypedStorage.resize_
        self.found: dict[str, Any] | None = None

    def __enter__(self) -> Any:
        def resize_(storage: torch.UntypedStorage, size: int) -> Any:
            result = self._resize(storage, size)
            self._unfilled.resized(storage)
            return result

        torch.UntypedStorage.resize_ = resize_
        return super().__enter__()

    def __exit__(self, *raised: Any) -> None:
        torch.UntypedStorage.resize_ = self._resize
        super().__exit__(*raised)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = str(func.name())
        if self.found is not None or is_quiet() or not name.startswith("aten::"):
            return func(*args, **kwargs)
        given, leaves = _tensors([args, kwargs]), leaves_it_unfilled(name)
        had = _writes_over(func) and not leaves and self._any(given)
        result = func(*args, **kwargs)
        with unseen():
            made = _tensors(result)
            is_chance = self._unfilled.after(func, given, made)
            is_seen = not leaves and not is_chance and any(map(self._has, made))
        if is_seen:
            self._note(name, born=not (had or (not _writes_over(func) and self._any(given))))
        return result

    def _any(self, tensors: list[torch.Tensor]) -> bool:
        with unseen():
            return any(map(self._has, tensors))

    def _has(self, tensor: torch.Tensor) -> bool:
        if not (tensor.is_floating_point() or tensor.is_complex()) or not tensor.numel() or tensor.is_sparse:
            return False
        return bool(tensor.isnan().any() if self._nan_only else (~torch.isfinite(tensor)).any())

    def _note(self, name: str, born: bool) -> None:
        own = program_line(program_frame())
        frames = stack_of(own)[:MAX_FRAMES]
        self.found = {"op": name, "born": born, "moment": str(self._moment()), "frames": frames}


def _writes_over(func: Any) -> bool:
    """Whether its inputs must be looked at before it runs. The schemas of batch norm do not say what it writes."""
    return func._schema.is_mutable or "batch_norm" in func.name()


def _tensors(value: Any) -> list[torch.Tensor]:
    """Those that have values here: of a DTensor its local part, and none that stand for shapes, as those that
    torch.compile and DTensor work out shapes with."""
    found = [_local(leaf) for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]
    return [tensor for tensor in found if not tensor.is_meta and not _dispatches_to_python(tensor)]


def _local(tensor: torch.Tensor) -> torch.Tensor:
    """Without a call of torch: the operator of a DTensor is looked at, not what looks at it."""
    return getattr(tensor, "_local_tensor", tensor)


def _dispatches_to_python(tensor: torch.Tensor) -> bool:
    return bool(torch._C._dispatch_keys(tensor).has(torch._C.DispatchKey.Python))
