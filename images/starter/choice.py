"""Which checkpoint engine is run: the one that the spec names. Standard library only."""

from __future__ import annotations

from typing import Any

import criu
from engine import Engine

ENGINES = {"criu": criu.Criu}
READ_IN_PLACE = (*criu.READ_IN_PLACE,)


def engine_of(told: dict[str, Any]) -> Engine:
    return ENGINES[told["engine"]](told["command"])
