"""Who issues a collective: torch's Python functions, or C++."""

from __future__ import annotations

import sys
from typing import Any

PYTHON_CALLERS = ("/torch/distributed/distributed_c10d.py",)
FUNCTIONAL_CALLERS = ("/torch/_ops.py",)
_OWN = ("/prismdbg/rank/",)


def calling_file() -> str:
    """The file of the innermost Python frame that is not ours."""
    frame: Any = sys._getframe(1)
    while frame is not None and any(part in frame.f_code.co_filename for part in _OWN):
        frame = frame.f_back
    return frame.f_code.co_filename if frame is not None else ""
