"""What the random generators began with that a program has without asking for them: recorded, and put back where the
program is started again.

torch's own generator is seeded by the operating system when torch is imported, the global ones of `random` and numpy
when those are. Each is read or set when that import is complete, before the program can draw from it or seed it. What
the program makes without a seed follows from a number of the process (`unseeded`). Standard library only, for it is
needed before torch is there; numpy is touched only where the program imports it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from prismdbg.rank.recording.inputs import unseeded
from prismdbg.settings.seeds import MODULES, UNSEEDED, WANTED, Seed

Listener = Callable[[str, Seed], None]

_began: dict[str, Seed] = {}
_wanted: dict[str, Seed] = {}
_listener: Listener | None = None


def prepare() -> None:
    """Called before the program's first line; what is imported already is looked at now."""
    if os.environ.pop(WANTED, ""):
        _wanted.update(configured().get("seeds", {}))
    _began[UNSEEDED] = _wanted.get(UNSEEDED, unseeded.of_system())
    unseeded.begin(_began[UNSEEDED])
    for name in MODULES:
        if name in sys.modules:
            imported(name)


def configured() -> dict[str, Any]:
    """What the process was told."""
    import json
    from pathlib import Path

    config: dict[str, Any] = json.loads(Path(os.environ["PRISMDBG_CONFIG"]).read_text())
    return config


def imported(name: str) -> None:
    """The import of one of `MODULES` is complete."""
    module = sys.modules[name]
    read, put_back = _WAYS[name]
    if name in _wanted:
        put_back(module, _wanted[name])
    _began[name] = read(module)
    unseeded.watch(name)
    if _listener is not None:
        _listener(name, _began[name])
    if name == "random":  # after its own hook, which seeds it anew in a child
        os.register_at_fork(after_in_child=_seeded_anew)


def _seeded_anew() -> None:
    """In a forked child. Python does that with what the operating system gives."""
    sys.modules["random"].seed()


def as_forked() -> None:
    """What forking does to random generators of the child, in a process that goes on as one."""
    unseeded.about_to_fork()
    unseeded.forked()
    if "random" in _began:
        _seeded_anew()
    if (tempfile := sys.modules.get("tempfile")) is not None:  # it has another generator in each process
        vars(tempfile)["_name_sequence"] = None


def began() -> dict[str, Seed]:
    """By module, of those that are imported so far."""
    return dict(_began)


def listen(listener: Listener) -> None:
    """Is told of those that are imported from now on."""
    global _listener
    _listener = listener


def _read_torch(torch: Any) -> int:
    return int(torch.default_generator.initial_seed())


def _put_back_torch(torch: Any, seed: Any) -> None:
    torch.default_generator.manual_seed(int(seed))


def _read_random(random: Any) -> list[int]:
    """The words of the Mersenne Twister and, as the last one, how many of them are drawn."""
    return list(random.getstate()[1])


def _put_back_random(random: Any, state: Any) -> None:
    random.setstate((random.getstate()[0], tuple(state), None))


def _read_numpy(numpy_random: Any) -> list[int]:
    _, words, position, *_ = numpy_random.get_state()
    return [*words.tolist(), position]


def _put_back_numpy(numpy_random: Any, state: Any) -> None:
    *words, position = state
    numpy_random.set_state(("MT19937", words, position, 0, 0.0))


_WAYS: dict[str, tuple[Callable[[Any], Seed], Callable[[Any, Any], None]]] = {
    "random": (_read_random, _put_back_random),
    "numpy.random": (_read_numpy, _put_back_numpy),
    "torch": (_read_torch, _put_back_torch),
}
