"""Which files well-known libraries open in native code, where no audit event tells of it: weights, vocabularies,
tables, pictures. Their functions are wrapped as they are imported, and tell which of their arguments are paths.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import os
import sys
from collections.abc import Callable, Iterable
from types import BuiltinFunctionType, ClassMethodDescriptorType
from typing import Any

import torch

from prismdbg.rank.program.imports import AfterImport
from prismdbg.rank.program.interruptions import is_for_the_program
from prismdbg.rank.program.not_compiled import not_compiled

Tell = Callable[[str | os.PathLike[str]], None]

_READERS = {
    "SimpleITK.SimpleITK": ("ImageFileReader.SetFileName", "ImageSeriesReader.SetFileNames"),
    "av.container.core": ("open",),
    "cv2": ("VideoCapture.__init__", "imread", "imreadmulti"),
    "decord.audio_reader": ("AudioReader.__init__",),
    "decord.video_reader": ("VideoReader.__init__",),
    "faiss": ("read_index",),
    "h5py._hl.files": ("File.__init__",),
    "lmdb.cpython": ("Environment", "open"),
    "polars.io.csv.functions": ("read_csv", "scan_csv"),
    "polars.io.ipc.functions": ("read_ipc", "scan_ipc"),
    "polars.io.ndjson": ("read_ndjson", "scan_ndjson"),
    "polars.io.parquet.functions": ("read_parquet", "scan_parquet"),
    "pyarrow": ("input_stream", "memory_map"),
    "pyarrow.csv": ("open_csv", "read_csv"),
    "pyarrow.dataset": ("dataset",),
    "pyarrow.feather": ("read_feather", "read_table"),
    "pyarrow.json": ("read_json",),
    "pyarrow.orc": ("ORCFile.__init__",),
    "pyarrow.parquet.core": ("ParquetDataset.__init__", "ParquetFile.__init__"),
    "safetensors._safetensors_rust": ("safe_open",),
    "sentencepiece": ("SentencePieceProcessor.LoadFromFile", "SentencePieceProcessor.load_from_file"),
    "soundfile": ("SoundFile.__init__",),
    "tokenizers": ("Tokenizer.from_file",),
    "tokenizers.models": ("BPE.from_file", "WordLevel.from_file", "WordPiece.from_file"),
    "torchvision.io.image": ("read_file",),
}
_SOURCES = frozenset(
    ("file", "filename", "filenames", "name", "path", "path_or_paths", "paths", "source", "uri", "where")
)
_BOUND = (staticmethod, classmethod, BuiltinFunctionType, ClassMethodDescriptorType)  # of a class: they take no `self`
_CAN_BE_BASE = 1 << 10  # Py_TPFLAGS_BASETYPE
_MOST_NO_FILES = 10_000
_no_files: set[str | os.PathLike[str]] = set()


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
        try:
            _wrap(module, name, tell)
        except Exception:  # nothing may come of it but a file that a capsule lacks
            continue


def _wrap(module: Any, name: str, tell: Tell) -> None:
    *outer, last = name.split(".")
    owner = functools.reduce(getattr, outer, module)
    function = getattr(owner, last)
    if isinstance(function, type):
        if not function.__flags__ & _CAN_BE_BASE:  # else a program may have classes that are made from it
            setattr(owner, last, _telling_type(function, tell))
        return
    told: Any = _telling(function, tell)
    takes_no_self = isinstance(owner, type) and isinstance(inspect.getattr_static(owner, last), _BOUND)
    setattr(owner, last, staticmethod(told) if takes_no_self else told)


def _telling(function: Callable[..., Any], tell: Tell) -> Callable[..., Any]:
    told = _quietly(tell)

    @not_compiled
    @functools.wraps(function)
    def telling(*args: Any, **named: Any) -> Any:
        told(args, named)
        return function(*args, **named)

    return telling


def _telling_type(original: type[Any], tell: Tell) -> type[Any]:
    """Stands for a type that makes its objects: what is one of the original's is one of its."""

    told = _quietly(tell)

    class Telling(type):
        def __call__(cls, *args: Any, **named: Any) -> Any:
            told(args, named)
            return original(*args, **named)

        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, original)

        def __getattr__(cls, name: str) -> Any:
            return getattr(original, name)

    named = {"__doc__": original.__doc__, "__module__": original.__module__}
    return Telling(original.__name__, (), named)


def _quietly(tell: Tell) -> Callable[[tuple[Any, ...], dict[str, Any]], None]:
    """Nothing of ours comes between the program and its library, also while Python ends and our names are gone."""
    is_ending = sys.is_finalizing

    def told(args: tuple[Any, ...], named: dict[str, Any]) -> None:
        if is_ending():
            return
        try:
            _tell_paths(args, named, tell)
        except Exception as error:
            if is_for_the_program(error):
                raise

    return told


def _tell_paths(args: tuple[Any, ...], named: dict[str, Any], tell: Tell) -> None:
    """None of a mapping that is written through (`from_file`, shared). The first one, and what has the name of one, may
    be a folder or a pattern; another text is a path if a file has that name."""
    if named.get("shared") is True or (args[1:2] and args[1] is True):
        return
    others = [*map(_paths_in, args), *(_paths_in(value) for key, value in named.items() if key not in _SOURCES)]
    sources = [paths for key, value in named.items() if key in _SOURCES and (paths := _paths_in(value))]
    if not sources and (first := next(filter(None, others), None)) is not None:
        sources = [first]
        others.remove(first)
    for path in itertools.chain(*sources, filter(_is_file, itertools.chain(*others))):
        tell(path)


def _is_file(name: str | os.PathLike[str]) -> bool:
    """Most are names of columns, the same ones in each call: a server is asked for each once."""
    if name in _no_files:
        return False
    is_file = os.path.isfile(name)
    if not is_file and len(_no_files) < _MOST_NO_FILES:
        _no_files.add(name)
    return is_file


def _paths_in(value: object) -> list[str | os.PathLike[str]]:
    values = value if isinstance(value, list | tuple) else (value,)
    return [path for path in values if isinstance(path, str | os.PathLike)]
