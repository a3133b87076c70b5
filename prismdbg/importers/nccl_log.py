"""Texts that NCCL prints with NCCL_DEBUG=INFO: what it chose for each communicator, and what it warned of.

The lines are those of NCCL 2.18 to 2.30, wherever they stand in a job's output. They have no times. A channel's line
does not name its communicator, so transports are counted for all communicators together.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from prismdbg.capsule.limits import MAX_IMPORTED_RANKS
from prismdbg.errors import CapsuleError, UsageError
from prismdbg.importers import json_stream

MAX_FILE_BYTES = 1 << 30
MOST_COMMUNICATORS = 10_000
MOST_KEPT = 256  # warnings, settings, transports
MAX_LINE_BYTES = 16 << 10
MOST_RING_RANKS = 4096
_LONGEST_NUMBER = 9
# None of these tries again what it has gone through: a line is long, and a log has many. They begin with what they
# have to find, or where they are told to, and what repeats in them ends where it has to.
_LINE = re.compile(r"NCCL (?P<level>INFO|WARN) (?P<text>.+)")
_SOURCE = re.compile(r"[\w./-]+:\d+")
_DEVICE = re.compile(r"\[\d+\]")
_PROCESS = re.compile(r"(?P<before>.*):(?P<pid>\d{1,9}):\d{1,9}")
_NOT_OF_HOST = re.compile(r"[^\w.-]")
_LONGEST_PREFIX = 1024
_VERSION = re.compile(r"NCCL version (?P<version>[\w.+-]+)")
_NETWORK = re.compile(r"Using network (?P<name>.+)")
_SHAPE = re.compile(
    r"comm (?P<comm>0x[0-9a-f]{1,16}) rank (?P<rank>\d{1,9}) n[Rr]anks (?P<size>\d{1,9}) nNodes (?P<nodes>\d{1,9}) "
    r"localRanks (?P<local>\d{1,9})"
)
_INIT = re.compile(
    r"\w+ comm (?P<comm>0x[0-9a-f]{1,16}) rank (?P<rank>\d{1,9}) n[Rr]anks (?P<size>\d{1,9}) (?P<rest>.*)"
)
_STATE = re.compile(r"- Init (?P<state>START|COMPLETE)")
_IDENTITY = re.compile(r"commId (?P<id>0x[0-9a-f]{1,16})")
_RING = re.compile(r"Channel (?P<channel>\d{1,9})/(?P<channels>\d{1,9}) : +(?P<ranks>\d+(?: +\d+)+)$")
_TRANSPORT = re.compile(
    r"Channel \d{1,9}(?:/\d{1,9})? : (?P<source>\d{1,9})\[[^\]]*\] -> (?P<target>\d{1,9})\[[^\]]*\] "
    r"(?:\[(?P<way>send|receive)\] )?via (?P<transport>.+)"
)
_COUNTS = re.compile(r"(?P<coll>\d{1,9}) coll channels(?P<rest>.*)")
_OF_MESSAGES = re.compile(r"(?<!\d)(?P<p2p>\d{1,9}) p2p channels")
_SETTING = re.compile(r"(?P<name>NCCL_\w+) set (?:by environment )?to (?P<value>.+?)\.?$")


@dataclass(slots=True, kw_only=True)
class Communicator:
    """`size`: of the group; begun, ready: the ranks in it that began, and completed, their initialization. nodes: 0
    where it is not told, as the counts of channels. rings: by channel the ranks in their order. identity: its commId,
    empty where no line has told it."""

    size: int
    identity: str = ""
    nodes: int = 0
    coll_channels: int = 0
    p2p_channels: int = 0
    begun: set[int] = field(default_factory=set)
    ready: set[int] = field(default_factory=set)
    rings: dict[int, tuple[int, ...]] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class NcclLog:
    """`transports`: by name (`NET/IB`, `P2P/CUMEM`) how many channels go over it, each counted at its sender.
    processes: host and PID of those that printed something."""

    versions: set[str] = field(default_factory=set)
    networks: set[str] = field(default_factory=set)
    processes: set[tuple[str, str]] = field(default_factory=set)
    communicators: list[Communicator] = field(default_factory=list)
    transports: Counter[str] = field(default_factory=Counter)
    with_gdr: int = 0
    settings: dict[str, str] = field(default_factory=dict)
    warnings: Counter[str] = field(default_factory=Counter)


def read_nccl_logs(paths: Iterable[Path]) -> NcclLog:
    """All files together, one after the other. Raises `CapsuleError` for what cannot be read, and `UsageError` if no
    line is NCCL's."""
    reader, read = _Reader(), list(paths)
    for path in read:
        reader.file += 1
        for line in _lines(path):
            reader.take(line)
    if not reader.log.processes and not reader.log.communicators:
        names = ", ".join(path.name for path in read[:4])
        raise UsageError(f"{names} contains no line of NCCL's", hint="run the job with NCCL_DEBUG=INFO")
    return reader.log


def _lines(path: Path) -> Iterator[str]:
    """A line that is longer than `MAX_LINE_BYTES` comes in pieces."""
    left = MAX_FILE_BYTES
    try:
        with json_stream.opened(path) as file:
            while line := file.readline(MAX_LINE_BYTES):
                left -= len(line)
                if left < 0:
                    raise CapsuleError(f"{path} is larger than {MAX_FILE_BYTES >> 30} GiB", hint="give its beginning")
                if b"NCCL " in line:
                    yield line.decode("utf-8", "replace").rstrip()
    except (OSError, EOFError, zlib.error) as error:
        raise CapsuleError(f"{path} cannot be read: {error}", hint="fetch it again, or leave it out") from None


def _process(before: str) -> tuple[str, str]:
    """Host and PID at the end of what stands before NCCL's text: `host:12:34 [0] file.cc:56 `. Empty without them."""
    words = before[-_LONGEST_PREFIX:].split(" ")
    if words.pop():
        return "", ""  # it does not end with a space
    for optional in (_SOURCE, _DEVICE):
        if words and optional.fullmatch(words[-1]):
            words.pop()
    found = _PROCESS.fullmatch(words[-1]) if words else None
    host = _NOT_OF_HOST.split(found["before"])[-1] if found else ""
    return (host, found["pid"]) if found and host else ("", "")


class _Reader:
    """`file` tells processes of two files apart, whose lines have no host."""

    def __init__(self) -> None:
        self.log = NcclLog()
        self.file = 0
        self._known: dict[tuple[object, ...], Communicator] = {}
        self._last: dict[tuple[object, ...], Communicator] = {}

    def take(self, line: str) -> None:
        if version := _VERSION.search(line):
            self._add(self.log.versions, version["version"])
        if (found := _LINE.search(line)) is None:
            return
        host, pid = _process(line[: found.start()])
        process = (host or f"file {self.file}", pid)
        if len(self.log.processes) < MAX_IMPORTED_RANKS:
            self.log.processes.add(process)
        if found["level"] == "WARN":
            if len(self.log.warnings) < MOST_KEPT or found["text"] in self.log.warnings:
                self.log.warnings[found["text"][:400]] += 1
            return
        self._take_text(process, found["text"])

    def _take_text(self, process: tuple[str, str], text: str) -> None:
        if network := _NETWORK.match(text):
            self._add(self.log.networks, network["name"])
        elif shape := _SHAPE.match(text):
            communicator = self._communicator(process, shape, "")
            communicator.nodes = int(shape["nodes"])
        elif (init := _INIT.match(text)) and (state := _STATE.search(init["rest"])):
            self._init(process, init, state)
        elif (ring := _RING.match(text)) and (last := self._last.get(process)):
            ranks = ring["ranks"].split()[:MOST_RING_RANKS]
            if len(last.rings) < MOST_KEPT and all(len(rank) <= _LONGEST_NUMBER for rank in ranks):
                last.rings[int(ring["channel"])] = tuple(map(int, ranks))
        elif transport := _TRANSPORT.match(text):
            self._transport(transport)
        elif (counts := _COUNTS.match(text)) and (last := self._last.get(process)):
            if of_messages := _OF_MESSAGES.search(counts["rest"]):
                last.coll_channels, last.p2p_channels = int(counts["coll"]), int(of_messages["p2p"])
        elif (setting := _SETTING.match(text)) and len(self.log.settings) < MOST_KEPT:
            self.log.settings[setting["name"]] = setting["value"][:200]

    @staticmethod
    def _add(names: set[str], name: str) -> None:
        if len(names) < MOST_KEPT:
            names.add(name[:200])

    def _communicator(self, process: tuple[str, str], found: re.Match[str], identity: str) -> Communicator:
        """The same for all ranks where NCCL says its identity. Without one it is what the process named by the same
        address before."""
        here = (*process, found["comm"])
        known = self._known.get(here)
        if identity and (known is None or known.identity not in ("", identity)):  # an address may be used again
            known = self._known.get((identity,))
        if known is None:
            if len(self.log.communicators) >= MOST_COMMUNICATORS:
                raise CapsuleError(f"more than {MOST_COMMUNICATORS} communicators", hint="give the log of fewer ranks")
            known = Communicator(size=int(found["size"]))
            self.log.communicators.append(known)
        self._known[here] = self._last[process] = known
        if identity:
            known.identity = identity
            self._known[(identity,)] = known
        return known

    def _init(self, process: tuple[str, str], found: re.Match[str], state: re.Match[str]) -> None:
        said = _IDENTITY.search(found["rest"], 0, state.start())
        identity, rank = said["id"] if said else "", int(found["rank"])
        if state["state"] == "START":
            self._forget_begun((*process, found["comm"]), rank, identity)
        communicator = self._communicator(process, found, identity)
        communicator.begun.add(rank)
        if state["state"] == "COMPLETE":
            communicator.ready.add(rank)

    def _forget_begun(self, here: tuple[object, ...], rank: int, identity: str) -> None:
        """A rank begins each communicator once: what it begins now only has the address of an earlier one."""
        known = self._known.get(here)
        if known is not None and rank in known.begun and (not identity or known.identity != identity):
            del self._known[here]

    def _transport(self, found: re.Match[str]) -> None:
        if found["way"] == "receive":
            return  # its sender tells it, too
        parts = found["transport"].split("/")
        name = "/".join(parts[:2])
        if len(self.log.transports) < MOST_KEPT or name in self.log.transports:
            self.log.transports[name] += 1
            self.log.with_gdr += "GDRDMA" in parts
