"""The nodes of a job as one of its supervisors knows them.

Each supervisor reads once what describes each node. How often it lists them depends on how many they are, so that the
load of a file server does not grow with the square of the nodes.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from prismdbg.errors import CapsuleError
from prismdbg.jobs.storage.job_nodes import NodeFolder, is_described
from prismdbg.jobs.storage.run_folder import RunFolder

LISTED_S = 0.05  # for each node: of N supervisors each lists N nodes every N / 20 s


class KnownNodes:
    """In the order of their names, those of one start of the job. What describes a node does not change, and is read
    once. `tell` is told of one that cannot be read; it is passed over, and tried again."""

    def __init__(self, run: RunFolder, restart: int, tell: Callable[[str], None] = lambda _: None) -> None:
        self._run = run
        self._restart = restart
        self._tell = tell
        self._restarts: dict[str, int] = {}
        self._nodes: list[NodeFolder] = []
        self._listed_s = 0.0

    def now(self) -> list[NodeFolder]:
        """As RUN lists them now."""
        new = [path for path in self._run.nodes.iterdir() if path.name not in self._restarts and is_described(path)]
        for node in map(NodeFolder, new):
            try:
                self._restarts[node.name] = node.restart
            except (CapsuleError, OSError) as error:
                self._tell(f"node {node.name} is passed over: {error}")
        mine = sorted(name for name, restart in self._restarts.items() if restart == self._restart)
        self._nodes = [NodeFolder(self._run.nodes / name) for name in mine]
        self._listed_s = time.monotonic()
        return self._nodes

    def lately(self) -> list[NodeFolder]:
        """The more there are, the older the list may be."""
        is_old = time.monotonic() - self._listed_s > LISTED_S * len(self._restarts)
        return self.now() if is_old and self._run.nodes.is_dir() else self._nodes
