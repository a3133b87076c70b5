"""What `prismdbg emulate` is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from prismdbg.predict.mesh import Mesh
from prismdbg.rank.emulation.settings import WORLD, Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulateRequest:
    """`steps`: 0 runs the program to its own end. `per_node`: 0 takes torchrun's, else at most 8.

    donor: an earlier run, real or emulated, whose values peers may send. bound_s: for each run of a rank.
    window_bytes: of what a rank received from others that ran; a replay makes everything else up again.
    """

    output: Path
    command: tuple[str, ...]
    world: int
    mesh: Mesh
    ranks: tuple[int, ...] = (0,)
    steps: int = 0
    rules: tuple[Rule, ...] = ()
    seed: int = 0
    per_node: int = 0
    donor: Path | None = None
    donor_bytes: int = 1 << 30
    window_bytes: int = 4 << 30
    memory: bool = False
    bound_s: float = 3600.0

    def check(self) -> None:
        self.mesh.check_world(self.world)
        for rank in self.ranks:
            self.mesh.check_rank(rank)
        for rule in self.rules:
            for axis in rule.axis.split("+") if rule.axis not in ("", WORLD) else ():
                self.mesh.axis(axis)

    @property
    def axes(self) -> tuple[tuple[str, int], ...]:
        return tuple((name, self.mesh.size(name)) for name in self.mesh.order)
