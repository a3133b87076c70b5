"""Values that the program reads out of tensors and decides by: the real job, with real values, may go another way."""

from __future__ import annotations

import linecache
import sys
from collections import Counter
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from prismdbg.rank.program.decisions import decided_at

_READS = ("item", "tolist", "__bool__", "__int__", "__float__", "__index__")
_OURS = f"{Path(__file__).parents[2]}/"
_TORCH = f"{Path(torch.__file__).parent}/"  # not its neighbours, such as torchtitan
_DECIDES = f"{_TORCH}amp/grad_scaler.py"  # what torch reads elsewhere are counters and seeds of its own


class Reads:
    """Counts by line. `is_synthesized`: whether values may rest on synthesized data by now."""

    def __init__(self, is_synthesized: Callable[[], bool]) -> None:
        self._is_synthesized = is_synthesized
        self._lines: Counter[tuple[str, int, str]] = Counter()

    def install(self) -> None:
        for name in _READS:
            setattr(torch.Tensor, name, self._noted(getattr(torch.Tensor, name)))

    def _noted(self, read: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(read)
        def noted(*args: Any, **kwargs: Any) -> Any:
            if self._is_synthesized():
                self._note(sys._getframe(1))
            return read(*args, **kwargs)

        return noted

    def _note(self, frame: FrameType) -> None:
        code = frame.f_code
        if code.co_filename == _DECIDES or not code.co_filename.startswith((_TORCH, _OURS)):
            self._lines[code.co_filename, frame.f_lineno, code.co_name] += 1

    def decisions(self) -> list[dict[str, Any]]:
        """A row for each line that reads what the program decides by: where it does so, and how often it read."""
        rows = []
        for (filename, line, name), count in sorted(self._lines.items()):
            at = decided_at("".join(linecache.getlines(filename)), line)
            if at:
                rows.append({"read": f"{filename}:{line} in {name}", "decided": f"{filename}:{at}", "count": count})
        return rows
