"""Starts a rank again that multiprocessing spawned: it reads what it was given from the capsule, in place of a pipe.

Only the replayed rank unpickles it. Its parent is not there; to the rank it lives as long as the rank itself.
"""

from __future__ import annotations

import os
import sys
from typing import Any, NoReturn

from prismdbg.rank.recording.inputs.spawned import Load, load_with


def without_parent() -> None:
    """torch asks for a SIGINT when the parent of its process ends. That of a restored rank does so at once."""
    if (torchs := sys.modules.get("torch.multiprocessing.spawn")) is not None:
        vars(torchs)["_prctl_pr_set_pdeathsig"] = lambda _: None


def install(path: str) -> None:
    """Called before the program's first line. `path`: of the two pickles."""
    from multiprocessing import spawn

    prepared: list[bool] = []

    def load(unpickle: Load, file: Any) -> Any:
        """The second one is the process. The capsule has no key by which it knows the processes that it starts."""
        if not prepared:
            prepared.append(True)
            return unpickle(file)
        from prismdbg.rank.replay import stand_ins

        process = stand_ins.load(file)
        process.authkey = os.urandom(32)
        without_parent()
        return process

    def spawn_main(**_: object) -> NoReturn:
        """The numbers of a pipe and of a resource tracker in the command are those of files that are not open here."""
        parent, _open = os.pipe()
        code = vars(spawn)["_main"](os.open(path, os.O_RDONLY), parent)
        sys.exit(code)  # which is another function since torch is imported: it says the code

    load_with(load)
    vars(spawn)["spawn_main"] = spawn_main
