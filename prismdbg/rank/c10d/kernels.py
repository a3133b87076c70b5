"""Python kernels for the known `c10d::` operators at BackendSelect; what they do is the interceptor's business.

Trailing arguments equal to the schema's default do not arrive; groups and works arrive boxed; each kernel is
registered with its keyset so that it can hand the call on to the backend.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch._C import DispatchKey

from prismdbg.model.ops import OpSpec
from prismdbg.rank.c10d import schemas
from prismdbg.rank.c10d.call import Call, Redispatch, is_meta
from prismdbg.rank.c10d.works import amend_wait
from prismdbg.rank.program.not_compiled import not_compiled

BELOW = torch._C._dispatch_keyset_full_after(DispatchKey.BackendSelect)


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
        found = schemas.read()
        amend_wait()
        _library = torch.library.Library("c10d", "IMPL")
        for spec in found.known.values():
            _library.impl(spec.name, _kernel(spec), "BackendSelect", with_keyset=True)


def _kernel(spec: OpSpec) -> Callable[..., Any]:
    operator = getattr(torch.ops.c10d, spec.name).default

    @not_compiled
    def kernel(keyset: Any, *args: Any) -> Any:
        interceptor = _interceptor

        def redispatch() -> Any:
            return operator.redispatch(keyset & BELOW, *args)

        if interceptor is None:
            return redispatch()
        try:
            call = None if is_meta(spec, args) else Call(spec, args)
        except Exception as error:
            return interceptor.unreadable(error, redispatch)
        return redispatch() if call is None else interceptor.collective(call, redispatch)

    return kernel
