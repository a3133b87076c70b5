"""First on a recorded job's PYTHONPATH: arms a hook on `import torch`, then runs the sitecustomize it shadows.

Imports no torch and costs about a millisecond; whatever fails here is said on one line and the program goes on.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
import types


def _is_ours(path: str | None) -> bool:
    """A job that is recorded inside a recorded job has this file on its path twice."""
    if path is None:
        return False
    with open(__file__, "rb") as mine, open(path, "rb") as other:
        return mine.read() == other.read()


def _run_shadowed() -> None:
    here = os.path.dirname(os.path.realpath(__file__))
    for entry in sys.path:
        if os.path.realpath(entry or ".") == here:
            continue
        spec = importlib.machinery.PathFinder.find_spec("sitecustomize", [entry])
        if spec is not None and spec.loader is not None and not _is_ours(spec.origin):
            module = types.ModuleType("sitecustomize")
            module.__spec__, module.__file__ = spec, spec.origin
            spec.loader.exec_module(module)
            return


class _AfterTorch:
    """Finder for `torch` alone: once its import is complete, starts prismdbg in this process."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> importlib.machinery.ModuleSpec | None:
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec("torch")
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: types.ModuleType) -> None:
            execute(module)
            try:
                from prismdbg.rank import boot

                boot.start()
            except Exception as error:
                print(f"prismdbg: not active in process {os.getpid()}: {error!r}", file=sys.stderr)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


if os.environ.get("PRISMDBG_CONFIG"):
    sys.meta_path.insert(0, _AfterTorch())
told = {name: os.environ.pop(name, "") for name in ("PRISMDBG_REDACTED", "PRISMDBG_REDACTED_FILES")}
if any(told.values()):  # in a replay: before anything can read them
    from prismdbg.rank import redacted

    redacted.install_from(told)
try:
    _run_shadowed()
except Exception as error:
    print(f"prismdbg: the sitecustomize behind ours failed: {error!r}", file=sys.stderr)
