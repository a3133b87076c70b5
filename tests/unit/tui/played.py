"""A rank that answers from a list, under the screen's own thread; and a capsule whose log has something to show."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np
from capsules import MANIFEST, make_capsule
from prismdbg_tui.overview.job import OverviewJob
from prismdbg_tui.session.app import PrismApp
from prismdbg_tui.session.live import LiveRank
from shown import running
from textual.pilot import Pilot

from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.debugger.debugger import Debugger, Settings
from prismdbg.errors import RankLost, UsageError, WaitTimeout
from prismdbg.model.moment import Moment
from prismdbg.session.causes import ALL_HIDDEN, Unhidden
from prismdbg.session.checkpoint import Checkpoint
from prismdbg.session.notices import Notice
from prismdbg.session.outside_collective import OutsideCollective
from prismdbg.session.recorded_hang import RecordedHang
from prismdbg.simulate.cluster.cluster import example
from prismdbg.simulate.engine.simulate import simulate
from prismdbg.simulate.graph.gpt_job import GptShape, gpt_job
from prismdbg.simulate.graph.mesh import Mesh

Json = dict[str, Any]
CALL: dict[str, Any] = {"profiling_name": "all_reduce", "process_group": "0", "group_title": "world"}
CALL |= {"inputs": ["float32[4]"], "outputs": []}
TALLY = {"compared": 2, "fingerprints": 1, "synthesized": 0, "missing": 3}
FRAMES = [
    {"filename": "/v/site-packages/torch/c10d.py", "line": 9, "name": "all_reduce"},
    {"filename": "/job/train.py", "line": 7, "name": "step"},
    {"filename": "/job/train.py", "line": 20, "name": "main"},
]
TENSOR = {
    "kind": "tensor",
    "dtype": "float32",
    "shape": [4],
    "device": "cpu",
    "requires_grad": False,
    "stats": {"min": -1.0, "max": 2.0, "mean": 0.5, "std": 1.0, "nan": 1, "inf": 0},
    "histogram": {"low": -1.0, "high": 2.0, "counts": [1, 0, 2, 1]},
    "slice": "",
    "values": [-1.0, 0.5, 2.0, 0.5],
}
MEMBERS = [{"rank": 0, "group_rank": 0, "role": "this rank", "arrived": "here"}]
MEMBERS += [{"rank": 1, "group_rank": 1, "role": "recorded", "arrived": "unknown"}]


def stopped(moment: str, number: int, reason: str = "next") -> Json:
    return {"event": "stopped", "number": number, "reason": reason, "moment": moment, "collective": CALL}


class PlayedRank:
    """Each `resume` releases the next batch of events; None in a batch: the rank dies. `tell` adds one at any time."""

    def __init__(self, *batches: list[Json | None]) -> None:
        self.asked: list[tuple[str, Json]] = []
        self._batches = list(batches)
        self._events: queue.SimpleQueue[Json | None] = queue.SimpleQueue()
        self._where, self._stopped = "0.0", "start"
        self.answers: dict[str, Callable[[Json], Json]] = {
            "progress": lambda _: {"moment": self._where, "stopped": self._stopped, "number": 1, "tally": TALLY},
            "resume": self._resume,
            "stack": lambda _: {"frames": FRAMES},
            "source": lambda asked: {"filename": "/job/train.py", "function": "step", "line": 7, "first": 6,
                                     "lines": ["before", f"line_of_frame_{asked['frame']}()", "after"]},
            "evaluate": lambda asked: {"value": {"kind": "sequence", "type": "list", "length": 1, "items": [TENSOR]}
                                       if asked["expression"] in ("input", "out") else
                                       {"kind": "scalar", "type": "int", "value": 42}},
            "locals": lambda _: {"locals": [{"from": "local", "name": "loss", "type": "float", "text": "3.5"}]},
            "peers": lambda _: {"title": "world", "size": 2, "members": MEMBERS, "recorded_ns": 1_000_000},
            "pause": lambda _: {},
            "stops": lambda _: {},
            "difference": lambda _: {"equal": False, "differing": 1, "elements": 4, "largest": 0.25},
        }  # fmt: skip

    def again(self, moment: Moment) -> None:
        """It stands where it stood before."""
        self._where = str(moment)
        self._stopped = "next" if moment.collective else "start"

    def tell(self, event: Json | None) -> None:
        self._events.put(event)

    def ask(self, verb: str, *, timeout_s: float = 30.0, **arguments: Any) -> Json:
        self.asked.append((verb, arguments))
        if verb == "quit":
            raise RankLost("the connection closed")
        return self.answers[verb](arguments)

    def next_event(self, timeout_s: float | None, what: str) -> Json:
        try:
            event = self._events.get(timeout=timeout_s)
        except queue.Empty:
            raise WaitTimeout(f"waited for {what}") from None
        if event is None:
            raise RankLost("the connection closed while waiting")
        return event

    def _resume(self, _: Json) -> Json:
        for event in self._batches.pop(0) if self._batches else []:
            self.tell(event)
        return {}


class SaysNothing:
    """The output of a program that prints nothing."""

    size_bytes = 0

    def read(self, _start: int, _most_bytes: int) -> bytes:
        return b""


class PlayedTravel:
    """Goes back by telling the rank where it is again."""

    runtime, first_record, end_record, strict = "played", 0, 5, False
    unhidden: Unhidden = ALL_HIDDEN

    def __init__(self, capsule: Capsule, rank: PlayedRank) -> None:
        self.client = rank
        self.capsule = capsule
        self.output = SaysNothing()
        self.on_cut: Callable[[int], None] = lambda _: None
        self.returned: list[int] = []
        self._checkpoints = [Checkpoint(number=0, moment=Moment(0, 1), size_bytes=0, cost_s=0.1)]

    def stands_first_at(self, moment: Moment) -> None:
        self._checkpoints[0] = replace(self._checkpoints[0], moment=moment)

    @property
    def checkpoints(self) -> tuple[Checkpoint, ...]:
        return tuple(self._checkpoints)

    def keep_origin(self) -> None:
        return None

    def save(self, moment: Moment, number: int | None = None, side: str = "") -> Checkpoint:
        made = Checkpoint(number=len(self._checkpoints), moment=moment, size_bytes=1 << 20, cost_s=0.2, side=side)
        self._checkpoints.append(made)
        return made

    def return_to(self, number: int) -> None:
        self.returned.append(number)
        self.client.again(self._checkpoints[number].moment if number else Moment(0))

    def forget(self, number: int) -> None:
        self._checkpoints = [kept for kept in self._checkpoints if kept.number != number]


def live_over(
    capsule: Capsule,
    rank: PlayedRank,
    travel: PlayedTravel | None = None,
    first_lines: tuple[str, ...] = (),
    standing: OutsideCollective | None = None,
    hang: RecordedHang | None = None,
    bound_s: float = 600.0,
) -> LiveRank:
    @contextmanager
    def opens(say: Callable[[str], None]) -> Iterator[PlayedTravel]:
        say("played: starting")
        yield travel or PlayedTravel(capsule, rank)

    def debugs(place: PlayedTravel, tell: Callable[[Notice], object]) -> Debugger:
        ended = lambda: "its process ended with 137"  # noqa: E731
        settings = Settings(checkpoints=False, bound_s=bound_s)
        return Debugger(
            cast(Any, place),
            tell,
            end_record=place.end_record,
            settings=settings,
            how_it_ended=ended,
            standing=standing,
            hang=hang,
        )

    return LiveRank(opens, debugs, first_lines)


def small_capsule(folder: Path) -> Capsule:
    """Three steps of two collectives in `world`, values received."""
    return make_capsule(folder / "capsule", MANIFEST)


@asynccontextmanager
async def screen(app: PrismApp, size: tuple[int, int] = (160, 45)) -> AsyncIterator[Pilot[int]]:
    """The application, once its log is read; at the end its rank is gone."""
    async with running(app, size) as pilot:
        await until(lambda: app.recording is not None, pilot)
        yield pilot
    if app.live is not None:
        app.live.close()
        assert app.live.wait(10), "the thread of the replay ends"


async def until(condition: Callable[[], object], pilot: Pilot[int], bound_s: float = 20.0) -> None:
    async with asyncio.timeout(bound_s):
        while not condition():
            await pilot.pause(0.01)
    await pilot.pause()


def has_values(app: PrismApp) -> bool:
    """The pane of values has one."""
    try:
        return bool(app.panes.values.first())
    except UsageError:
        return False


async def resized(app: PrismApp, pilot: Pilot[int], size: tuple[int, int]) -> None:
    """The terminal has that size, and every pane has found its own in it."""
    await pilot.resize_terminal(*size)
    await until(lambda: tuple(app.screen.size) == size, pilot)


def screen_of_app(
    app: PrismApp, part: Callable[[PrismApp, Pilot[int]], Awaitable[None]], size: tuple[int, int] = (160, 45)
) -> None:
    async def run() -> None:
        async with screen(app, size) as pilot:
            await part(app, pilot)

    asyncio.run(run())


def screen_of(
    part: Callable[[PrismApp, Pilot[int]], Awaitable[None]],
    folder: Path,
    rank: PlayedRank,
    *,
    app: PrismApp | None = None,
    size: tuple[int, int] = (160, 45),
) -> PlayedTravel:
    """Plays `part` on a screen over a small capsule; gives what the rank went back by."""
    capsule = small_capsule(folder) if app is None else app.capsule
    travel = PlayedTravel(capsule, rank)
    screen_of_app(app or PrismApp(capsule, "capsule", live=live_over(capsule, rank, travel)), part, size)
    return travel


@cache
def large_job() -> OverviewJob:
    """8,192 ranks whose speeds differ by up to 2 %; one of each 512 ran."""
    mesh = Mesh.parse("pp=16,dp=64,tp=8")
    slower = 1_000_000 + (np.arange(mesh.world) * 7919) % 20_000
    slower[617] = 1_300_000
    shape = GptShape(layers=32, hidden=4096, microbatches=16)
    graph = gpt_job(mesh, shape, compute_ppm=slower)
    return OverviewJob(
        name="run",
        timeline=simulate(graph, example()),
        ran=frozenset(range(0, mesh.world, 512)),
        stands_for=np.arange(mesh.world) // 512 * 512,
        cluster="assumed",
    )
