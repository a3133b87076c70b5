"""Runs a rank as an ordinary process on this machine: from the program's start only, and nothing holds back its
writes. For machines where neither Docker nor namespaces may be used."""

from __future__ import annotations

import os
from pathlib import Path

from prismdbg.capsule import path_kind
from prismdbg.errors import RuntimeFailure
from prismdbg.runtime.names import PLAIN
from prismdbg.runtime.runtime import Say, fact_and_advice, silent
from prismdbg.runtime.spec import ImageOrigin, LaidFile, ReplaySpec
from prismdbg.runtime.started_rank import StartedRank
from prismdbg.runtime.starter_process import start_process
from prismdbg.runtime.starter_spec import Isolation


class PlainRuntime:
    """Refuses whatever it could only pretend to give."""

    name = PLAIN

    def available(self) -> str | None:
        return None

    def refuses(self, spec: ReplaySpec) -> str | None:
        if isinstance(spec.origin, ImageOrigin):
            return "a checkpoint needs a container or namespaces: use --runtime docker or local"
        if spec.saving is not None:
            return "a plain process cannot go back in time: use --runtime docker or local"
        if not spec.allow_writes:
            return "a plain process repeats the program's writes on this machine: add --allow-writes to permit that"
        if moved := [bind.target for bind in spec.binds if Path(bind.target) != bind.source]:
            return f"{moved[0]} cannot be mounted without namespaces: use Docker or run as root"
        if mine := [file for file in spec.files if _is_replaced(file, spec)]:
            return f"a plain process reads {mine[0].target}, not {mine[0].source}: use --runtime docker or local"
        if spec.uid not in (os.geteuid(), 0):
            return f"the rank ran as user {spec.uid}: run as this user, or use Docker"
        return None

    def start(self, spec: ReplaySpec, say: Say = silent) -> StartedRank:
        if reason := self.refuses(spec):
            fact, advice = fact_and_advice(reason)
            raise RuntimeFailure(f"{spec.name} cannot run as a plain process: {fact}", hint=advice)
        for file in spec.files:
            if file.source is not None and not path_kind.exists(file.target):
                raise RuntimeFailure(
                    f"{file.target} does not exist on this machine", hint="use Docker or namespaces, which provide it"
                )
        return start_process(spec, "a plain process on this machine", Isolation.NONE)


def _is_replaced(file: LaidFile, spec: ReplaySpec) -> bool:
    """By a file of the user's, as the edited program is. What the capsule has is compared with what is here."""
    if file.source is None or any(file.source.is_relative_to(capsule) for capsule in spec.capsule_paths):
        return False
    return os.path.realpath(file.source) != os.path.realpath(file.target)
