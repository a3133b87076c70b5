"""Through which frames a collective was issued: by DDP itself, or by the program that DDP calls."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any

from prismdbg.rank.emulation.control import holds_it_already, object_call


def function_in(filename: str, name: str) -> Callable[[Callable[[], Any]], Any]:
    """A function of this name that calls what it is given, in a file of this name."""
    scope: dict[str, Any] = {}
    exec(compile(f"def {name}(call):\n    return call()", filename, "exec"), scope)
    found: Callable[[Callable[[], Any]], Any] = scope[name]
    return found


DDP = function_in("/site/torch/nn/parallel/distributed.py", "_sync_buffers")
C10D = function_in("/site/torch/distributed/distributed_c10d.py", "broadcast")
OBJECTS = function_in("/site/torch/distributed/distributed_c10d.py", "broadcast_object_list")
MODULE = function_in("/site/torch/nn/modules/module.py", "_call_impl")
FORWARD = function_in("/home/me/train.py", "forward")


def test_what_ddp_aligns_is_there_and_what_its_module_asks_for_is_not() -> None:
    assert DDP(partial(C10D, holds_it_already))
    assert not DDP(partial(MODULE, partial(FORWARD, partial(C10D, holds_it_already))))
    assert not FORWARD(partial(C10D, holds_it_already))


def test_decorators_of_the_standard_library_are_no_frames_of_the_program() -> None:
    decorated = contextlib.contextmanager(lambda: iter([None]))()(holds_it_already)
    assert DDP(decorated) and not FORWARD(decorated)


def test_the_object_collective_is_the_one_that_the_program_called() -> None:
    assert OBJECTS(partial(C10D, object_call)) == "broadcast_object_list"
    assert OBJECTS(partial(FORWARD, partial(C10D, object_call))) == ""
