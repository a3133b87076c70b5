"""Where a sweep is asked to run its configurations."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from enum import StrEnum

from prismdbg.errors import UsageError


class Engine(StrEnum):
    LOCAL = "local"
    SLURM = "slurm"


@dataclass(frozen=True, slots=True)
class Place:
    """`options`: of sbatch."""

    engine: Engine = Engine.LOCAL
    options: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Place:
        """`local`, `slurm` or `slurm:--partition=gpu --time=1:00:00`."""
        name, _, rest = text.partition(":")
        try:
            engine, options = Engine(name), tuple(shlex.split(rest))
        except ValueError as error:
            why = f": {error}" if name in list(Engine) else ""
            hint = "write local, slurm, or 'slurm:--partition=gpu --time=1:00:00'"
            raise UsageError(f"{text!r} is not where configurations can run{why}", hint=hint) from error
        if rest and engine is Engine.LOCAL:
            raise UsageError(f"{text!r}: local takes no options", hint="write local, or leave --on out")
        return cls(engine, options)


HERE = Place()
