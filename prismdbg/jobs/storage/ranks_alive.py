"""Whether a rank's process is still there, and whether it said goodbye."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prismdbg.capsule.log.reader import iter_logs, was_cut
from prismdbg.diagnosis.failures import has_failed, raised_by_itself
from prismdbg.diagnosis.outlived import was_outlived
from prismdbg.errors import CapsuleError
from prismdbg.jobs.storage.run_folder import attempt_of, rank_of, read_if_whole, read_json
from prismdbg.log.columns import LAST_BYTES, read_whole
from prismdbg.model.moment import Moment
from prismdbg.settings.boot import boot_id, time_namespace
from prismdbg.settings.process_stat import fields_of, is_stopped, start_ticks, text_of
from prismdbg.settings.rank_config import ENVIRONMENT_NAME


def is_alive(pid: int) -> bool:
    """A zombie is dead: its launcher has not looked yet."""
    return start_ticks(pid) > 0


def still_runs(rank: Mapping[str, Any]) -> bool:
    """The process that this rank.json describes: another may have its number by now."""
    pid = pid_here(rank) if rank else None
    return pid is not None and _is_the_same(pid, rank)


def who_may_write(ranks: Path, config: Path) -> str:
    """`rank 0, rank 1 still run`: those with a log below `ranks`. Where none does: `a process of the job (PID 7) still
    runs`, if one was started with this configuration: it may become a rank, or be one that has not yet described
    itself. Empty where nobody runs."""
    folders = iter_logs(ranks) if ranks.is_dir() else ()
    if running := [f"rank {folder.name}" for folder in folders if _has_process(folder)]:
        return f"{', '.join(running)} still {'runs' if len(running) == 1 else 'run'}"
    pid = process_with(config)
    return "" if pid is None else f"a process of the job (PID {pid}) still runs"


def process_with(config: Path) -> int | None:
    """The PID of a process that was started with this configuration. It reads nothing of RUN."""
    return next((pid for pid in _processes() if _was_started_with(config, pid)), None)


def _has_process(folder: Path) -> bool:
    with suppress(CapsuleError):  # what is damaged keeps no log from RUN
        return still_runs(read_json(folder / "rank.json"))
    return False


def _was_started_with(config: Path, pid: int) -> bool:
    with suppress(OSError):  # ended meanwhile, or another user's
        return f"{ENVIRONMENT_NAME}={config}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return False


def stopped_pid(rank: Mapping[str, Any]) -> int | None:
    """The PID of the process that this rank.json describes, if it is stopped."""
    if not still_runs(rank) or (pid := pid_here(rank)) is None:
        return None
    try:
        return pid if is_stopped(fields_of(pid)) else None
    except OSError:  # it has just ended
        return None


def _is_the_same(pid: int, rank: Mapping[str, Any]) -> bool:
    ticks = start_ticks(pid)
    return ticks > 0 and int(rank.get("started_ticks", ticks)) == ticks


def pid_here(described: Mapping[str, Any], where: Path = Path("rank.json")) -> int | None:
    """The PID of a rank's process in our own namespace, by its rank.json. None where it cannot be seen from here: it
    runs on another node, or in a PID namespace that is not below ours. `where`: that file, for an error."""
    if "pid" not in described:
        raise CapsuleError(
            f"{where}: pid is missing", hint="try again in a moment; if that does not help, the file is damaged"
        )
    pid, own = int(described["pid"]), Path("/proc/self/ns/pid").stat().st_ino
    namespace = int(described.get("pid_namespace", own))
    if not _is_of_this_boot(described):
        return None
    if namespace == own:
        return pid
    return next((at for at in _processes() if _is_it(at, pid, namespace)), None)


def _is_of_this_boot(described: Mapping[str, Any]) -> bool:
    """Whether it is of this machine, since it was booted last. Another machine may have the same name."""
    node = described.get("hardware", {}).get("node", platform.node())
    if node != platform.node() and not is_in_a_container_here(described):
        return False
    return bool(described.get("boot_id", boot_id()) == boot_id())


def _has_our_clock(described: Mapping[str, Any]) -> bool:
    """Also of a process that has ended."""
    ours = time_namespace()
    return _is_of_this_boot(described) and described.get("time_namespace", ours) == ours


def is_in_a_container_here(described: Mapping[str, Any]) -> bool:
    """Whether a rank runs in another PID namespace of this machine, where it may have another host name. The boot tells
    which machine it is; machines that were copied while they ran have the same boot, but no other namespace."""
    own, boot = Path("/proc/self/ns/pid").stat().st_ino, boot_id()
    return boot != "" and described.get("boot_id") == boot and described.get("pid_namespace", own) != own


def _processes() -> Iterator[int]:
    return (int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal())


def _is_it(at: int, pid: int, namespace: int) -> bool:
    try:
        if Path(f"/proc/{at}/ns/pid").stat().st_ino != namespace:
            return False
        lines = text_of(Path(f"/proc/{at}/status")).splitlines()
    except OSError:  # ended meanwhile, or another user's
        return False
    return next((int(line.split()[-1]) for line in lines if line.startswith("NSpid:")), -1) == pid


def was_replaced(folder: Path) -> bool:
    """Whether the process of this log put another program in its own place (exec), which has a later log."""
    mine = read_json(folder / "rank.json")
    later = (
        path
        for path in folder.parent.glob(f"{rank_of(folder)}.*")
        if path.name.partition(".")[2].isdecimal() and attempt_of(path.name) > attempt_of(folder.name)
    )
    others = (read_if_whole(path / "rank.json") for path in later)  # a damaged one hides no death
    return bool(mine.get("started_ticks")) and any(_one_process(mine, other) for other in others)


def _one_process(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return all(one.get(name) == other.get(name) for name in ("pid", "pid_namespace", "started_ticks"))


DAMAGED = "damaged"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Words:
    """What a log says of the end of its rank. said: kinds of notes; raised_inside: whether in a collective, or because
    a peer was lost, None where it did not raise."""

    said: frozenset[str]
    raised_inside: bool | None = None
    has_failed: bool = False
    last_moment: Moment = field(default_factory=lambda: Moment(0))


class RankProcess:
    """One attempt of a rank, by its log folder. `pid`: as it is here; None where it cannot be seen from here, and then
    it is neither alive nor dead. `has_our_clock`: whether the times in its log are of our CLOCK_MONOTONIC."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._described = read_json(folder / "rank.json")
        self.pid = pid_here(self._described, folder / "rank.json")
        self.has_our_clock = _has_our_clock(self._described)
        self._last_words: _Words | None = None

    @property
    def is_out_of_sight(self) -> bool:
        return self.pid is None

    def is_alive(self) -> bool:
        return self.pid is not None and _is_the_same(self.pid, self._described)

    def is_stopped(self) -> bool:
        return self.pid is not None and stopped_pid(self._described) is not None

    def ended_by_itself(self) -> bool:
        """Its program came to its end, or to an exit of its own. Of a log that is damaged nobody knows: it accuses no
        rank, and keeps nobody from looking at the others."""
        said = self._words().said
        return DAMAGED in said or ("exit" in said and "incident" not in said)

    def died_without_a_word(self) -> bool:
        """It is gone, and its log has neither an end nor an incident. Of a log that was cut nobody knows, nor of a
        process that cannot be seen."""
        return self.pid is not None and not self.is_alive() and not self._words().said and not was_cut(self._folder)

    def raised_in_collective(self) -> bool | None:
        """Also of one that still ends, which may take long. A rank that lost a peer counts; None where it did not
        raise, or cannot be seen."""
        return None if self.pid is None else self._words().raised_inside

    def has_failed(self) -> bool:
        """As far as its log says it so far; of one that is damaged nobody knows."""
        return self._words().has_failed

    def last_moment(self) -> Moment:
        return self._words().last_moment

    def _words(self) -> _Words:
        """Looked up once when it is dead: nothing is added any more."""
        if self._last_words is None:
            gone = self.pid is not None and not self.is_alive()
            found = _words_of(self._folder)
            if not gone:
                return found
            self._last_words = found
        return self._last_words


def _words_of(folder: Path) -> _Words:
    try:
        log = read_whole(folder, LAST_BYTES)
    except CapsuleError:  # its reader tells of it
        return _Words(said=frozenset((DAMAGED,)))
    said = [note for note in log.notes if note.kind in ("exit", "incident") and not was_outlived(log, note)]
    raised = [note for note in said if note.kind == "incident"]
    return _Words(
        said=frozenset(note.kind for note in said),
        raised_inside=not any(raised_by_itself(log, note) for note in raised) if raised else None,
        has_failed=has_failed(log),
        last_moment=log.last_moment,
    )
