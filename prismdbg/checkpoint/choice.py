"""Which checkpoint engine is used. The only module outside of an engine's own ones that knows one by name."""

from __future__ import annotations

from prismdbg.checkpoint import criu_engine
from prismdbg.checkpoint.engine import Engine, Find, Use

NAME = criu_engine.NAME
_FIND: Find = criu_engine.find


def find(use: Use = Use.RUN) -> Engine:
    """The engine for this use. `FacilityError` says why this machine has none."""
    return _FIND(use)
