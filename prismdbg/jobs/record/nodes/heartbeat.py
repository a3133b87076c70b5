"""A supervisor's heartbeat in RUN, and the watch over that of the next node: who falls silent is named by another.

Each watches one other, in the order of their names. Of that one it reads the heartbeat alone, so that what this costs a
file server does not grow with the square of the nodes; `known_nodes` lists them seldom. Whether somebody is silent is
measured by the own clock and the own heartbeats alone: while RUN is full or gone, nobody can be heard of.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any

from prismdbg.errors import CapsuleError
from prismdbg.jobs.record.hangs import NO_DELAYS, Delays
from prismdbg.jobs.record.nodes.known_nodes import KnownNodes
from prismdbg.jobs.storage.job_nodes import SILENT_S, NodeFolder, last_beat, nodes_of_ranks
from prismdbg.jobs.storage.run_folder import RunFolder, read_json, write_json
from prismdbg.model.durations import duration

BEAT_S = 1.0
LOOK_NS = 2_000_000_000
MOST_LOSSES = 8  # of one node that are told: the list of problems has an end
MOST_HELD = 16  # of the times in which ranks were held


class Heartbeat:
    """Counts up a number in RUN, from `begin` to `end`."""

    def __init__(self, node: NodeFolder) -> None:
        self._node = node
        self._ended = Event()
        self._beat = 0
        self.arrived = 0  # how many came into RUN
        self._ranks: dict[str, Any] = {}
        self._published = ""
        self._delays = NO_DELAYS
        self._holding_ns: list[int] = []  # since when the supervisor takes an image, and until when

    def tell(
        self,
        living: list[str],
        gone: list[str],
        progress: Mapping[str, Any] | None = None,
        delays: Delays = NO_DELAYS,
    ) -> None:
        """What others cannot see: the log folders of ranks whose processes are there, and of those that are not.
        progress: of each rank, for who does not read the logs of all. delays: of whoever waits for its ranks."""
        self._delays = delays
        self._ranks = {"living": living, "gone": gone} | ({"progress": progress} if progress else {})

    @contextmanager
    def holding(self) -> Iterator[None]:
        """While the supervisor takes an image, it tells nothing else, and ranks wait for the one that is held."""
        self._holding_ns = [time.monotonic_ns()]
        try:
            yield
        finally:
            self._holding_ns = [*self._holding_ns, time.monotonic_ns()]

    def tell_published(self, token: str) -> None:
        """That the logs are in RUN which somebody asked for by this token."""
        self._published = token

    def begin(self) -> None:
        Thread(target=self._run, name="prismdbg-heartbeat", daemon=True).start()

    def end(self) -> None:
        """What was told last stays there."""
        self._ended.set()
        self.once()

    def once(self) -> None:
        self._beat += 1
        with suppress(OSError):  # the next one may get there; the supervisor says what is wrong with RUN
            self._publish()
            self.arrived += 1

    def _publish(self) -> None:
        """A folder that is full takes no new file; the last one may still become younger there."""
        try:
            told = {**self._ranks, **self._answer(), **self._told_delays()}
            write_json(self._node.beat, {"beat": self._beat, "pid": os.getpid(), **told})
        except OSError:
            os.utime(self._node.beat)

    def _answer(self) -> dict[str, str]:
        return {"published": self._published} if self._published else {}

    def _told_delays(self) -> dict[str, Any]:
        """How long ago, for clocks of nodes differ."""
        now_ns, held = time.monotonic_ns(), list(self._delays.held[-MOST_HELD:])
        if self._holding_ns:
            begun_ns, *ended_ns = self._holding_ns
            held.append((begun_ns, ended_ns[0] if ended_ns else now_ns))
        ago_s = [[(now_ns - one_ns) / 1e9 for one_ns in span] for span in held]
        found = {"busy": sorted(self._delays.busy), "held_s": ago_s}
        return {name: value for name, value in found.items() if value}

    def _run(self) -> None:
        while True:
            self.once()
            if self._ended.wait(BEAT_S):
                return


def beat_of(node: NodeFolder) -> int:
    """The number of its last heartbeat; -1 where there is none that can be read."""
    try:
        return int(last_beat(node).get("beat", -1))
    except (CapsuleError, OSError):
        return -1


def has_ended(node: NodeFolder) -> bool:
    """Its part of the job is over, and its supervisor has seen that."""
    with suppress(CapsuleError, OSError):
        return "exit_code" in read_json(node.supervisor_json)
    return False


class Silence:
    """How long a supervisor has not been heard of."""

    def __init__(self, node: NodeFolder, heart: Heartbeat) -> None:
        """`heart`: our own. Its heartbeats are what tells silence from a RUN that nobody can write to."""
        self.node = node
        self._heart = heart
        self._pulse: tuple[int, int] | None = None
        self.heard()

    def heard(self) -> bool:
        """Whether it gave a heartbeat since this was asked last."""
        pulse = beat_of(self.node), _modified_ns(self.node.beat)
        if pulse == self._pulse:
            return False
        self._pulse, self._since_ns, self._arrived = pulse, time.monotonic_ns(), self._heart.arrived
        return True

    @property
    def seconds(self) -> float:
        return (time.monotonic_ns() - self._since_ns) / 1e9

    @property
    def is_too_long(self) -> bool:
        """As many of our own heartbeats have arrived meanwhile."""
        return self.seconds > SILENT_S and (self._heart.arrived - self._arrived) * BEAT_S >= SILENT_S


def _modified_ns(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


class NeighbourWatch:
    """The watch over the next node that is not known to be lost or to have ended. One that is heard of again is watched
    again."""

    def __init__(self, run: RunFolder, own: NodeFolder, heart: Heartbeat, tell: Callable[[str], None]) -> None:
        self._run = run
        self._own = own
        self._heart = heart
        self._tell = tell
        self._nodes = KnownNodes(run, own.restart, tell)
        self._ended: set[str] = set()
        self._lost: dict[str, Silence] = {}
        self._losses: Counter[str] = Counter()
        self._watched: Silence | None = None
        self._looked_ns = 0

    def look(self) -> None:
        now_ns = time.monotonic_ns()
        if now_ns - self._looked_ns < LOOK_NS:
            return
        self._looked_ns = now_ns
        self._find_again()
        silence = self._next_silence()
        if silence is not None and silence.is_too_long:
            self._lost[silence.node.name] = silence
            self._losses[silence.node.name] += 1
            if self._losses[silence.node.name] <= MOST_LOSSES:
                self._tell(self._text(silence))

    def _find_again(self) -> None:
        for name, silence in list(self._lost.items()):
            silent_s = silence.seconds
            if beat_of(silence.node) != -1 and silence.heard():
                del self._lost[name]
                if self._losses[name] < MOST_LOSSES:
                    self._tell(f"node {name} is heard of again, after {duration(silent_s)}")

    def _next_silence(self) -> Silence | None:
        """Of the next node that goes on; None if it was heard of. Only one that was not is asked whether it ended."""
        nodes = self._nodes.lately()
        later = [node for node in nodes if node.name > self._own.name]
        for node in (*later, *(node for node in nodes if node.name < self._own.name)):
            if node.name in self._ended or node.name in self._lost:
                continue
            if self._watched is None or self._watched.node != node:
                self._watched = Silence(node, self._heart)
            elif self._watched.heard():
                return None
            if not has_ended(node):
                return self._watched
            self._ended.add(node.name)
        return None

    def _text(self, silence: Silence) -> str:
        name, losses = silence.node.name, self._losses[silence.node.name]
        ranks = sorted(rank for rank, owner in nodes_of_ranks(self._run).items() if owner == name)
        whose = f" with rank{'s' if len(ranks) > 1 else ''} {', '.join(ranks)}" if ranks else ""
        again = f" once more ({losses} times so far)" if losses > 1 else ""
        is_last = losses == MOST_LOSSES
        rest = "; further losses of this node are not reported: `prismdbg status` shows its state" if is_last else ""
        return (
            f"node {name}{whose} has been silent for {silence.seconds:.0f} s{again}: "
            f"it, its supervisor or its network is lost{rest}"
        )
