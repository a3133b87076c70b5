"""`record --memory`: a rank traced from its start, before it is known which rank it is.

The trace begins in RUN/memory, named by the process; when the rank's folder is there, a link in it leads to the trace.
`record` removes what nobody claimed: launchers and workers start as ranks do.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from prismdbg.errors import PrismError
from prismdbg.rank.config import RANK_MEMORY, RankConfig
from prismdbg.rank.tracing import tracer


class MemoryFromStart:
    """Every method may be called at any time; none raises into the program."""

    def __init__(self, config: RankConfig, started_ticks: int) -> None:
        self._folder = Path(config.run) / RANK_MEMORY / f"{os.getpid()}.{started_ticks}"
        self.missing = ""
        try:
            tracer.arm(self._folder, cache_dir=Path(config.cache_dir))
        except (PrismError, OSError) as error:
            self.missing = f"memory is not traced: {error}"
            if os.environ.get("RANK", "0") == "0":
                print(f"prismdbg: {self.missing}", file=sys.stderr)

    def claim(self, rank_folder: Path) -> dict[str, Any]:
        """This process is a rank, and that is its folder. What its log should say of the trace."""
        if self.missing:
            return {"text": self.missing}
        try:
            target = os.path.relpath(self._folder, rank_folder)
            (rank_folder / RANK_MEMORY).symlink_to(target, target_is_directory=True)
        except OSError as error:
            return {"text": f"the memory trace lies in {self._folder}: {error}"}
        return {"text": "traced from the start"}

    def end(self) -> dict[str, Any]:
        """What the rank's log should say at its end: how much there is, and whether it is all."""
        figures = tracer.stats()
        return {name: figures[name] for name in ("records", "peak", "backend", "lost") if figures.get(name)}
