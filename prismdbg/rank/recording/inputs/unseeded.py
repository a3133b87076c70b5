"""Random generators that a program makes without a seed: `random.Random()`, `numpy.random.default_rng()`.

They would begin with what the operating system gives. Here they begin with numbers that follow from one such number,
the root of the process: with the same root, the program draws the same again. A forked child has numbers of its own.
Which number follows depends on the function that asks and on how often it has asked, not on what others ask for.

Not `os.urandom`, `secrets` or `random.SystemRandom`: these may make keys.
"""

from __future__ import annotations

import functools
import itertools
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

BITS = 128  # as numpy's own seeds have
_TWISTER_BITS = 19_936  # as many as `random` takes from the operating system

_root = 0
_process = ""  # how often each of its ancestors had forked before it
_forks = 0
_asked: dict[str, Iterator[int]] = {}
_generator: Any = None  # that of `random`, and how it is seeded, as they were when it was imported
_seed: Any = None
_own: tuple[str, ...] = ()  # files of which no function asks for itself


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
    _own = (f"{Path(__file__).parents[3]}{os.sep}", random.__file__)

    @functools.wraps(original)
    def seed(self: Any, a: Any = None, *args: Any, **named: Any) -> None:
        original(self, _number(_TWISTER_BITS) if a is None else a, *args, **named)

    random.Random.seed = seed
    random.seed = random._inst.seed


def _number(bits: int) -> int:
    try:
        site = _site(sys._getframe(1))
        count = next(_asked.setdefault(site, itertools.count(1)))  # threads may ask at once
        generator = _generator.__new__(_generator)
        _seed(generator, f"{_root} {_process} {site} {count}")
        return int(generator.getrandbits(bits))
    except Exception:  # in an interpreter that ends, say
        return int.from_bytes(os.urandom(bits // 8), "little")


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
