"""Calls back when the import of a module is complete. Standard library only: it is needed before torch is there."""

from __future__ import annotations

import importlib.machinery
import os
import sys
import types
from collections.abc import Callable, Iterable, Sequence

from prismdbg.rank.program.stderr import say


class AfterImport:
    """Finder for a few modules: once the import of one is complete, `imported` is called with its name. What fails
    there is said on one line, and the program goes on."""

    def __init__(self, names: Iterable[str], imported: Callable[[str], None], what: str) -> None:
        self._names = {name for name in names if name not in sys.modules}
        self._imported = imported
        self._what = what

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in self._names:
            return None
        self._names.discard(name)
        spec = next((found for finder in sys.meta_path if (found := finder.find_spec(name, path, target))), None)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: types.ModuleType) -> None:
            execute(module)
            try:
                self._imported(name)
            except Exception as error:
                say(f"{self._what} in process {os.getpid()}: {error!r}")

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
