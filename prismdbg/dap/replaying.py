"""A replay that a client drives: its requests, put together from what each part of the adapter answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from prismdbg.dap.arguments import Arguments
from prismdbg.dap.breakpoints import Breakpoints
from prismdbg.dap.client import Client
from prismdbg.dap.control import Control
from prismdbg.dap.custom import Custom
from prismdbg.dap.evaluating import Evaluating
from prismdbg.dap.launch import Launch, Live, live
from prismdbg.dap.looking import Looking
from prismdbg.dap.memory import ReadMemory
from prismdbg.dap.motion import Line, Motion, Targets, lines
from prismdbg.dap.recorded import Recorded
from prismdbg.dap.sources import Sources
from prismdbg.dap.telling import Telling
from prismdbg.debugger.known_names import known_names
from prismdbg.debugger.recorded_nan import nan_since
from prismdbg.errors import PrismError
from prismdbg.session.answers import Phase

Json = dict[str, Any]

FORWARD = ("continue", "next", "step", "finish")


class GivenUp(PrismError):
    """The client does not want the replay any more before it is there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """What is known before the replay is started."""

    client: Client
    control: Control
    telling: Telling
    launch: Launch
    first_line: int
    on_quit: Callable[[], None]

    def say(self, text: str) -> None:
        """Of the start; the place where it can be given up."""
        if self.control.is_closing:
            raise GivenUp("the start was cancelled")
        self.telling.progress(text)
        self.client.say(text)


class Replaying:
    def __init__(self, settled: Settled, rank: Live) -> None:
        self._launch, self._debugger = settled.launch, rank.debugger
        capsule, first_line = rank.travel.capsule, settled.first_line
        known = known_names(capsule)
        sources = Sources(capsule, known)
        kept = Breakpoints(rank.debugger.session.breakpoints, known, sources, first_line, nan_since(capsule))
        title = f"rank {capsule.manifest.rank} of {capsule.manifest.world_size}"
        looking = Looking(rank.debugger, sources, first_line, title)
        self._motion = Motion(settled.client, settled.control, rank.debugger, settled.telling, kept, looking.forget)
        recorded = Recorded(capsule, rank.debugger)
        targets = Targets(recorded, rank.debugger, sources, first_line)
        self.moves: dict[str, Line] = lines(targets)
        self.answers: dict[str, Callable[[Arguments], Json]] = {
            **kept.requests(),
            **looking.requests(),
            **Custom(recorded, rank.debugger, self._motion).requests(),
            "gotoTargets": targets.of_line,
            "evaluate": Evaluating(rank.debugger, looking, self._motion, settled.on_quit).evaluate,
            "readMemory": ReadMemory(rank.debugger, looking).read,
        }

    @classmethod
    @contextmanager
    def opened(cls, settled: Settled) -> Iterator[Replaying]:
        """The rank stands at its first place."""
        settled.telling.progress("starting the replay")
        with live(settled.launch, settled.telling.tell, settled.say) as rank:
            settled.telling.program = rank.program
            settled.control.drives(rank.debugger)
            rank.debugger.begin()
            settled.control.stands()
            yield cls(settled, rank)

    def begin(self) -> None:
        """To where a session begins: the first collective, the moment that was asked for, or a breakpoint."""
        if self._launch.at is not None:
            self.run(f"goto {self._launch.at}")
        elif self._debugger.session.astray is not None:
            self._motion.stay()
        elif self._launch.stop_first:
            self.run("next", "entry")
        else:
            self.run("continue")

    def require(self, line: str) -> None:
        """Refuses what cannot be, before the client takes it for begun. A rank that runs on is waited for again."""
        session = self._debugger.session
        if line == "continue" and session.phase in (Phase.RUNNING, Phase.HUNG):
            return
        if line in FORWARD:
            session.require_stop()
        session.require_no_run()

    def run(self, line: str, reason: str = "") -> None:
        self._motion.run(line, reason)

    def report(self) -> None:
        self._motion.report()

    def poll(self) -> None:
        if self._debugger.session.phase in (Phase.STOPPED, Phase.RUNNING, Phase.HUNG):
            self._motion.poll()
