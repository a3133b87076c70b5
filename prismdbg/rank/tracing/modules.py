"""Names for running modules: `blocks.0.attention`, by their place below the outermost module that runs."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from types import CodeType
from typing import Any

from torch import nn

from prismdbg.rank.program.frames import locals_of, outwards
from prismdbg.rank.program.not_compiled import not_compiled

# its first argument is the module; `_call_impl` keeps that in a cell
CALL: CodeType = nn.Module._wrapped_call_impl.__code__


class ModuleNames:
    """Called once for each module, while it runs. `forget` is told its address when it is gone."""

    def __init__(self, forget: Callable[[int], None]) -> None:
        self._forget = forget
        self._roots: weakref.WeakKeyDictionary[Any, dict[int, str]] = weakref.WeakKeyDictionary()

    @not_compiled
    def name(self, module: Any) -> str:
        weakref.finalize(module, self._forget, id(module)).atexit = False
        root = _outermost() or module
        names = self._roots.get(root)
        if names is None or id(module) not in names:
            names = {id(part): name for name, part in root.named_modules()}
            self._roots[root] = names
        return names.get(id(module)) or type(module).__name__


def _outermost() -> Any:
    """The module whose call contains all others of this thread."""
    found = None
    for frame in outwards(sys._getframe(1)):
        found = frame if frame.f_code is CALL else found
    return locals_of(found).get("self")
