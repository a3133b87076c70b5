"""Which worker of pytest-xdist takes which file. Each worker that needs a Docker engine starts one and makes its
images, a minute's work: files with Docker go to the first that did, as long as there is other work for the others."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

_WITH_DOCKER = re.compile(r'mark\.docker\b|"docker"|\bruntime_places\b')


class DockerOnOneWorker(LoadFileScheduling):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._owner: WorkerController | None = None

    def _assign_work_unit(self, node: WorkerController) -> None:
        file = next_file(self.workqueue, has_docker=self._owner in (None, node))
        self.workqueue.move_to_end(file, last=False)
        if self._owner is None and needs_docker(file):
            self._owner = node
        super()._assign_work_unit(node)


def next_file(files: Iterable[str], *, has_docker: bool) -> str:
    """The first of those that wait, without Docker where another worker has it and something else waits."""
    waiting = list(files)
    return next((file for file in waiting if has_docker or not needs_docker(file)), waiting[0])


@cache
def needs_docker(file: str) -> bool:
    """By its text; `file`: an integration test's path below the root."""
    path = Path(__file__).resolve().parent.parent / file
    return file.startswith("tests/integration/") and _WITH_DOCKER.search(path.read_text()) is not None
