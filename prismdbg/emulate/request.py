"""What `prismdbg emulate` is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from pathlib import Path

from prismdbg.errors import UsageError
from prismdbg.jobs.record.launch_line import parse
from prismdbg.settings.emulation import WORLD, Rule
from prismdbg.settings.mesh_axes import Axes
from prismdbg.simulate.graph.class_finder import DEFAULT_CHECKS, MOST_BASES
from prismdbg.simulate.graph.mesh import Mesh

LEAST_STEPS = 2  # start-up belongs to the first one
USUAL_STEPS = 5  # so that a median says what the others take
MOST_AT_ONCE = 64  # processes


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulateRequest:
    """`steps`: 0 runs the program to its own end. `per_node`: 0 takes torchrun's, else at most 8.

    donor: an earlier run, real or emulated, whose values peers may send. bound_s: for each run of a rank.
    window_bytes: of what a rank received from others that ran; a replay makes everything else up again.
    shapes: a file for the operators that the newest step called.
    verbose: show what the ranks print, instead of keeping it in RUN/output; all_on_stderr: there all of it.
    together: axes whose ranks run at once, as real processes, with each of `ranks`.
    classes: not these ranks, but one of each class, and at most `checks` second members; the axes along which ranks
    differ, empty where that is to be found out.
    """

    output: Path
    command: tuple[str, ...]
    world: int
    mesh: Mesh
    ranks: tuple[int, ...] = (0,)
    together: tuple[str, ...] = ()
    classes: tuple[str, ...] | None = None
    checks: int = DEFAULT_CHECKS
    steps: int = 0
    rules: tuple[Rule, ...] = ()
    seed: int = 0
    per_node: int = 0
    donor: Path | None = None
    donor_bytes: int = 1 << 30
    window_bytes: int = 4 << 30
    memory: bool = False
    memory_cap: int = 0
    bound_s: float = 3600.0
    verbose: bool = False
    all_on_stderr: bool = False
    shapes: Path | None = None

    def check(self) -> None:
        self.mesh.check_world(self.world)
        parse(self.command).check_world(self.world)
        for rank in self.ranks:
            self.mesh.check_rank(rank)
        for axis in self.classes or ():
            self.mesh.axis(axis)
        if self.classes is not None and 0 < self.steps < LEAST_STEPS:
            raise UsageError(
                f"--steps {self.steps} leaves no complete step after the first, in which the program starts up",
                hint=f"give --steps {LEAST_STEPS} or more, so that a typical step can be compared between ranks",
            )
        self._check_together()
        for rule in self.rules:
            for axis in rule.axis.split("+") if rule.axis not in ("", WORLD) else ():
                self.mesh.axis(axis)

    def _check_together(self) -> None:
        if self.together and self.classes is not None:
            raise UsageError(
                "--together and --classes cannot be combined: the ranks of classes run one after another",
                hint="give --ranks with --together",
            )
        count = prod(self.mesh.size(axis) for axis in set(self.together))
        if count > MOST_AT_ONCE:
            raise UsageError(
                f"--together {','.join(self.together)} would run {count:,} ranks of {self.mesh} at once",
                hint=f"give axes that have at most {MOST_AT_ONCE} ranks together; the others stay virtual",
            )

    @property
    def circles(self) -> tuple[tuple[int, ...], ...]:
        """The ranks that run at once, each in ascending order; with nobody else unless axes run together."""
        axes = Axes(self.axes)
        joined = "+".join(self.together)
        found = [tuple(axes.members(rank, joined)) if joined else (rank,) for rank in self.ranks]
        return tuple(dict.fromkeys(found))

    @property
    def chosen(self) -> tuple[int, ...]:
        """The ranks that were asked for, and those that run at once with them."""
        return tuple(dict.fromkeys(rank for circle in self.circles for rank in circle))

    @property
    def wanted(self) -> tuple[int, ...]:
        """Ranks whose run is wanted, as far as that is known beforehand: what peers send them is kept."""
        if self.classes is None:
            return self.chosen
        axes = self.classes or self.mesh.names
        along = {self.mesh.rank(**{axis: at}) for axis in axes for at in range(min(self.mesh.size(axis), MOST_BASES))}
        return tuple(sorted(along))

    @property
    def axes(self) -> tuple[tuple[str, int], ...]:
        return tuple((name, self.mesh.size(name)) for name in self.mesh.order)
