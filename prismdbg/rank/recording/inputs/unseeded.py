"""Random generators that a program makes without a seed (`random.Random()`, `numpy.random.default_rng()`), and
`uuid.uuid4()`.

They would take what the operating system gives. Here they take numbers that follow from one such number, the root of
the process: with the same root, the program draws the same again. A forked child has numbers of its own. Which number
follows depends on the function that asks and on how often it has asked, not on what others ask for.

Not `os.urandom`, `secrets` or `random.SystemRandom`: these may make keys.
"""

from __future__ import annotations

import functools
import itertools
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

BITS = 128  # as numpy's own seeds have
_TWISTER_BITS = 19_936  # as many as `random` takes from the operating system

CALLED: list[Callable[[], Any]] = []  # by the program

_root = 0
_process = ""  # how often each of its ancestors had forked before it
_forks = 0
_asked: dict[str, Iterator[int]] = {}
_generator: Any = None  # that of `random`, and how it is seeded, as they were when it was imported
_seed: Any = None
_own: tuple[str, ...] = (f"{Path(__file__).parents[3]}{os.sep}",)  # files of which no function asks for itself


def begin(root: int) -> None:
    global _root
    _root = root
    os.register_at_fork(before=about_to_fork, after_in_child=forked)


def of_system() -> int:
    return int.from_bytes(os.urandom(BITS // 8), "little")


def watch(name: str) -> None:
    """The import of `random` or of `numpy.random` is complete."""
    if name == "random":
        _watch_random(sys.modules[name])
    elif name == "numpy.random":
        sys.modules["numpy.random.bit_generator"].randbits = _number  # type: ignore[attr-defined]


def _watch_random(random: Any) -> None:
    global _generator, _seed, _own
    original = random.Random.seed
    _generator, _seed = random.Random, original
    _own = (*_own, random.__file__)

    @functools.wraps(original)
    def seed(self: Any, a: Any = None, *args: Any, **named: Any) -> None:
        original(self, _number(_TWISTER_BITS) if a is None else a, *args, **named)

    random.Random.seed = seed
    random.seed = random._inst.seed


def watch_uuid(uuid: Any) -> None:
    """The import of `uuid` is complete."""
    from _blake2 import blake2b  # a generator takes ten times as long to be seeded

    original, made = uuid.uuid4, uuid.UUID

    @functools.wraps(original)
    def uuid4() -> Any:
        try:
            drawn = blake2b(_next(sys._getframe(1)).encode("utf-8", "surrogatepass"), digest_size=16).digest()
        except (AttributeError, TypeError, ValueError):  # in an interpreter that ends, or without a line that calls
            return original()
        return made(bytes=drawn, version=4)

    uuid.uuid4 = uuid4
    CALLED.append(uuid4)


def _number(bits: int) -> int:
    try:
        generator = _generator.__new__(_generator)
        _seed(generator, _next(sys._getframe(1)))
        return int(generator.getrandbits(bits))
    except Exception:  # in an interpreter that ends, say
        return int.from_bytes(os.urandom(bits // 8), "little")


def _next(frame: FrameType | None) -> str:
    """What the next number of the function that asks follows from."""
    site = _site(frame)
    count = next(_asked.setdefault(site, itertools.count(1)))  # threads may ask at once
    return f"{_root} {_process} {site} {count}"


def _site(frame: FrameType | None) -> str:
    """The function that asks, outside of prismdbg, which lies elsewhere in a replay, and of the module that makes
    generators."""
    while frame is not None and frame.f_code.co_filename.startswith(_own):
        frame = frame.f_back
    return "" if frame is None else f"{frame.f_code.co_filename} {frame.f_code.co_qualname}"


def about_to_fork() -> None:
    global _forks
    _forks += 1


def forked() -> None:
    global _process, _forks
    _process, _forks = f"{_process}.{_forks}", 0
    _asked.clear()
