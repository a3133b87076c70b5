"""`--memory` and `--memory-cap`: a rank traced from its start, before it is known which rank it is.

The trace begins in RUN/memory, named by the process; when the rank's folder is there, a link in it leads to the trace.
`record` removes what nobody claimed: launchers and workers start as ranks do.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from prismdbg.errors import PrismError
from prismdbg.rank.program.stderr import say
from prismdbg.rank.tracing import tracer
from prismdbg.settings.rank_config import CAP_DETAILS, RANK_MEMORY, RankConfig


class MemoryFromStart:
    """Every method may be called at any time; none raises into the program."""

    def __init__(self, config: RankConfig, started_ticks: int) -> None:
        self._config = config
        self._folder = Path(config.home) / RANK_MEMORY / f"{os.getpid()}.{started_ticks}"
        self.missing = ""
        try:
            tracer.arm(self._folder, cache_dir=Path(config.cache_dir), from_start=True)
            self._hold_cap(os.environ.get("RANK", ""))
        except (PrismError, OSError) as error:
            self.leave(str(error))
            if os.environ.get("RANK", "0") == "0":
                say(self.missing)

    def _hold_cap(self, rank: str) -> None:
        if self._config.memory_cap:
            of_rank = f" --rank {rank}" if rank else ""
            tracer.cap(self._config.memory_cap, f"{CAP_DETAILS}prismdbg memory {self._config.run}{of_rank}")

    def leave(self, reason: str) -> None:
        """This process is not traced, or not from here on."""
        unheld = ", and --memory-cap does not hold" if self._config.memory_cap else ""
        self.missing = f"memory is not traced{unheld}: {reason}"

    def claim(self, rank_folder: Path) -> dict[str, Any]:
        """This process is a rank, and that is its folder. What its log should say of the trace."""
        if self.missing:
            return {"text": self.missing}
        self._hold_cap(rank_folder.name.partition(".")[0])
        cap = {"cap": self._config.memory_cap} if self._config.memory_cap else {}
        try:
            target = os.path.relpath(self._folder, rank_folder)
            (rank_folder / RANK_MEMORY).symlink_to(target, target_is_directory=True)
        except OSError as error:
            return {"text": f"the memory trace is in {self._folder}: {error}", **cap}
        lacks = {"untraced": tracer.stats()["untraced"]} if tracer.stats()["untraced"] else {}
        return {"text": "traced from the start", **cap, **lacks}

    def end(self) -> dict[str, Any]:
        """The trace ends. What the rank's log should say then: how much there is, and whether it is all."""
        figures = tracer.stats()
        tracer.ended()
        names = ("records", "peak", "device", "backend", "refused", "lost", "untraced")
        return {name: figures[name] for name in names if figures.get(name)}
