"""Python kernels for the 20 `c10d::` operators at BackendSelect; what they do is the installed interceptor's business.

Trailing arguments equal to the schema's default do not arrive; groups and works arrive boxed; each kernel is
registered with its keyset so that it can hand the call on to the backend.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch._C import DispatchKey

from prismdbg.errors import FacilityError
from prismdbg.model.ops import OPS, OpSpec
from prismdbg.rank.c10d.call import Call, Redispatch, is_meta
from prismdbg.rank.c10d.works import amend_wait

_BELOW = torch._C._dispatch_keyset_full_after(DispatchKey.BackendSelect)


class Interceptor(Protocol):
    """Called on the issuing thread at the entry of every collective; returns what the operator returns.

    `redispatch` runs the real backend; an interceptor calls it at most once.
    """

    def collective(self, call: Call, redispatch: Redispatch) -> Any: ...

    def unreadable(self, error: Exception, redispatch: Redispatch) -> Any:
        """A call whose arguments we failed to read."""
        ...


_library: torch.library.Library | None = None
_interceptor: Interceptor | None = None


def install(interceptor: Interceptor | None) -> None:
    """Makes `interceptor` see every collective from now on; None lets all pass."""
    global _library, _interceptor
    _interceptor = interceptor
    if _library is None:
        check_schemas()
        amend_wait()
        _library = torch.library.Library("c10d", "IMPL")
        for spec in OPS.values():
            _library.impl(spec.name, _kernel(spec), "BackendSelect", with_keyset=True)


def check_schemas() -> None:
    """Raises `FacilityError` where the operators are not those of `model/ops.py`; nothing is intercepted then."""
    for spec in OPS.values():
        try:
            arguments = getattr(torch.ops.c10d, spec.name).default._schema.arguments
            found = {role: f"{arguments[at].name}: {arguments[at].type}" for role, at in _positions(spec)}
        except (AttributeError, IndexError) as error:
            raise _unknown(spec, str(error)) from error
        for role, text in found.items():
            if not any(word in text for word in _EXPECTED[role]):
                raise _unknown(spec, f"{text} instead of its {role}")


_EXPECTED = {
    "group": ("c10d.ProcessGroup",),
    "outputs": ("Tensor",),
    "inputs": ("Tensor",),
    "reduce_op": ("c10d.ReduceOp",),
    "root": ("root_rank: int", "dst: int", "src: int"),
    "tag": ("tag: int",),
    "async_op": ("async_op: bool",),
    "timeout": ("timeout: int",),
}


def _positions(spec: OpSpec) -> list[tuple[str, int]]:
    return [(role, at) for role in _EXPECTED if (at := getattr(spec, role)) is not None]


def _unknown(spec: OpSpec, why: str) -> FacilityError:
    return FacilityError(
        f"torch {torch.__version__} has a different c10d::{spec.name}: {why}",
        hint="use torch 2.13: this version of prismdbg supports its operators",
    )


def _kernel(spec: OpSpec) -> Callable[..., Any]:
    operator = getattr(torch.ops.c10d, spec.name).default

    def kernel(keyset: Any, *args: Any) -> Any:
        interceptor = _interceptor

        def redispatch() -> Any:
            return operator.redispatch(keyset & _BELOW, *args)

        if interceptor is None:
            return redispatch()
        try:
            call = None if is_meta(spec, args) else Call(spec, args)
        except Exception as error:
            return interceptor.unreadable(error, redispatch)
        return redispatch() if call is None else interceptor.collective(call, redispatch)

    return kernel
