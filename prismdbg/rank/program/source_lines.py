"""The lines of a program's source, without asking the program: a loader of its own would have to run."""

from __future__ import annotations

import linecache
import tokenize
import zipimport
from types import FrameType

from prismdbg.expr.objects import builtin, of_name


def source_lines(frame: FrameType) -> list[str]:
    """Of the file that the frame runs; empty where only a loader of the program's own has them."""
    filename = str(builtin(frame.f_code.co_filename))
    kept = linecache.cache.get(filename)
    if type(kept) is tuple and len(kept) == 1:  # somebody's loader, that is asked by who looks
        return _read(filename) or _zipped(frame)
    return [builtin(line) for line in linecache.getlines(filename) if issubclass(type(line), str)] or _zipped(frame)


def _read(filename: str) -> list[str]:
    try:
        with tokenize.open(filename) as file:
            return file.readlines()
    except (OSError, UnicodeDecodeError, SyntaxError):
        return []


def _zipped(frame: FrameType) -> list[str]:
    """Of a module that Python itself imported from an archive."""
    loader, name = (of_name(frame.f_globals, each) for each in ("__loader__", "__name__"))
    if type(loader) is not zipimport.zipimporter or not issubclass(type(name), str):
        return []
    try:
        source = zipimport.zipimporter.get_source(loader, str(builtin(name)))
    except (ImportError, OSError):
        return []
    return (source or "").splitlines()
