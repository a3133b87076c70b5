"""One incident, seen by several supervisors: which of them captures it.

Each that sees one puts down how near to the cause it is. After a while all read the same and choose alike. The chosen
one decides it with a folder that is renamed to its place, which only one can do. Where the chosen one is gone, the next
takes its place. No times of two nodes are compared.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
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
    key: tuple[int, ...]
    since_s: float
    act: Callable[[], None]


class Decisions:
    """`propose` what was seen; `settle` carries out what falls to this node."""

    def __init__(self, run: RunFolder, node: str, now_s: Callable[[], float] = time.monotonic) -> None:
        self._run = run
        self._node = node
        self._now_s = now_s
        self._open: dict[str, _Open] = {}

    @property
    def is_open(self) -> bool:
        return bool(self._open)

    def propose(self, incident: str, key: Key, act: Callable[[], None]) -> None:
        """`incident`: by what all nodes call it. The smallest key is nearest to the cause; `act` captures it."""
        folder = self._folder(incident)
        if incident in self._open or _is_decided(folder):
            return
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_json(folder / f"{self._node}{_SAW}", {"key": list(key)})
        self._open[incident] = _Open(key=tuple(key), since_s=self._now_s(), act=act)

    def drop(self) -> None:
        """What was not decided so far is no incident."""
        self._open.clear()

    def settle(self) -> None:
        for incident, one in list(self._open.items()):
            waited_s = self._now_s() - one.since_s
            if waited_s < SETTLE_S:
                continue
            folder = self._folder(incident)
            file_system_now(folder)
            if _is_decided(folder):
                del self._open[incident]
            elif waited_s > SETTLE_S + PATIENCE_S or self._is_nearest(folder, one.key):
                del self._open[incident]
                if self._decide(folder):
                    one.act()

    def _folder(self, incident: str) -> Path:
        """Readable, and short: a text may be in it that the program chose."""
        plain = re.sub(r"[^A-Za-z0-9._-]+", "-", incident)
        if plain != incident or len(plain) > 80:
            plain = f"{plain[:60]}-{hashlib.sha256(incident.encode()).hexdigest()[:8]}"
        return self._run.decisions / plain

    def _is_nearest(self, folder: Path, own: tuple[int, ...]) -> bool:
        return all((own, self._node) <= (key, node) for node, key in _seen(folder))

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


def _seen(folder: Path) -> list[tuple[str, tuple[int, ...]]]:
    found = []
    for path in folder.glob(f"*{_SAW}"):
        with suppress(CapsuleError, ValueError, TypeError):  # half of one is none
            key = read_json(path).get("key", [])
            found.append((path.name.removesuffix(_SAW), tuple(map(int, key))))
    return found
