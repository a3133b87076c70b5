"""Where a sweep is asked to run its configurations."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from enum import StrEnum

from prismdbg.errors import UsageError


class Engine(StrEnum):
    LOCAL = "local"
    SLURM = "slurm"
    RAY = "ray"


@dataclass(frozen=True, slots=True)
class Place:
    """`options`: of sbatch; of Ray its address, if any."""

    engine: Engine = Engine.LOCAL
    options: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Place:
        """`local`, `slurm`, `slurm:--partition=gpu --time=1:00:00`, `ray` or `ray:10.0.0.1:6379`."""
        name, _, rest = text.partition(":")
        try:
            engine, options = Engine(name), tuple(shlex.split(rest))
        except ValueError as error:
            why = f": {error}" if name in list(Engine) else ""
            hint = "write local, ray, ray:ADDRESS, slurm, or 'slurm:--partition=gpu --time=1:00:00'"
            raise UsageError(f"{text!r} is not where configurations can run{why}", hint=hint) from error
        if rest and engine is Engine.LOCAL:
            raise UsageError(f"{text!r}: local takes no options", hint="write local, or leave --on out")
        return cls(engine, options)


HERE = Place()
