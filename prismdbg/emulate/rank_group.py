"""The emulated ranks of one run, started as the turns need them, each with what it is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

from prismdbg.capsule.secrets import own_rules
from prismdbg.emulate.emulated_rank import EmulatedRank, Program
from prismdbg.emulate.rank_output import KeptOutput, RankOutput, ShownOutput
from prismdbg.emulate.rank_scheduler import Event, MissingValue
from prismdbg.emulate.request import EmulateRequest
from prismdbg.emulate.sender_warning import SenderWarning
from prismdbg.jobs.capture.capture import Say
from prismdbg.jobs.injection import cache_dir
from prismdbg.jobs.record.launch_line import LaunchLine
from prismdbg.jobs.storage.run_folder import RunFolder
from prismdbg.model import user_code
from prismdbg.settings.emulation import ClockKind, Emulation
from prismdbg.settings.rank_config import Mode, RankConfig

LARGEST_NODE = 8
RECEIVE = "recv"
ROUTING = ("all_to_all", "all_to_all_single")
STDERR = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Paced:
    """`schedules`: a file for each rank, when its peers are there."""

    clock: ClockKind
    schedules: Mapping[int, Path]


class RankGroup:
    """Carries out the turns of one pass over the ranks: `RankScheduler(group.go)`. Another pass has another group."""

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
        self._meeting = sockets
        self.ranks: dict[int, EmulatedRank] = {}
        self._said: set[str] = set()
        self._chains: set[tuple[str, ...]] = set()
        self._sender_warning = SenderWarning(request.mesh)
        secret_names, secret_values = own_rules.as_texts()
        self.shared = RankConfig(
            mode=Mode.EMULATE,
            socket_dir=str(sockets),
            run=str(run.path),
            cache_dir=str(cache_dir()),
            window_steps=-1 if request.window_bytes else 0,
            window_bytes=request.window_bytes,
            memory=request.memory,
            memory_cap=request.memory_cap,
            user_code=user_code.paths(),
            secret_names=secret_names,
            secret_values=secret_values,
            nan_check=False,  # values stand on assumptions: nothing is claimed about them
            fingerprints=False,
            native=False,
            world_size=request.world,
        )
        self.tell_ranks(() if request.classes is not None else request.chosen)
        self._program = Program(
            run=run,
            command=line.command,
            world=request.world,
            per_node=min(request.per_node or line.on_node(request.world) or LARGEST_NODE, request.world),
            steps=request.steps,
            bound_s=request.bound_s,
            output=self._output,
            say=say,
        )

    def _output(self, rank: int) -> RankOutput:
        if self._request.verbose:
            return ShownOutput(STDERR if self._request.all_on_stderr else None)
        return KeptOutput(self._run.output / f"{rank}.txt", self._say_once)

    def _say_once(self, text: str) -> None:
        """Of what each rank says alike, the first."""
        if text not in self._said:
            self._said.add(text)
            self._say(text)

    def tell_ranks(self, ranks: tuple[int, ...]) -> None:
        """In RUN/config.json: which ranks this is about, once it is known."""
        replace(self.shared, ranks=ranks).save(self._run.config)

    def go(self, number: int, until: str, since: MissingValue | None) -> Event:
        return self._known(number, since).turn(self._config(number, until), until)

    def give(self, number: int) -> EmulatedRank:
        """Starts the rank, or lets it go on, and does not wait for it."""
        rank = self._known(number, None)
        rank.give_turn(self._config(number, ""), "")
        return rank

    def _known(self, number: int, since: MissingValue | None) -> EmulatedRank:
        if number not in self.ranks:
            why = f", because rank {since.rank} needs its data: {since.place}" if since is not None else ""
            if since is not None:
                self._say_chain(since)
                self._say_suppliers(since)
            self._say(f"{self._request.mesh.say(number)} of {self._request.world:,}{why}")
            self.ranks[number] = EmulatedRank(self._program, number)
        return self.ranks[number]

    def _say_chain(self, since: MissingValue) -> None:
        """Before the first neighbour is started: it may need one in turn, and all of them stand at once."""
        mesh = self._request.mesh
        one, other = mesh.coordinates(since.rank), mesh.coordinates(since.source)
        axes = tuple(name for name in mesh.names if one[name] != other[name])
        count = prod(mesh.size(name) for name in axes)
        if since.collective not in (RECEIVE, *ROUTING) or count <= 2 or axes in self._chains:
            return
        self._chains.add(axes)
        own_bytes = self.ranks[since.rank].own_bytes
        each = f", with about {own_bytes >> 20} MiB of private memory each" if own_bytes else ""
        if since.collective == RECEIVE:
            what, instead = "need their neighbours' data", ""
        else:
            what = "tell each other how much they will send"
            instead = f". To use synthesized counts instead, add --peers {since.axis}:{since.collective}=balanced"
        self._say(
            f"ranks along {', '.join(axes)} {what}: up to {count:,} of them run for it, "
            f"all at the same time{each}{instead}"
        )

    def _say_suppliers(self, since: MissingValue) -> None:
        wall_s = {number: rank.wall_s for number, rank in self.ranks.items()}
        if since.collective not in (RECEIVE, *ROUTING) and (text := self._sender_warning.started(since, wall_s)):
            self._say(text)

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
            is_exact=rank in request.chosen,
            until=until,
            together=request.together if rank in request.chosen else (),
            meeting=str(self._meeting),
            donor_bytes=request.donor_bytes,
            schedule=str(self._paced.schedules.get(rank, "")) if self._paced is not None else "",
            shapes=str(request.shapes or ""),
            clock=self._paced.clock if self._paced is not None else ClockKind.WALL,
        )
        return replace(self.shared, rank=rank, extra={"emulation": settings.to_json()})

    def close(self) -> None:
        """Ends the ranks that still stand, all at once."""
        for started in self.ranks.values():
            started.let_go()
        for started in self.ranks.values():
            started.close()
