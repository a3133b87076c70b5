"""What `prismdbg sweep` is asked for."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import prod
from pathlib import Path

from prismdbg.emulate.request import USUAL_STEPS
from prismdbg.simulate.engine.timeline import Timeline
from prismdbg.simulate.graph.mesh import Mesh
from prismdbg.sweep.space import Configuration, Space

FOLDER = "folder"  # {folder}: of the configuration alone, for what its program writes


class How(StrEnum):
    EMULATE = "emulate"
    RECORD = "record"
    PREDICT = "predict"


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRequest:
    """command: with `{name}` for what is tried. classes: the axes along which ranks differ; empty: found out. jobs: so
    many configurations at once. tokens: of an iteration, numbers and `{name}`s joined by `*`; empty: not known.
    predicted: what a command, which does not run then, is predicted to take on a mesh."""

    output: Path
    space: Space
    command: tuple[str, ...]
    how: How = How.EMULATE
    steps: int = USUAL_STEPS
    classes: tuple[str, ...] = ()
    memory: bool = False
    jobs: int = 1
    bound_s: float = 3600.0
    cluster: Path | None = None
    tokens: str = ""
    predicted: Callable[[Sequence[str], Mesh], Timeline] | None = None

    @property
    def digest(self) -> str:
        """Of what a run of a configuration depends on; what only its simulation depends on is left out."""
        said = (self.command, self.how, self.steps, self.classes, self.memory, self.space.world, self.space.axes)
        return hashlib.sha256(json.dumps([said, str(Path.cwd())], default=str).encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One configuration to be run, in a process of its own. output: what it prints."""

    request: SweepRequest
    configuration: Configuration
    run: Path
    output: Path

    @property
    def mesh(self) -> Mesh:
        assert self.configuration.mesh is not None
        return self.configuration.mesh

    @property
    def command(self) -> tuple[str, ...]:
        """With a folder of its own for what the program writes."""
        folder = self.output.parent / FOLDER
        folder.mkdir(exist_ok=True)
        return self.configuration.words(self.request.command, folder=os.fspath(folder.absolute()))

    @property
    def tokens(self) -> int:
        return tokens_of(self.configuration, self.request.tokens)


def tokens_of(configuration: Configuration, text: str) -> int:
    """0 where it is not known."""
    return prod(int(factor) for factor in configuration.words(text.split("*"))) if text else 0
