"""Calls back when the import of a module is complete. Standard library only: it is needed before torch is there."""

from __future__ import annotations

import importlib.machinery
import os
import sys
import threading
import types
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from prismdbg.rank.program.interruptions import is_for_the_program
from prismdbg.rank.program.stderr import say


class AfterImport:
    """Finder for a few modules: once the import of one is complete, `imported` is called with its name. What fails
    there is said on one line, and the program goes on."""

    def __init__(self, names: Iterable[str], imported: Callable[[str], None], what: str) -> None:
        self._names = {name for name in names if name not in sys.modules}
        self._imported = imported
        self._what = what
        self._asking = threading.local()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Also of a program that only asks whether a module is there, and imports it later."""
        asking = vars(self._asking).setdefault("names", set())
        if name not in self._names or name in asking:
            return None
        # As Python itself, which passes over a finder without that method.
        finders = [getattr(finder, "find_spec", None) for finder in sys.meta_path]
        asking.add(name)
        try:
            spec = next((found for find in finders if find is not None and (found := find(name, path, target))), None)
        finally:
            asking.discard(name)
        if spec is not None and spec.loader is not None:
            self._tried(lambda: self._watch(name, spec.loader))
        return spec

    def _watch(self, name: str, loader: Any) -> None:
        """Raises for a loader that takes no attributes, or has no such method, as those of other tools may be."""
        execute = loader.exec_module
        waiting = vars(loader).setdefault("_prismdbg_waits", set())
        if (self, name) in waiting:  # one of a zip file, which loads all modules in it
            return
        waiting.add((self, name))

        def exec_module(module: types.ModuleType) -> None:
            execute(module)
            if module.__name__ == name and name in self._names:
                self._names.discard(name)
                self._tried(lambda: self._imported(name))

        loader.exec_module = exec_module

    def _tried(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:
            if is_for_the_program(error):
                raise
            say(f"{self._what} in process {os.getpid()}: {error!r}")


def when_imported(name: str, act: Callable[[types.ModuleType], None], what: str) -> None:
    """Calls `act` with the module, now or once its import is complete. What fails there is said as by `AfterImport`."""
    finder = AfterImport((name,), lambda _: act(sys.modules[name]), what)
    if name in sys.modules:
        finder._tried(lambda: act(sys.modules[name]))
    else:
        sys.meta_path.insert(0, finder)
