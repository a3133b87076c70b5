"""A Python frame, and the one rule that says which frame of a stack is the program's own line."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from prismdbg.model import user_code
from prismdbg.model.plain_text import one_line

_PACKAGES = re.compile(r"/(?:site|dist)-packages/")
_PYTHON = re.compile(r"^<|/lib(?:64)?/python\d|/python\d+\.zip/")
# Wrappers that are also installed in place, from a checkout of their own.
_CHECKED_OUT = re.compile(
    r"/typing_extensions\.py$|/deepspeed/(?:comm|runtime)/|/torch/(?:distributed|autograd|nn|optim|_\w+)/"
)
_OVERRIDES = frozenset({"__torch_function__", "__torch_dispatch__"})
# Wrappers that say no more than the call's own name does.
_PLAIN_CALL = re.compile(
    r"/torch/(?:_\w+\.py|overrides\.py|autograd/|utils/|distributed/(?:c10d_logger|distributed_c10d|_\w+)\.py)"
    r"|/deepspeed/comm/|/typing_extensions\.py$"
)

# torch's pipelining runs each stage once to learn the shapes that it sends: 2.13, and before 2.12 in one function.
_INFERENCES = frozenset({"_forward_metadata_inference", "_backward_metadata_inference", "_shape_inference"})
_PIPELINING = "/torch/distributed/pipelining/"


@dataclass(frozen=True, slots=True)
class Frame:
    """One Python frame; `filename`, `line` and `name` as in Flight Recorder's `frames`."""

    filename: str
    line: int
    name: str

    def __str__(self) -> str:
        return one_line(f"{self.filename}:{self.line} in {self.name}")


@lru_cache(1 << 14)
def is_installed(filename: str) -> bool:
    """Installed code, the standard library, and what has no file (`<frozen ...>`, `<string>`)."""
    return any(pattern.search(filename) for pattern in (_PYTHON, _PACKAGES, _CHECKED_OUT))


def is_library(filename: str) -> bool:
    """Code that is not the user's: what is installed or, if `--user-code` names their code, all other code."""
    return not user_code.holds(filename) if user_code.paths() else is_installed(filename)


def is_program(filename: str) -> bool:
    """Whether breakpoints and expressions know a file's lines: the program's, also what is not below `--user-code`."""
    return user_code.holds(filename) or not is_installed(filename)


def is_override(name: str) -> bool:
    """An override of torch's calls is a wrapper, whoever wrote it."""
    return _last_part(name) in _OVERRIDES


def infers_shapes(frames: Iterable[Frame]) -> bool:
    """Whether torch's pipelining calls the program only to learn shapes: what it computes with then is what happened to
    be in memory."""
    return any(_PIPELINING in frame.filename and _last_part(frame.name) in _INFERENCES for frame in frames)


def own_frames(frames: Iterable[Frame]) -> tuple[Frame, ...]:
    """The program's own, innermost first as they came; empty for a program that is installed itself.

    A stack without any frame below `--user-code` is read as if that was not given.
    """
    called = [frame for frame in frames if not is_override(frame.name)]
    own = tuple(frame for frame in called if not is_library(frame.filename))
    return own or tuple(frame for frame in called if is_program(frame.filename))


def source_index(frames: tuple[Frame, ...]) -> int:
    """The place of the program's own line in `frames` (innermost first): its innermost own frame.

    A program that is installed itself (`python -m package`) has none: there it is the outermost frame of a package.
    0 where there is no frame at all.
    """
    own = own_frames(frames)
    return frames.index(own[0]) if own else _outermost(frames)


def source_of(frames: tuple[Frame, ...]) -> Frame | None:
    """The program's own line, see `source_index`."""
    return frames[source_index(frames)] if frames else None


def framework_of(frames: tuple[Frame, ...]) -> Frame | None:
    """The innermost frame of a framework below the program's own line; None where the program calls by itself."""
    below = frames[: source_index(frames)]
    return next((frame for frame in below if _says_more(frame)), None)


def place_of(frames: tuple[Frame, ...]) -> str:
    """`train.py:12 in main`, and `, by fsdp.py:7 in reduce` where a framework called for it; empty without frames."""
    source, framework = source_of(frames), framework_of(frames)
    if source is None:
        return ""
    return f"{source}, by {packaged(framework)}" if framework is not None else str(source)


def _outermost(frames: tuple[Frame, ...]) -> int:
    of_packages = (n for n in reversed(range(len(frames))) if not _is_python(frames[n].filename))
    return next(of_packages, max(len(frames) - 1, 0))


def _is_python(filename: str) -> bool:
    """The interpreter's own: its standard library, which started the program."""
    return bool(_PYTHON.search(filename)) and not _PACKAGES.search(filename)


def _says_more(frame: Frame) -> bool:
    plain = is_override(frame.name) or _is_python(frame.filename) or not is_library(frame.filename)
    return not plain and not _PLAIN_CALL.search(frame.filename)


def packaged(frame: Frame) -> str:
    """Without the folders above the package."""
    return str(Frame(_PACKAGES.split(frame.filename)[-1], frame.line, frame.name))


def _last_part(name: str) -> str:
    """Of a qualified name, as py-spy gives them."""
    return name.rpartition(".")[2]
