"""One incident, seen by several supervisors: which of them captures it.

Each that sees one puts down how near to the cause it is. After a while all read the same and choose alike. The chosen
one decides it with a folder that is renamed to its place, which only one can do. Where the chosen one is gone, the next
takes its place. No times of two nodes are compared. What cannot be put down, in a folder that is full or gone, is tried
again.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from prismdbg.errors import CapsuleError
from prismdbg.jobs.storage.job_nodes import file_system_now
from prismdbg.jobs.storage.run_folder import RunFolder, read_json, write_json

SETTLE_S = 2.0  # so long others may still say that they saw it, too
PATIENCE_S = 10.0  # with the supervisor that is nearer to the cause
_DECIDED = "decided"
_COMING = ".decided."
_SAW = ".saw.json"

Key = Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Open:
    """`since_s`: since when the others can see that it was seen; None while they cannot. has_nearer: another one has
    seen it that is nearer to the cause."""

    key: tuple[int, ...]
    since_s: float | None
    act: Callable[[], None]
    has_nearer: bool = False


class Decisions:
    """`propose` what was seen; `settle` carries out what falls to this node. `tell`: what the ledger keeps as a
    problem."""

    def __init__(
        self, run: RunFolder, node: str, tell: Callable[[str], None], now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._run = run
        self._node = node
        self._tell = tell
        self._now_s = now_s
        self._open: dict[str, _Open] = {}
        self._fails_since_s: float | None = None

    @property
    def is_open(self) -> bool:
        return bool(self._open)

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
        """On all that is open: where nothing can be agreed upon with others."""
        for incident, one in list(self._open.items()):
            del self._open[incident]
            one.act()

    def drop(self) -> None:
        """What was not decided so far is no incident."""
        self._open.clear()

    def settle(self) -> None:
        for incident, one in list(self._open.items()):
            if self._tried(self._note if one.since_s is None else self._settle, incident):
                one.act()

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
        if _is_decided(folder):
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
        if waited_s < SETTLE_S:
            return False
        file_system_now(folder)
        is_mine = False
        if not _is_decided(folder):
            if waited_s <= SETTLE_S + PATIENCE_S and self._has_nearer(incident):
                return False
            is_mine = self._decide(folder)
        del self._open[incident]
        return is_mine

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
            found = any((key, node) < (one.key, self._node) for node, key in _seen(self._folder(incident)))
            self._open[incident] = one = replace(one, has_nearer=found)
        return one.has_nearer

    def _decide(self, folder: Path) -> bool:
        """Whether it was this node that decided it."""
        coming = folder / f"{_COMING}{secrets.token_hex(6)}"
        coming.mkdir(mode=0o700)
        try:
            write_json(coming / "by.json", {"node": self._node})
            coming.rename(folder / _DECIDED)
        except OSError:
            shutil.rmtree(coming, ignore_errors=True)
            if not _is_decided(folder):
                raise
            return False
        return True


def _is_decided(folder: Path) -> bool:
    return (folder / _DECIDED).is_dir()


def _seen(folder: Path) -> Iterator[tuple[str, tuple[int, ...]]]:
    for path in folder.glob(f"*{_SAW}"):
        with suppress(CapsuleError, ValueError, TypeError):  # half of one is none
            key = read_json(path).get("key", [])
            yield path.name.removesuffix(_SAW), tuple(map(int, key))
