"""What torch's own analyser of Flight Recorder dumps (`torchfrtrace`) says of a folder."""

from __future__ import annotations

import contextlib
import io
import logging
import sys
from pathlib import Path


def analysed(dumps: Path, *options: str) -> str:
    """In this process: a new one would import torch first, which takes 2 s."""
    from torch.distributed.flight_recorder import fr_trace

    said = io.StringIO()
    handlers = [one for one in logging.getLogger("Flight Recorder").handlers if isinstance(one, logging.StreamHandler)]
    assert handlers, "its logger writes to the stream of the process that imported it"
    for handler in handlers:
        handler.setStream(said)
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            fr_trace.main([str(dumps), *options])
    finally:
        for handler in handlers:
            handler.setStream(sys.__stderr__)
    return said.getvalue()
