"""One incident, seen by several supervisors: which of them captures it.

Each that sees one puts down how near to the cause it is. After a while all read the same and choose alike. The chosen
one decides it with a folder that is renamed to its place, which only one can do, captures it, and says so. Where the
chosen one is gone, before that or meanwhile, the next takes its place. No times of two nodes are compared. What cannot
be put down, in a folder that is full or gone, is tried again.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from prismdbg.errors import CapsuleError
from prismdbg.jobs.storage.first_folder import place_first
from prismdbg.jobs.storage.job_nodes import file_system_now
from prismdbg.jobs.storage.run_folder import RunFolder, read_if_whole, read_json, write_json
from prismdbg.settings.state_hold import LONGEST_S

SETTLE_S = 2.0  # so long others may still say that they saw it, too
PATIENCE_S = 10.0  # with the supervisor that is nearer to the cause
FOLLOWED_S = 1.0  # between two looks at what another one captures
_DECIDED = "decided"
_COMING = ".decided."
_SAW = ".saw.json"
_BY, _DONE = "by.json", "done.json"

Key = Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Open:
    """`since_s`: since when the others can see that it was seen; None while they cannot. has_nearer: another one has
    seen it that is nearer to the cause. decider: who has decided it, and captures it now; gone: who did so and was lost
    before it was done."""

    key: tuple[int, ...]
    since_s: float | None
    act: Callable[[], None]
    has_nearer: bool = False
    decider: str = ""
    looked_s: float = -FOLLOWED_S
    gone: frozenset[str] = frozenset()


class Decisions:
    """`propose` what was seen; `settle` carries out what falls to this node. `tell`: what the ledger keeps as a
    problem. is_lost: whether the supervisor of a node has not been heard of for too long; has_ended: whether that is
    because its part of the job is over: it has captured what it decided."""

    def __init__(
        self,
        run: RunFolder,
        node: str,
        tell: Callable[[str], None],
        now_s: Callable[[], float] = time.monotonic,
        is_lost: Callable[[str], bool] = lambda _: False,
        has_ended: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._run = run
        self._node = node
        self._tell = tell
        self._now_s = now_s
        self._is_lost = is_lost
        self._has_ended = has_ended
        self._open: dict[str, _Open] = {}
        self._acted: list[Path] = []  # on which of what was decided here, and the others do not know it yet
        self._fails_since_s: float | None = None

    @property
    def is_open(self) -> bool:
        return bool(self._open)

    @property
    def has_to_tell(self) -> bool:
        """Whether the others do not know yet what was captured here: they would take this node for lost."""
        return bool(self._acted)

    def propose(self, incident: str, key: Key, act: Callable[[], None]) -> None:
        """`incident`: by what all nodes call it. The smallest key is nearest to the cause; `act` captures it."""
        if incident not in self._open:
            self._open[incident] = _Open(key=tuple(key), since_s=None, act=act)
            self._tried(self._note, incident)

    @property
    def failing_s(self) -> float:
        """For how long nothing could be put down or decided; 0 where the last try succeeded."""
        return self._now_s() - self._fails_since_s if self._fails_since_s is not None else 0.0

    def act_alone(self) -> None:
        """On all that is open, and that no other one captures: where nothing can be agreed upon with others."""
        for incident, one in list(self._open.items()):
            del self._open[incident]
            if not one.decider:
                one.act()

    def drop(self) -> None:
        """What was not decided so far is no incident."""
        self._open.clear()

    def settle(self) -> None:
        for incident, one in list(self._open.items()):
            if self._tried(self._note if one.since_s is None else self._settle, incident):
                try:
                    one.act()
                finally:
                    self._acted.append(self._place(incident, one))
        with suppress(OSError):  # it is told at the next look
            while self._acted:
                write_json(self._acted[0] / _DONE, {})
                self._acted.pop(0)

    def _tried(self, step: Callable[[str], bool], incident: str) -> bool:
        """What `step` answers. Where it fails, the incident stays open."""
        try:
            answer = step(incident)
        except OSError as error:
            self._fails_since_s = self._now_s() if self._fails_since_s is None else self._fails_since_s
            why = error.strerror or str(error)
            self._tell(f"{self._run.path} cannot be written to: {why}; an incident is captured when it can be again")
            return False
        self._fails_since_s = None
        return answer

    def _note(self, incident: str) -> bool:
        folder, one = self._folder(incident), self._open[incident]
        if any(map(_is_done, folder.glob(f"{_DECIDED}*"))):
            del self._open[incident]
        else:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_json(folder / f"{self._node}{_SAW}", {"key": list(one.key)})
            self._open[incident] = replace(one, since_s=self._now_s())
        return False

    def _settle(self, incident: str) -> bool:
        """Whether it was this node that decided it now."""
        folder, one = self._folder(incident), self._open[incident]
        waited_s = self._now_s() - (one.since_s or 0.0)
        if waited_s < SETTLE_S or self._now_s() - one.looked_s < FOLLOWED_S:
            return False
        file_system_now(folder)
        place = self._place(incident, one)
        if not place.is_dir():
            if waited_s <= SETTLE_S + PATIENCE_S and self._has_nearer(incident):
                return False
            if self._decide(place):
                del self._open[incident]
                return True
        return self._follow(incident, place)

    def _follow(self, incident: str, place: Path) -> bool:
        """Another one captures it. Where that is lost meanwhile, it is decided anew among those that are left. True
        where it was this node that decided it, and its file server did so but answered with an error."""
        decider = str(read_if_whole(place / _BY).get("node", ""))
        one = replace(self._open[incident], decider=decider, looked_s=self._now_s())
        is_done = place in self._acted or _is_done(place)
        if is_done or decider in ("", self._node):
            del self._open[incident]
            return not is_done and decider == self._node
        if self._is_lost(one.decider):
            if self._has_ended(one.decider):
                del self._open[incident]
                return False
            since_s, gone = self._now_s() - SETTLE_S, one.gone | {one.decider}
            one = replace(one, since_s=since_s, has_nearer=False, decider="", gone=gone)
        elif self._now_s() - (one.since_s or 0.0) > LONGEST_S:  # meanwhile nothing is checkpointed or reduced here
            del self._open[incident]
            return False
        self._open[incident] = one
        return False

    def _place(self, incident: str, one: _Open) -> Path:
        """Where it is decided: there is one place more each time a decider is lost."""
        return self._folder(incident) / (f"{_DECIDED}.{len(one.gone)}" if one.gone else _DECIDED)

    def _folder(self, incident: str) -> Path:
        """Readable, and short: a text may be in it that the program chose."""
        plain = re.sub(r"[^A-Za-z0-9._-]+", "-", incident)
        if plain != incident or len(plain) > 80:
            plain = f"{plain[:60]}-{hashlib.sha256(incident.encode()).hexdigest()[:8]}"
        return self._run.decisions / plain

    def _has_nearer(self, incident: str) -> bool:
        """What was put down stays: once a nearer one is found, no note is read again."""
        one = self._open[incident]
        if not one.has_nearer:
            seen = (saw for saw in _seen(self._folder(incident)) if saw[0] not in one.gone)
            found = any((key, node) < (one.key, self._node) for node, key in seen)
            self._open[incident] = one = replace(one, has_nearer=found)
        return one.has_nearer

    def _decide(self, place: Path) -> bool:
        """Whether it was this node that decided it."""

        def fill(coming: Path) -> None:
            write_json(coming / _BY, {"node": self._node})

        return place_first(place.with_name(f"{_COMING}{secrets.token_hex(6)}"), place, fill)


def _is_done(place: Path) -> bool:
    """By a list of it, for which a file server is asked: the kernel may remember for long that a name was missing."""
    return any(path.name == _DONE for path in place.iterdir())


def _seen(folder: Path) -> Iterator[tuple[str, tuple[int, ...]]]:
    for path in folder.glob(f"*{_SAW}"):
        with suppress(CapsuleError, ValueError, TypeError):  # half of one is none
            key = read_json(path).get("key", [])
            yield path.name.removesuffix(_SAW), tuple(map(int, key))
