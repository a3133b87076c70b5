"""What `prismdbg sweep` is asked for."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import prod
from pathlib import Path

from prismdbg.emulate.request import USUAL_STEPS
from prismdbg.simulate.graph.mesh import Mesh
from prismdbg.sweep.place import HERE, Place
from prismdbg.sweep.space import Configuration, Space

_PLACEHOLDER = "{"
_SCRIPTS, _SETTINGS = (".py", ".sh"), (".yaml", ".yml", ".json", ".toml")
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
        """Of what a run of a configuration depends on, but for what `files` contain. What only the simulation depends
        on is left out."""
        said = (self.command, self.how, self.steps, self.classes, self.memory, self.space.world, self.space.axes)
        more = [self.telemetry_ns] if self.telemetry_ns else []
        return hashlib.sha256(json.dumps([said, *more, str(Path.cwd())], default=str).encode()).hexdigest()

    @property
    def files(self) -> dict[str, str]:
        """Digests of the files that the command names."""
        return digests(_names(self.command))


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
    def files(self) -> dict[str, str]:
        """Digests of the files that are named with a placeholder. Those in its own folder are its program's."""
        own = f"{{{FOLDER}}}"
        named = [word for word in self.request.command if _PLACEHOLDER in word and own not in word]
        return digests(_names(self.configuration.words(named)))

    @property
    def tokens(self) -> int:
        return tokens_of(self.configuration, self.request.tokens)


def digests(names: Iterable[str]) -> dict[str, str]:
    """Of the contents of those that are files."""
    return {name: hashlib.sha256(Path(name).read_bytes()).hexdigest() for name in names if Path(name).is_file()}


def still_input(begun: Mapping[str, str]) -> dict[str, str]:
    """Without those that have changed while the program ran, which it has written itself. It writes no scripts."""
    now = digests(begun)
    return {name: digest for name, digest in begun.items() if now.get(name) == digest or name.endswith(_SCRIPTS)}


def _names(words: Sequence[str]) -> list[str]:
    """What words are, or have behind `=`, if it may be what a program reads."""
    return [name for word in words for name in (word, word.partition("=")[2]) if name.endswith((*_SCRIPTS, *_SETTINGS))]


def tokens_of(configuration: Configuration, text: str) -> int:
    """0 where it is not known."""
    return prod(int(factor) for factor in configuration.words(text.split("*"))) if text else 0
