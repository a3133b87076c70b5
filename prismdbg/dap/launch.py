"""What a replay is started with: by the command line, and by a client's `launch`; and the replay itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from prismdbg.dap.arguments import Arguments
from prismdbg.debugger.debugger import Debugger, Settings, debug
from prismdbg.debugger.driver import Tell
from prismdbg.debugger.program import LiveProgram
from prismdbg.debugger.time_travel import Travel, open_travel
from prismdbg.errors import UsageError, quoted
from prismdbg.jobs.rank_capsule import capsule_of
from prismdbg.jobs.replay.replay import ReplayRequest
from prismdbg.jobs.replay.replay_plan import with_files
from prismdbg.jobs.replay.span import require_inside
from prismdbg.jobs.storage.archive_crypto import NO_KEYS, Keys
from prismdbg.jobs.storage.pack import opened
from prismdbg.jobs.storage.remote.addresses import fetching
from prismdbg.model.moment import Moment
from prismdbg.runtime.limits import USUAL, Asked
from prismdbg.runtime.names import RUNTIMES

LONGEST_S = 10**6

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """path: of a capsule, or of a run with `rank`; None where the client is to say. given: what the command line has in
    its place, such as an address. fetch: makes the copy of what the client gave the address of, and gives its path.
    at: where the rank goes first.
    stop_first: at its first collective, else it runs on to a breakpoint."""

    path: Path | None = None
    given: str = ""
    fetch: Callable[[Say], Path] | None = None
    rank: int | None = None
    runtime: str = ""
    allow_writes: bool = False
    bound_s: float = 600.0
    at: Moment | None = None
    stop_first: bool = True
    with_files: tuple[str, ...] = ()
    limits: Asked = USUAL
    keys: Keys = NO_KEYS

    def told(self, arguments: Arguments) -> Launch:
        """As a client's `launch` or `attach` has it; what it leaves out stays."""
        text = arguments.text("capsule", "")
        if self.path is None and not text:
            raise UsageError("no capsule to replay", hint='give "capsule" in the launch configuration')
        if text and not self._allows(text):
            raise UsageError(
                f"prismdbg was started with {self.given or self.path}, but the launch configuration has {text}",
                hint='leave "capsule" out of one of them',
            )
        runtime = arguments.text("runtime", self.runtime)
        if runtime and runtime not in RUNTIMES:
            raise UsageError(f"unknown runtime {quoted(runtime)}", hint=f"use one of: {', '.join(RUNTIMES)}")
        return replace(
            self,
            path=self.path or Path(text),
            fetch=fetching(text) if self.path is None else None,
            rank=arguments.number("rank") if arguments.has("rank") else self.rank,
            runtime=runtime,
            allow_writes=arguments.flag("allowWrites", self.allow_writes),
            bound_s=arguments.number("timeout", least=1, most=LONGEST_S) if arguments.has("timeout") else self.bound_s,
            at=Moment.parse(arguments.text("at")) if arguments.has("at") else self.at,
            stop_first=arguments.flag("stopOnEntry", self.stop_first),
        )

    def _allows(self, text: str) -> bool:
        """Whether a client may name this capsule: any, or the one of the command line."""
        started = (self.path, Path(self.given or self.path)) if self.path is not None else ()
        return not started or Path(text).absolute() in [path.absolute() for path in started]


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """A rank that stands in a debugger."""

    debugger: Debugger
    travel: Travel
    program: LiveProgram


@contextmanager
def live(launch: Launch, tell: Tell, say: Say) -> Iterator[Live]:
    """The rank, its debugger begun. Everything is gone afterwards; whatever `say` raises ends the start."""
    assert launch.path is not None, "`told` has seen to it"
    path = capsule_of(launch.path if launch.fetch is None else launch.fetch(say), launch.rank, say)
    if not path.exists():
        raise UsageError(f"no such file or directory: {path}", hint="give a capsule, or a run with its rank")
    with opened(path, launch.keys) as whole:
        if launch.at is not None:
            require_inside(whole.manifest, whole.path.name, "--at", launch.at)
        request = ReplayRequest(
            capsule=whole,
            runtime=launch.runtime,
            allow_writes=launch.allow_writes,
            with_files=with_files(whole, launch.with_files),
            limits=launch.limits,
        )
        with open_travel(request, say) as travel:
            program = LiveProgram(travel)
            settings = Settings(bound_s=launch.bound_s)
            debugger = debug(travel, tell, settings=settings, how_it_ended=program.how_it_ended)
            try:
                yield Live(debugger=debugger, travel=travel, program=program)
            finally:
                debugger.end()
