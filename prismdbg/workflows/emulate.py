"""`prismdbg emulate`: runs chosen ranks of a large world, one after another, each alone among synthesized peers."""

from __future__ import annotations

import os
import shutil
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import prismdbg
from prismdbg.capsule.secrets import redact_arguments
from prismdbg.errors import UsageError
from prismdbg.predict.mesh import Mesh
from prismdbg.rank.config import Mode, RankConfig
from prismdbg.rank.emulation.settings import WORLD, Emulation, Rule
from prismdbg.workflows.agent_sockets import make_socket_dir
from prismdbg.workflows.capture import Say
from prismdbg.workflows.emulated_rank import EmulatedRank, Program
from prismdbg.workflows.external_donors import write_external
from prismdbg.workflows.injection import cache_dir, make_inject_folder
from prismdbg.workflows.launch_line import LaunchLine, parse
from prismdbg.workflows.run_folder import RunFolder, write_json
from prismdbg.workflows.turns import Event, Lacks, Turns

LARGEST_NODE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulateRequest:
    """`steps`: 0 runs the program to its own end. `per_node`: 0 takes torchrun's, else at most 8.

    donor: an earlier run, real or emulated, whose values peers may send. bound_s: for each run of a rank.
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
    window_steps: int = 0
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RankRun:
    """`is_whole`: its program came to its end; else it was needed for its values only."""

    rank: int
    wall_s: float
    is_whole: bool


def emulate(request: EmulateRequest, say: Say) -> list[RankRun]:
    """Every rank that ran, also those that nobody asked for, in the order in which they were started."""
    request.check()
    line = parse(request.command)
    run = _prepare(request)
    sockets = make_socket_dir()
    crew = _Crew(request, run, line, sockets, say)
    try:
        if request.donor is not None:
            count = write_external(RunFolder.existing(request.donor), request.mesh, run.path / "external")
            say(f"{count} donor values in {request.donor}")
        turns = Turns(crew.go)
        for rank in request.ranks:
            turns.complete(rank)
        return [RankRun(rank=r.rank, wall_s=r.wall_s, is_whole=r.has_ended) for r in crew.ranks.values()]
    finally:
        for started in crew.ranks.values():
            started.close()
        shutil.rmtree(sockets, ignore_errors=True)


def _prepare(request: EmulateRequest) -> RunFolder:
    output = request.output.resolve()
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise UsageError(
            f"{request.output} exists and is not empty",
            hint="give a new folder, or remove it with `prismdbg rm`",
        )
    output.mkdir(parents=True, exist_ok=True, mode=0o700)
    run = RunFolder(output)
    run.ranks.mkdir()
    make_inject_folder(run.inject)
    write_json(
        run.run_json,
        {
            "command": list(redact_arguments(request.command).words),  # to be shown, never to be run
            "cwd": str(Path.cwd()),
            "started_wall_ns": time.time_ns(),
            "supervisor_pid": os.getpid(),
            "emulated": {
                "world": request.world,
                "mesh": dict(request.axes),
                "ranks": list(request.ranks),
                "steps": request.steps,
                "peers": [f"{rule.axis}:{rule.op}={rule.policy}" for rule in request.rules],
                "seed": request.seed,
            },
            "version": prismdbg.__version__,
            "python": sys.version.split()[0],
        },
    )
    return run


class _Crew:
    """Carries out the turns."""

    def __init__(self, request: EmulateRequest, run: RunFolder, line: LaunchLine, sockets: Path, say: Say) -> None:
        self._request = request
        self._run = run
        self._say = say
        self.ranks: dict[int, EmulatedRank] = {}
        self.shared = RankConfig(
            mode=Mode.EMULATE,
            socket_dir=str(sockets),
            run=str(run.path),
            cache_dir=str(cache_dir()),
            window_steps=request.window_steps,
            memory=request.memory,
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
            asked=tuple(sorted({rank, *self.ranks, *request.ranks})),
            donors=str(self._run.path / "donors"),
            external=str(self._run.path / "external") if request.donor is not None else "",
            is_exact=rank in request.ranks,
            until=until,
            donor_bytes=request.donor_bytes,
        )
        return replace(self.shared, rank=rank, extra={"emulation": settings.to_json()})
