"""The emulated ranks of one run, started as the turns need them, each with what it is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from prismdbg.rank.config import Mode, RankConfig
from prismdbg.rank.emulation.settings import ClockKind, Emulation
from prismdbg.workflows.capture import Say
from prismdbg.workflows.emulate_request import EmulateRequest
from prismdbg.workflows.emulated_rank import EmulatedRank, Program
from prismdbg.workflows.injection import cache_dir
from prismdbg.workflows.launch_line import LaunchLine
from prismdbg.workflows.run_folder import RunFolder
from prismdbg.workflows.turns import Event, Lacks

LARGEST_NODE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Paced:
    """`schedules`: a file for each rank, when its peers are there."""

    clock: ClockKind
    schedules: Mapping[int, Path]


class EmulatedCrew:
    """Carries out the turns of one pass over the ranks: `Turns(crew.go)`. Another pass has a crew of its own."""

    def __init__(
        self,
        request: EmulateRequest,
        run: RunFolder,
        line: LaunchLine,
        sockets: Path,
        say: Say,
        paced: Paced | None = None,
    ) -> None:
        self._request = request
        self._paced = paced
        self._run = run
        self._say = say
        self.ranks: dict[int, EmulatedRank] = {}
        self.shared = RankConfig(
            mode=Mode.EMULATE,
            socket_dir=str(sockets),
            run=str(run.path),
            cache_dir=str(cache_dir()),
            window_steps=-1 if request.window_bytes else 0,
            window_bytes=request.window_bytes,
            memory=request.memory,
            memory_cap=request.memory_cap,
            nan_check=False,  # values stand on assumptions: nothing is claimed about them
            fingerprints=False,
            native=False,
            world_size=request.world,
        )
        replace(self.shared, ranks=request.ranks).save(run.config)
        self._program = Program(
            run=run,
            command=line.command,
            world=request.world,
            per_node=min(request.per_node or line.per_node or LARGEST_NODE, request.world),
            steps=request.steps,
            bound_s=request.bound_s,
        )

    def go(self, number: int, until: str, since: Lacks | None) -> Event:
        rank = self.ranks.get(number)
        if rank is None:
            why = f", for its values: rank {since.rank} lacks {since.place}" if since is not None else ""
            self._say(f"{self._request.mesh.say(number)} of {self._request.world}{why}")
            rank = self.ranks[number] = EmulatedRank(self._program, number)
        return rank.turn(self._config(number, until), until)

    def _config(self, rank: int, until: str) -> RankConfig:
        request = self._request
        settings = Emulation(
            rank=rank,
            world=request.world,
            axes=request.axes,
            steps=request.steps,
            rules=request.rules,
            seed=request.seed,
            asked=tuple(sorted({rank, *self.ranks, *request.wanted})),
            donors=str(self._run.path / "donors"),
            external=str(self._run.path / "external") if request.donor is not None else "",
            is_exact=rank in request.ranks,
            until=until,
            donor_bytes=request.donor_bytes,
            schedule=str(self._paced.schedules.get(rank, "")) if self._paced is not None else "",
            clock=self._paced.clock if self._paced is not None else ClockKind.WALL,
        )
        return replace(self.shared, rank=rank, extra={"emulation": settings.to_json()})

    def close(self) -> None:
        """Ends the ranks that still stand."""
        for started in self.ranks.values():
            started.close()
