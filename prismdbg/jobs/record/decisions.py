"""One incident, seen by several supervisors: which of them captures it.

Each that sees one puts down how near to the cause it is. After a while all read the same and choose alike. The chosen
one decides it with a folder that is renamed to its place, which only one can do, captures it, and says so. Where the
chosen one is gone, before that or meanwhile, the next takes its place. What cannot be put down, in a folder that is
full or gone, is tried again.

What may happen again has a folder for each time. Whoever captured one says when it was over, as far as its ranks show
it: what happened later is another one, and all else that is seen of it is the same one, however late. No times of two
nodes are compared: when something happened is how long ago that was on its node, by the clock of the file system.
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
from prismdbg.jobs.storage.file_system_time import file_system_now, now_in
from prismdbg.jobs.storage.first_folder import place_first
from prismdbg.jobs.storage.run_folder import RunFolder, read_if_whole, read_json, write_json
from prismdbg.settings.state_hold import LONGEST_S

SETTLE_S = 2.0  # so long others may still say that they saw it, too
PATIENCE_S = 10.0  # with the supervisor that is nearer to the cause
FOLLOWED_S = 1.0  # between two looks at what another one captures
_DECIDED = "decided"
_COMING = ".decided."
_SAW = ".saw.json"
_BY, _DONE, _OVER = "by.json", "done.json", "over.json"
_THREAD_NS = 1_000_000_000  # what a thread raised has to do with what ends a rank within this time

Key = Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """What tells one time from another that something happens: `time_ns`, by CLOCK_MONOTONIC, and its step, where that
    is to count. most: so many are captured, but for one of a thread."""

    time_ns: int
    most: int
    step: int | None = None
    of_thread: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Over:
    """Since when by CLOCK_MONOTONIC, and from which step on, the next of its name is another one. of_thread: one that
    ends no rank, of which there is no other one."""

    time_ns: int
    since_step: int = 0
    of_thread: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Which:
    """Of the incidents of one name. since_step: from which on it is the first, 0 where that is not known."""

    number: int = 1
    since_step: int = 0


Act = Callable[[Which], None]
_FIRST = Which()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Open:
    """`since_s`: since when the others can see that it was seen; None while they cannot. has_nearer: another one has
    seen it that is nearer to the cause. decider: who has decided it, and captures it now; gone: who did so and was lost
    before it was done. `over`: as far as it is known before it is decided. done_s: since when it is known that its turn
    is done, and not that it is over; passed: how many before it count. settle_s: so long the others may still say that
    they saw it."""

    key: tuple[int, ...]
    act: Act
    since_s: float | None = None
    has_nearer: bool = False
    decider: str = ""
    looked_s: float = -FOLLOWED_S
    gone: frozenset[str] = frozenset()
    again: Again | None = None
    which: Which = _FIRST
    over: Over | None = None
    done_s: float | None = None
    passed: int = 0
    settle_s: float = SETTLE_S

    def next(self, over: Over) -> _Open:
        """The same in the next turn."""
        return _Open(
            key=self.key,
            act=self.act,
            again=self.again,
            which=Which(number=self.which.number + 1, since_step=over.since_step),
            over=self.over,
            passed=self.passed + (not over.of_thread),
        )


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
        self._later: list[tuple[str, _Open]] = []  # behind one of the same name
        self._decided: dict[str, Path] = {}  # by name the last one, where it was decided here
        self._acted: list[Path] = []  # on which of what was decided here, and the others do not know it yet
        self._over: dict[Path, Over] = {}  # what the others do not know yet to be over
        self._fails_since_s: float | None = None

    @property
    def is_open(self) -> bool:
        return bool(self._open or self._later)

    @property
    def has_to_tell(self) -> bool:
        """Whether the others do not know yet what was captured here: they would take this node for lost."""
        return bool(self._acted)

    def propose(self, incident: str, key: Key, act: Act, again: Again | None = None) -> None:
        """`incident`: by what all nodes call it. The smallest key is nearest to the cause; `act` captures it. again: of
        what may happen again; this node proposes it once each time."""
        if again is not None or incident not in self._open:
            self._decided.pop(incident, None)
            self._later.append((incident, _Open(key=tuple(key), act=act, again=again)))
            self._begin()

    def _begin(self) -> None:
        """With what nothing of the same name is before."""
        for entry in list(self._later):
            incident, one = entry
            if incident not in self._open:
                self._later.remove(entry)
                self._open[incident] = one
                self._tried(self._note, incident)

    def note_over(self, incident: str, over: Over) -> None:
        """The last one that was proposed by this name is over, as its node sees it."""
        behind = [at for at, (name, _) in enumerate(self._later) if name == incident]
        if behind:
            self._later[behind[-1]] = incident, replace(self._later[behind[-1]][1], over=over)
        elif incident in self._open:
            self._open[incident] = replace(self._open[incident], over=over)
        elif incident in self._decided:
            self._over[self._decided[incident]] = over

    @property
    def failing_s(self) -> float:
        """For how long nothing could be put down or decided; 0 where the last try succeeded."""
        return self._now_s() - self._fails_since_s if self._fails_since_s is not None else 0.0

    def act_alone(self) -> None:
        """On all that is open, and that no other one captures: where nothing can be agreed upon with others."""
        while self._open or self._later:
            incident, one = next(iter(self._open.items()), None) or self._later[0]
            self._forget(incident, one)
            if not one.decider and one.done_s is None:
                one.act(one.which)

    def _forget(self, incident: str, one: _Open) -> None:
        if self._open.pop(incident, None) is None:
            self._later.remove((incident, one))

    def drop(self) -> None:
        """What was not decided so far is no incident."""
        self._open.clear()
        self._later.clear()

    def settle(self) -> None:
        self._begin()
        for incident, one in list(self._open.items()):
            if self._tried(self._note if one.since_s is None else self._settle, incident):
                self._decided[incident] = self._folder(incident, one)
                if (over := _known_over(one)) is not None:
                    self._over[self._folder(incident, one)] = over
                    self._tell_others()
                try:
                    one.act(one.which)
                finally:
                    self._acted.append(self._place(incident, one))
        self._tell_others()

    def _tell_others(self) -> None:
        """That it is over before that it is done: who hears of the second asks for the first."""
        with suppress(OSError):  # it is told at the next look
            for folder, over in list(self._over.items()):
                told = {"since_step": over.since_step, "of_thread": over.of_thread}
                write_json(folder / _OVER, {"age_s": self._age_s(over.time_ns), **told})
                del self._over[folder]
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
        """In the first turn that is not done. It is dropped where it is the same as what was captured in an earlier
        one."""
        while (one := self._open.get(incident)) is not None:
            folder = self._folder(incident, one)
            if one.again is not None and any(place.parent == folder for place in self._acted):
                break  # it is known here what was captured, and not yet to the others
            done = next(filter(_is_done, folder.glob(f"{_DECIDED}*")), None)
            if done is None:
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                write_json(folder / f"{self._node}{_SAW}", {"key": list(one.key)})
                is_late = self._fails_since_s is not None  # the folder is back, and the others may find that later
                settle_s = PATIENCE_S if is_late else SETTLE_S
                self._open[incident] = replace(one, since_s=self._now_s(), done_s=None, settle_s=settle_s)
                break
            over = _read_over(folder) if one.again is not None else None
            if one.again is None or (over is not None and not self._is_later(one.again, over, folder)):
                del self._open[incident]
            elif over is not None:
                self._open[incident] = one.next(over)
                if self._open[incident].passed >= one.again.most:
                    del self._open[incident]
            elif self._may_be_over(one, done):
                self._open[incident] = replace(one, since_s=None, done_s=one.done_s or self._now_s())
                break
            else:
                del self._open[incident]
        return False

    def _may_be_over(self, one: _Open, done: Path) -> bool:
        """Whether the one that was captured may soon be told to be over, and so before this one: it was captured
        meanwhile, or has just come to its end."""
        if one.done_s is not None and self._now_s() - one.done_s >= SETTLE_S:
            return False
        return one.again is not None and self._happened_s(one.again, done) > _decided_s(done)

    def _is_later(self, again: Again, over: Over, folder: Path) -> bool:
        if (again.of_thread and over.of_thread) or (again.step is not None and again.step < over.since_step):
            return False
        return self._happened_s(again, folder) > over.time_ns / 1e9

    def _happened_s(self, again: Again, folder: Path) -> float:
        """By the clock of the file system, and not later than it was: to ask may take long."""
        now_s = now_in(folder)
        return now_s - self._age_s(again.time_ns)

    def _age_s(self, time_ns: int) -> float:
        return self._now_s() - time_ns / 1e9

    def _settle(self, incident: str) -> bool:
        """Whether it was this node that decided it now."""
        one = self._open[incident]
        folder = self._folder(incident, one)
        waited_s = self._now_s() - (one.since_s or 0.0)
        if waited_s < one.settle_s or self._now_s() - one.looked_s < FOLLOWED_S:
            return False
        file_system_now(folder)
        place = self._place(incident, one)
        if not place.is_dir():
            if waited_s <= one.settle_s + PATIENCE_S and self._has_nearer(incident):
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
        if is_done and one.again is not None and decider != self._node:
            self._open[incident] = replace(one, decider="", since_s=None)
            return self._note(incident)
        if is_done or decider in ("", self._node):
            del self._open[incident]
            return not is_done and decider == self._node
        if self._is_lost(one.decider):
            if self._has_ended(one.decider):
                del self._open[incident]
                return False
            since_s, gone = self._now_s() - one.settle_s, one.gone | {one.decider}
            one = replace(one, since_s=since_s, has_nearer=False, decider="", gone=gone)
        elif self._now_s() - (one.since_s or 0.0) > LONGEST_S:  # meanwhile nothing is checkpointed or reduced here
            del self._open[incident]
            return False
        self._open[incident] = one
        return False

    def _place(self, incident: str, one: _Open) -> Path:
        """Where it is decided: there is one place more each time a decider is lost."""
        return self._folder(incident, one) / (f"{_DECIDED}.{len(one.gone)}" if one.gone else _DECIDED)

    def _folder(self, incident: str, one: _Open) -> Path:
        """Readable, and short: a text may be in it that the program chose."""
        incident += f"-{one.which.number}" if one.which.number > 1 else ""
        plain = re.sub(r"[^A-Za-z0-9._-]+", "-", incident)
        if plain != incident or len(plain) > 80:
            plain = f"{plain[:60]}-{hashlib.sha256(incident.encode()).hexdigest()[:8]}"
        return self._run.decisions / plain

    def _has_nearer(self, incident: str) -> bool:
        """What was put down stays: once a nearer one is found, no note is read again."""
        one = self._open[incident]
        if not one.has_nearer:
            seen = (saw for saw in _seen(self._folder(incident, one)) if saw[0] not in one.gone)
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


def _known_over(one: _Open) -> Over | None:
    """As far as it is known when it is decided. What a thread raised is nothing to the program, which goes on."""
    if one.again is not None and one.again.of_thread:
        return Over(time_ns=one.again.time_ns + _THREAD_NS, of_thread=True)
    return one.over


def _decided_s(place: Path) -> float:
    """By the clock of the file system; 0 where it does not say any more who decided it."""
    with suppress(FileNotFoundError):
        return (place / _BY).stat().st_mtime
    return 0.0


def _read_over(folder: Path) -> Over | None:
    """By the clock of the file system. None while it is not known, or where that is damaged."""
    path = folder / _OVER
    if all(other.name != _OVER for other in folder.iterdir()):
        return None
    with suppress(CapsuleError):
        told, written_s = read_json(path), path.stat().st_mtime
        over_s = written_s - float(told.get("age_s", 0.0))
        return Over(
            time_ns=round(over_s * 1e9),
            since_step=int(told.get("since_step", 0)),
            of_thread=bool(told.get("of_thread", False)),
        )
    return None


def _seen(folder: Path) -> Iterator[tuple[str, tuple[int, ...]]]:
    for path in folder.glob(f"*{_SAW}"):
        with suppress(CapsuleError, ValueError, TypeError):  # half of one is none
            key = read_json(path).get("key", [])
            yield path.name.removesuffix(_SAW), tuple(map(int, key))
