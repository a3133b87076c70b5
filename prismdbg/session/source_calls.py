"""Calls in a program's source whose answers may be others in a replay: the time, randomness of the operating system,
memory as it was found, whether a file is there. Read, never run."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    CLOCK = "clock"  # what it gives is in a recording
    DATE = "date"  # so is this, if the version of Python is one that we know
    ENTROPY = "entropy"
    UNSEEDED = "unseeded"  # a generator without a seed, uuid4: what these begin with is in a recording
    MEMORY = "memory"
    FILE = "file"  # whether it is there, or how large it is, without reading it


_CALLS = {
    **dict.fromkeys(
        (
            *(
                f"time.{name}{ns}"
                for name in ("time", "perf_counter", "monotonic", "process_time")
                for ns in ("", "_ns")
            ),
            *("time.localtime", "time.gmtime", "time.ctime", "time.asctime", "time.strftime"),
            *("datetime.datetime.today", "datetime.date.today"),  # which ask `time.time`
        ),
        Kind.CLOCK,
    ),
    **dict.fromkeys(("datetime.datetime.now", "datetime.datetime.utcnow"), Kind.DATE),
    **dict.fromkeys(
        (
            *("os.urandom", "os.getrandom", "uuid.uuid1", "random.SystemRandom", "torch.seed"),
            *(
                f"secrets.{name}"
                for name in ("token_bytes", "token_hex", "token_urlsafe", "randbelow", "randbits", "choice")
            ),
        ),
        Kind.ENTROPY,
    ),
    **dict.fromkeys(
        (
            *(f"os.path.{name}" for name in ("exists", "lexists", "isfile", "isdir", "getsize", "getmtime")),
            *("os.stat", "os.access"),
        ),
        Kind.FILE,
    ),
    **dict.fromkeys(
        ("torch.empty", "torch.empty_like", "torch.empty_strided", "numpy.empty", "numpy.empty_like"), Kind.MEMORY
    ),
}
_UNSEEDED = frozenset(
    ("numpy.random.default_rng", "numpy.random.seed", "random.seed", "random.Random", "uuid.uuid4")
)  # without arguments
_METHODS = {
    **dict.fromkeys(("new_empty", "to_empty"), Kind.MEMORY),
    **dict.fromkeys(("exists", "is_file", "is_dir"), Kind.FILE),  # of a pathlib.Path
}


@dataclass(frozen=True, slots=True, order=True)
class SourceCall:
    path: str
    line: int
    name: str
    kind: Kind

    def __str__(self) -> str:
        return f"{self.path.rpartition('/')[2]}:{self.line} {self.name}"


def source_calls(sources: Mapping[str, str]) -> tuple[SourceCall, ...]:
    """`sources`: text by path. What is no Python of this version has none."""
    return tuple(sorted({call for path, text in sources.items() for call in _calls(path, text)}))


def _calls(path: str, text: str) -> Iterator[SourceCall]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the program's own source
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    names = dict(_imported(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (name := _dotted(node.func, names)):
            kind = _CALLS.get(name) or _METHODS.get(name.rpartition(".")[2])
            if kind is None and name in _UNSEEDED and not node.args and not node.keywords:
                kind = Kind.UNSEEDED
            if kind is not None:
                yield SourceCall(path, node.lineno, name, kind)


def _imported(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """What a name of the module stands for."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                whole = alias.asname is not None
                yield (
                    alias.asname or alias.name.partition(".")[0],
                    alias.name if whole else alias.name.partition(".")[0],
                )
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def _dotted(node: ast.expr, names: Mapping[str, str]) -> str:
    """`np.random.seed` as `numpy.random.seed`; a method of what is no name keeps its last word."""
    words: list[str] = []
    while isinstance(node, ast.Attribute):
        words.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name):
        words.append(names.get(node.id, node.id))
    elif len(words) != 1:
        return ""
    return ".".join(reversed(words))
