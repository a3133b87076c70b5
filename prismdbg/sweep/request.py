"""What `prismdbg sweep` is asked for."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import prod
from pathlib import Path

from prismdbg.emulate.request import USUAL_STEPS
from prismdbg.simulate.graph.mesh import Mesh
from prismdbg.sweep.place import HERE, Place
from prismdbg.sweep.space import Configuration, Space

_PLACEHOLDER = "{"
FOLDER = "folder"  # {folder}: of the configuration alone, for what its program writes


class How(StrEnum):
    EMULATE = "emulate"
    RECORD = "record"
    PREDICT = "predict"


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRequest:
    """command: with `{name}` for what is tried. classes: the axes along which ranks differ; empty: found out. jobs: so
    many configurations at once; 0: as many as Slurm runs. tokens: of an iteration, numbers and `{name}`s joined by `*`;
    empty: not known. bound_s: of each rank that is emulated, of each job that is recorded. telemetry_ns: of recorded
    jobs, between two readings of the sensors; 0: none."""

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
    telemetry_ns: int = 0
    place: Place = HERE

    @property
    def digest(self) -> str:
        """Of what a run of a configuration depends on, as far as the command names it: also what its files contain.
        What only the simulation depends on is left out."""
        files = _contents(self.command)
        said = (self.command, self.how, self.steps, self.classes, self.memory, self.space.world, self.space.axes, files)
        more = [self.telemetry_ns] if self.telemetry_ns else []
        return hashlib.sha256(json.dumps([said, *more, str(Path.cwd())], default=str).encode()).hexdigest()


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
    def folder(self) -> Path:
        """Its own, for what the program writes."""
        return self.output.parent / FOLDER

    @property
    def command(self) -> tuple[str, ...]:
        return self.configuration.words(self.request.command, folder=os.fspath(self.folder.absolute()))

    @property
    def files(self) -> list[str]:
        """What the files contain that are named with a placeholder. Those in its own folder are its program's."""
        own = f"{{{FOLDER}}}"
        named = [word for word in self.request.command if _PLACEHOLDER in word and own not in word]
        return _contents(self.configuration.words(named))

    @property
    def tokens(self) -> int:
        return tokens_of(self.configuration, self.request.tokens)


def _contents(words: Sequence[str]) -> list[str]:
    """Digests of the scripts that words are, or have behind `=`."""
    named = [name for word in words for name in (word, word.partition("=")[2]) if _is_script(name)]
    return [hashlib.sha256(Path(name).read_bytes()).hexdigest() for name in named]


def _is_script(word: str) -> bool:
    return word.endswith((".py", ".sh", ".yaml", ".yml", ".json", ".toml")) and Path(word).is_file()


def tokens_of(configuration: Configuration, text: str) -> int:
    """0 where it is not known."""
    return prod(int(factor) for factor in configuration.words(text.split("*"))) if text else 0
