"""`prismdbg emulate`: runs chosen ranks of a large world, one after another, each alone among synthesized peers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import prismdbg
from prismdbg.capsule.log_reader import read_log
from prismdbg.capsule.secrets import redact_arguments
from prismdbg.errors import PrismError, RankLost, UsageError, WaitTimeout
from prismdbg.predict.mesh import Mesh
from prismdbg.rank.config import Mode, RankConfig
from prismdbg.rank.emulation.settings import NEED_EXIT, WORLD, Emulation, Rule
from prismdbg.workflows.agent_sockets import make_socket_dir
from prismdbg.workflows.capture import Say
from prismdbg.workflows.external_donors import write_external
from prismdbg.workflows.injection import cache_dir, job_environment, make_inject_folder
from prismdbg.workflows.launch_line import LaunchLine, parse
from prismdbg.workflows.run_folder import RunFolder, read_json, write_json

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
    bound_s: float = 3600.0

    def check(self) -> None:
        self.mesh.check_world(self.world)
        for rank in self.ranks:
            self.mesh.check_rank(rank)
        for rule in self.rules:
            for axis in rule.axis.split("+") if rule.axis not in ("", WORLD) else ():
                self.mesh.axis(axis)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankResult:
    """`donor`: it was not asked for, but had to say what it sends. `lacking`: what ended it, where something did."""

    rank: int
    code: int
    wall_s: float
    lacking: dict[str, Any] | None = None
    donor: bool = False


def emulate(request: EmulateRequest, say: Say) -> list[RankResult]:
    """One result for each rank that ran, in the order of their last runs."""
    request.check()
    line = parse(request.command)
    run = _prepare(request)
    sockets = make_socket_dir()
    try:
        if request.donor is not None:
            count = write_external(RunFolder.existing(request.donor), request.mesh, run.path / "external")
            say(f"{count} donor values in {request.donor}")
        crew = _Crew(request, run, line, sockets, say)
        for rank in request.ranks:
            crew.complete(rank)
    finally:
        shutil.rmtree(sockets, ignore_errors=True)
    results = crew.results()
    write_json(
        run.path / "emulation.json",
        {"ranks": [{"rank": r.rank, "code": r.code, "wall_s": r.wall_s, "donor": r.donor} for r in results]},
    )
    return results


def _prepare(request: EmulateRequest) -> RunFolder:
    output = request.output.resolve()
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise UsageError(f"{request.output} exists and is not empty", hint="give a new folder")
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
                "mesh": {name: request.mesh.size(name) for name in request.mesh.order},
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
    """Which ranks have run, and for whom. A rank that lacks another's value waits until that one has run."""

    def __init__(self, request: EmulateRequest, run: RunFolder, line: LaunchLine, sockets: Path, say: Say) -> None:
        self._request = request
        self._run = run
        self._line = line
        self._sockets = sockets
        self._say = say
        self._done: dict[int, RankResult] = {}
        self._served: dict[int, set[int]] = {}
        self._wanted = set(request.ranks)

    def results(self) -> list[RankResult]:
        return list(self._done.values())

    def complete(self, rank: int, waiting: tuple[int, ...] = ()) -> None:
        """Runs the rank, and before it as often as needed those whose values it lacks. `waiting`: for whom."""
        self._wanted |= {rank, *waiting}
        if rank in self._done and self._done[rank].lacking is None and set(waiting) <= self._served[rank]:
            return
        last = ""
        while True:
            result = self._once(rank)
            need = result.lacking
            if need is None:
                return
            source, identity = int(need["source"]), f"{need['axis']} {need['identity']}"
            if source in waiting:
                return  # it waits for this very rank: what was said up to here is kept, and is enough or not
            if source < 0 or identity == last:
                raise _unknown(need)
            last = identity
            self._say(f"rank {rank} needs what rank {source} sends at {_place(need)}: running rank {source}")
            self.complete(source, (*waiting, rank))

    def _once(self, rank: int) -> RankResult:
        for folder in self._run.rank_folders():
            if folder.name.split(".")[0] == str(rank):  # an earlier run of it, which lacked something
                shutil.rmtree(folder)
        needs = self._run.path / "needs.json"
        needs.unlink(missing_ok=True)
        self._configure(rank, needs)
        self._say(f"rank {self._request.mesh.say(rank).removeprefix('rank ')} of {self._request.world}")
        began = time.monotonic()
        code = self._process(rank)
        lacking = read_json(needs) if code == NEED_EXIT else None
        result = RankResult(
            rank=rank,
            code=code,
            wall_s=time.monotonic() - began,
            lacking=lacking,
            donor=rank not in self._request.ranks,
        )
        self._done.pop(rank, None)
        self._done[rank] = result
        self._served[rank] = set(self._wanted)
        if lacking is None:
            self._check_end(result)
        return result

    def _configure(self, rank: int, needs: Path) -> None:
        request = self._request
        settings = Emulation(
            rank=rank,
            world=request.world,
            axes=tuple((name, request.mesh.size(name)) for name in request.mesh.order),
            steps=request.steps,
            rules=request.rules,
            seed=request.seed,
            asked=tuple(sorted(self._wanted)),
            donors=str(self._run.path / "donors"),
            external=str(self._run.path / "external") if request.donor is not None else "",
            needs=str(needs),
            donor_bytes=request.donor_bytes,
        )
        RankConfig(
            mode=Mode.EMULATE,
            socket_dir=str(self._sockets),
            run=str(self._run.path),
            cache_dir=str(cache_dir()),
            window_steps=request.window_steps,
            nan_check=False,  # values stand on assumptions: nothing is claimed about them
            fingerprints=False,
            native=False,
            rank=rank,
            world_size=request.world,
            extra={"emulation": settings.to_json()},
        ).save(self._run.config)

    def _process(self, rank: int) -> int:
        environment = {
            **job_environment(self._run.inject, self._run.config, os.environ),
            **rank_environment(rank, self._request.world, self._per_node()),
        }
        try:
            process = subprocess.Popen(self._line.command, env=environment)
        except OSError as error:
            raise UsageError(f"the program cannot be started: {error}", hint="give the command after `--`") from error
        try:
            return process.wait(self._request.bound_s)
        except subprocess.TimeoutExpired:
            raise WaitTimeout(
                f"waited {self._request.bound_s:g} s for rank {rank}'s program to end",
                hint="give --steps, or a longer --timeout",
            ) from None
        finally:
            if process.poll() is None:
                process.kill()
                process.wait(10)

    def _per_node(self) -> int:
        wanted = self._request.per_node or self._line.per_node or LARGEST_NODE
        return min(wanted, self._request.world)

    def _check_end(self, result: RankResult) -> None:
        """A program that ends early, or did nothing, is an error: nothing is to be learned from its log."""
        rank, wanted = result.rank, self._request.steps
        folders = [f for f in self._run.rank_folders() if f.name.split(".")[0] == str(rank)]
        if not folders:
            raise RankLost(
                f"rank {rank}'s program ended with code {result.code} before it issued a collective or a step",
                hint="does it call torch.distributed.init_process_group? its output is above",
            )
        steps = read_log(folders[-1]).steps
        reached = steps[-1].step if steps else 0
        if result.code:
            raise RankLost(
                f"rank {rank}'s program failed with code {result.code} in step {reached}",
                hint="its output is above; `prismdbg why RUN` says what the log holds",
            )
        if wanted and reached < wanted:
            raise RankLost(
                f"rank {rank}'s program ended after {reached} of {wanted} steps",
                hint=f"give --steps {reached}, or let the program run longer"
                if reached
                else "it took no optimizer step",
            )


def rank_environment(rank: int, world: int, per_node: int) -> Mapping[str, str]:
    """What torchrun would set for this rank."""
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(world),
        "LOCAL_RANK": str(rank % per_node),
        "LOCAL_WORLD_SIZE": str(per_node),
        "GROUP_RANK": str(rank // per_node),
        "GROUP_WORLD_SIZE": str(-(-world // per_node)),
        "ROLE_RANK": str(rank),
        "ROLE_WORLD_SIZE": str(world),
        "ROLE_NAME": "default",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29500",
        "TORCHELASTIC_RUN_ID": "emulated",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
    }


def _place(need: Mapping[str, Any]) -> str:
    call = need["caller"] or need["collective"]
    where = f" at {need['where']}" if need.get("where") else ""
    return f"{call} on {need['axis']} ({need['identity']}){where}"


def _unknown(need: Mapping[str, Any]) -> PrismError:
    source = int(need["source"])
    whose = f"rank {source}, which was run and did not send it" if source >= 0 else "a rank that cannot be named"
    return RankLost(
        f"rank {need['rank']} lacks a value that only its sender knows, {_place(need)}: it comes from {whose}",
        hint=f"give an earlier run that has it (--donor RUN), or say how it is made up: --peers {need['axis']}=zeros",
    )
