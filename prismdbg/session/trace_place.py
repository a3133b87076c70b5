"""Which memory trace tells of the place where a rank stands, and where in it that is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from prismdbg.model.moment import Moment


@dataclass(frozen=True, slots=True, kw_only=True)
class TracePlace:
    """`folder`: as this side sees it, None where there is none yet. at: the moment in it, None for its end."""

    folder: Path | None = None
    at: Moment | None = None
