"""Whether a collective carries what a program computes with, or what it is steered by: objects, counts, metadata."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import torch

from prismdbg.model.ops import OBJECT_CALLS

_DEPTH = 40  # ours included
# Ours, and the standard library's, whose decorators torch uses: neither is the program's.
_BETWEEN = (f"{Path(__file__).parents[2]}/", f"{Path(os.__file__).parent}/")


def is_control(tensors: list[torch.Tensor]) -> bool:
    """Nothing that is not floating point may be made up: it may be a length, an index or a pickle."""
    return any(not (t.is_floating_point() or t.is_complex()) for t in tensors)


def object_call() -> str:
    """The object collective that issues the current call, or nothing."""
    return next((f.f_code.co_name for f in _torch_frames() if f.f_code.co_name in OBJECT_CALLS), "")


def holds_it_already() -> bool:
    """Whether DDP aligns parameters and buffers with another rank's: this rank has made its own."""
    return any(f.f_code.co_filename.endswith("nn/parallel/distributed.py") for f in _torch_frames())


def _torch_frames() -> Iterator[FrameType]:
    """Those through which the program issued the call: a module in DDP may issue calls of its own."""
    frame: FrameType | None = sys._getframe(2)
    for _ in range(_DEPTH):
        if frame is None:
            return
        filename = frame.f_code.co_filename
        if "/torch/" in filename:
            yield frame
        elif not filename.startswith(_BETWEEN):
            return
        frame = frame.f_back
