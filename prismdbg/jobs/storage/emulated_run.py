"""What a run folder says of an emulation: the world that was not there, which of its ranks ran, who stands for whom.

Each command that takes a run asks whether it was emulated. The simulation is imported only where it was.
"""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from prismdbg.errors import CapsuleError, UsageError
from prismdbg.jobs.storage.run_folder import RunFolder, rank_of, read_json

if TYPE_CHECKING:
    from prismdbg.jobs.storage.pass_errors import Passed
    from prismdbg.simulate.graph.class_finder import RankClasses
    from prismdbg.simulate.graph.mesh import Ints, Mesh

SHOWN = 12
NOBODY = -1
OWN_NAME = "emulated-rank"  # of a capsule made of one of its ranks


@dataclass(frozen=True, kw_only=True)
class EmulatedRun:
    """`command`: as it may be shown, without what looks like a secret."""

    run: RunFolder
    mesh: Mesh
    steps: int
    peers: tuple[str, ...]
    seed: int
    together: tuple[str, ...]
    command: tuple[str, ...]

    @property
    def world(self) -> int:
        return self.mesh.world

    @cached_property
    def ran(self) -> tuple[int, ...]:
        """Ranks that really ran and left a log."""
        return tuple(sorted({rank_of(folder) for folder in self.run.rank_folders()}))

    @cached_property
    def passed(self) -> Passed | None:
        """How its peers came; None where they were there at once."""
        from prismdbg.jobs.storage.pass_errors import read_passes

        return read_passes(self.run.path)

    @property
    def ran_text(self) -> str:
        """`0, 37, 512`, not more than are read."""
        return ", ".join(map(str, self.ran[:SHOWN])) + (", ..." if len(self.ran) > SHOWN else "") or "none"

    @cached_property
    def _classes(self) -> RankClasses | None:
        from prismdbg.jobs.storage.classes_file import read_classes

        return read_classes(self.run, self.mesh)

    @cached_property
    def _representatives(self) -> dict[int, int]:
        """Who ran for a kind of ranks, by its base."""
        classes = self._classes.classes if self._classes is not None else ()
        return {base: each.representative for each in classes for base in each.bases}

    def stands_for(self, rank: int) -> int | None:
        """Who ran for the class of a rank; None where the run does not say."""
        return self._representatives.get(self._classes.kinds.base_of(rank)) if self._classes is not None else None

    def standing_in(self) -> Ints | None:
        """By rank who ran for its class; None where the run does not say."""
        import numpy as np

        from prismdbg.simulate.graph.job_graph import vector_by_rank

        if self._classes is None:
            return None
        kinds = self._classes.kinds
        by_kind = np.array([self._representatives.get(base, NOBODY) for base in kinds.bases()], dtype=np.int64)
        return vector_by_rank(self.mesh, by_kind[kinds.by_position()])

    @property
    def speaks_for_all(self) -> bool:
        """Whether each rank ran, or one that did stands for it."""
        import numpy as np

        standing = self.standing_in()
        return len(self.ran) == self.world or (standing is not None and bool(np.isin(standing, self.ran).all()))

    def require_ran(self, rank: int) -> None:
        """`UsageError` names who ran for it, and how to run it."""
        self.mesh.check_rank(rank)
        if rank in self.ran:
            return
        other = self.stands_for(rank)
        if other is not None and other in self.ran:
            text = f"{self.mesh.say(rank)} did not run: {self.mesh.say(other)} ran for its class"
            hint = f"give --rank {other}, or run this one: {self.command_for(rank)}"
        else:
            text = f"{self.mesh.say(rank)} did not run, only {self.ran_text} did"
            hint = f"run it: {self.command_for(rank)}"
        raise UsageError(text, hint=hint)

    def to_json(self) -> dict[str, Any]:
        """What of it ran, and how its peers came."""
        passed = self.passed
        return {
            "world": self.world,
            "mesh": {name: self.mesh.size(name) for name in self.mesh.order},
            "ran": list(self.ran),
            "classes": None if self._classes is None else len(self._classes.classes),
            "paced": None if passed is None else {**asdict(passed), "left": passed.left},
        }

    def command_for(self, rank: int) -> str:
        axes = ",".join(f"{name}={self.mesh.size(name)}" for name in self.mesh.order)
        words = ["prismdbg", "emulate", "-o", "NEW", "--world", str(self.world), "--mesh", axes, "--ranks", str(rank)]
        words += ["--steps", str(self.steps)] if self.steps else []
        words += ["--together", ",".join(self.together)] if self.together else []
        words += ["--seed", str(self.seed)] if self.seed else []
        words += [word for rule in self.peers for word in ("--peers", rule)]
        return shlex.join([*words, "--", *self.command])


def read_emulated(run: RunFolder) -> EmulatedRun | None:
    """None of a run that was recorded. `CapsuleError` where what it says is damaged."""
    described = read_json(run.run_json)
    emulated = described.get("emulated")
    if emulated is None:
        return None
    from prismdbg.simulate.graph.mesh import Mesh

    axes = ",".join(f"{name}={size}" for name, size in emulated["mesh"].items())
    try:
        mesh = Mesh.parse(axes, world=emulated["world"])
    except UsageError as error:
        raise CapsuleError(f"{run.run_json} does not describe the emulation: {error}", hint="emulate again") from error
    return EmulatedRun(
        run=run,
        mesh=mesh,
        steps=emulated.get("steps", 0),
        peers=tuple(emulated.get("peers", ())),
        seed=emulated.get("seed", 0),
        together=tuple(emulated.get("together", ())),
        command=tuple(described.get("command", ())),
    )
