"""Which files well-known libraries open in native code, where no audit event tells of it: weights, vocabularies,
tables, pictures. Their functions are wrapped as they are imported, and tell which of their arguments are paths.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable, Iterable
from types import BuiltinFunctionType
from typing import Any

import torch

from prismdbg.rank.program.imports import AfterImport
from prismdbg.rank.program.not_compiled import not_compiled

Tell = Callable[[str | os.PathLike[str]], None]

_READERS = {
    "cv2": ("VideoCapture", "imread"),
    "h5py._hl.files": ("File.__init__",),
    "pyarrow.parquet.core": ("ParquetDataset.__init__", "ParquetFile.__init__"),
    "safetensors._safetensors_rust": ("safe_open",),
    "sentencepiece": ("SentencePieceProcessor.LoadFromFile",),
    "tokenizers": ("Tokenizer.from_file",),
    "tokenizers.models": ("BPE.from_file", "WordLevel.from_file", "WordPiece.from_file"),
    "torchvision.io.image": ("read_file",),
}


def watch(tell: Tell) -> None:
    """From their imports on. `tell` gets the paths, before they are opened."""
    _wrap_all(torch, ("UntypedStorage.from_file", "from_file"), tell)
    for name in _READERS.keys() & sys.modules.keys():
        _wrap_all(sys.modules[name], _READERS[name], tell)

    def imported(name: str) -> None:
        _wrap_all(sys.modules[name], _READERS[name], tell)

    sys.meta_path.insert(0, AfterImport(_READERS, imported, "what a library reads is not seen"))


def _wrap_all(module: Any, names: Iterable[str], tell: Tell) -> None:
    """What a version of a library lacks, or keeps from being replaced, is left as it is."""
    for name in names:
        *outer, last = name.split(".")
        owner = functools.reduce(lambda found, part: getattr(found, part, None), outer, module)
        function = getattr(owner, last, None)
        if function is None:
            continue
        told: Any = _telling(function, tell)
        is_static = isinstance(owner, type) and isinstance(
            inspect.getattr_static(owner, last), staticmethod | BuiltinFunctionType
        )
        try:
            setattr(owner, last, staticmethod(told) if is_static else told)
        except TypeError:
            continue


def _telling(function: Callable[..., Any], tell: Tell) -> Callable[..., Any]:
    @not_compiled
    @functools.wraps(function)
    def telling(*args: Any, **named: Any) -> Any:
        for value in (*args, *named.values()):
            if isinstance(value, str | os.PathLike):
                tell(value)
        return function(*args, **named)

    return telling
