"""Extensions that the program has torch compile when it starts (`torch.utils.cpp_extension.load`, `load_inline`): a
replay loads them as they were built. Where it runs there may be no compiler, and another one would make other code.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

from prismdbg.rank.program.imports import AfterImport
from prismdbg.rank.program.stderr import say

_MODULE = "torch.utils.cpp_extension"
_FAILED = "the program's extensions are compiled again"
_NEEDED = frozenset(("name", "sources", "build_directory"))


def install(replaced: Collection[str] | None) -> None:
    """From now on, or from the import on. `replaced`: files that are not the recorded program's; None: all are."""
    since_ns = time.time_ns()

    def imported(_: str) -> None:
        _wrap(sys.modules[_MODULE], replaced, since_ns)

    if _MODULE not in sys.modules:
        sys.meta_path.insert(0, AfterImport((_MODULE,), imported, _FAILED))
        return
    try:
        imported(_MODULE)
    except Exception as error:
        say(f"{_FAILED}: {error!r}")


def _wrap(module: Any, replaced: Collection[str] | None, since_ns: int) -> None:
    build = module._write_ninja_file_and_build_library
    signature = inspect.signature(build)
    if missing := _NEEDED - signature.parameters.keys():
        raise AttributeError(f"this torch builds them without {', '.join(sorted(missing))}")

    def is_edited(source: str) -> bool:
        """Source that is a string in the program is written into a file when it is not there as it is."""
        path = os.path.abspath(source)  # noqa: PTH100  as the recorder names it: without `..`
        return path in (replaced or ()) or not Path(path).exists() or Path(path).stat().st_mtime_ns > since_ns

    @functools.wraps(build)
    def build_unless_there(*args: Any, **named: Any) -> Any:
        given = signature.bind(*args, **named).arguments
        library = Path(given["build_directory"], f"{given['name']}{module.LIB_EXT}")
        if library.is_file() and (replaced is None or not any(map(is_edited, given["sources"]))):
            if replaced is not None:
                say(f"{library.name} is loaded as the job built it: its source was not edited (flags are not compared)")
            return None
        return build(*args, **named)

    module._write_ninja_file_and_build_library = build_unless_there
