"""A control group for one replay on this machine: memory and processes together, not one by one."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from prismdbg.runtime.limits import Limits
from prismdbg.runtime.owner import is_gone, owner

ROOT = Path("/sys/fs/cgroup")
_MARK = "prismdbg-"
_REMOVE_S = 10.0
# of each limit: the file that sets it, the file that counts, and under which key, in version 1 and 2
_V1 = {
    "memory": ("memory.limit_in_bytes", "memory.oom_control", "oom_kill"),
    "pids": ("pids.max", "pids.events", "max"),
}
_V2 = {"memory": ("memory.max", "memory.events", "oom_kill"), "pids": ("pids.max", "pids.events", "max")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """folders: one of version 2, or one a controller. events: a limit's name, the file and the key that count it.

    Remove it when nothing runs in it any more.
    """

    folders: tuple[Path, ...]
    events: tuple[tuple[str, str, str], ...]

    def command(self, command: list[str]) -> list[str]:
        """The same, from its first moment inside."""
        enter = 'n=$1; shift; while [ "$n" -gt 0 ]; do echo $$ > "$1/cgroup.procs"; shift; n=$((n-1)); done; exec "$@"'
        return ["/bin/sh", "-ec", enter, "sh", str(len(self.folders)), *map(str, self.folders), *command]

    def limits_met(self) -> tuple[str, ...]:
        return tuple(name for name, path, key in self.events if _count(Path(path), key))

    def remove(self) -> None:
        deadline = time.monotonic() + _REMOVE_S
        for folder in self.folders:
            while folder.exists():
                try:
                    folder.rmdir()
                except OSError:  # the kernel still ends what was in it
                    if time.monotonic() > deadline:
                        return
                    time.sleep(0.01)


def _count(path: Path, key: str) -> int:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return 0
    return next((int(words[1]) for line in lines if (words := line.split())[:1] == [key]), 0)


def make_group(name: str, limits: Limits) -> Group | None:
    """None where this user may not make one, or the machine has no such controllers. Those that killed commands have
    left are removed first."""
    _remove_abandoned({folder.parent for folder in _places(name).values()})
    made: list[Path] = []
    events = []
    try:
        for kind, folder in _places(name).items():
            if folder not in made:
                folder.mkdir()
                made.append(folder)
            most, counted, key = (_V2 if _is_v2() else _V1)[kind]
            (folder / most).write_text(str(limits.memory_bytes if kind == "memory" else limits.processes))
            if kind == "memory":
                with contextlib.suppress(OSError):  # no swap beside it, where swap is counted
                    swap = "memory.swap.max" if _is_v2() else "memory.memsw.limit_in_bytes"
                    (folder / swap).write_text("0" if _is_v2() else str(limits.memory_bytes))
            events.append((kind, str(folder / counted), key))
    except OSError:
        Group(folders=tuple(made), events=()).remove()
        return None
    return Group(folders=tuple(made), events=tuple(events)) if made else None


def _remove_abandoned(parents: Iterable[Path]) -> None:
    for folder in (left for parent in parents for left in parent.glob(f"{_MARK}*")):
        if is_gone(folder.name.removeprefix(_MARK).partition("-")[0]):
            with contextlib.suppress(OSError):  # something still runs in it, or another command was faster
                folder.rmdir()


def _is_v2() -> bool:
    return (ROOT / "cgroup.controllers").exists()


def _places(name: str) -> dict[str, Path]:
    """Where a group of each controller is made: in version 1 below our own, in version 2 below the root, for only there
    may processes and groups lie side by side."""
    if _is_v2():
        return dict.fromkeys(_V2, ROOT / name)
    own = dict(_own())
    return {kind: ROOT / kind / own.get(kind, "/").lstrip("/") / name for kind in _V1}


def _own() -> Iterator[tuple[str, str]]:
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            yield controller, path


def group_name(session: Path) -> str:
    return f"{_MARK}{owner()}-{session.name}"
