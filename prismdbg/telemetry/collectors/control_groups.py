"""What held up the control group of a process: a CPU quota of the group or of one around it, in both versions of
cgroups, and I/O, in version 2.

Where several CPUs are held at once by a quota, both versions add their times.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from prismdbg.telemetry.open_files import OpenFile, because
from prismdbg.telemetry.pressure import stalled_ns


@dataclass(frozen=True, slots=True)
class _Place:
    """groups: `cpu.stat` of each group with a quota. why: the quota is not known. pressure: of its own group."""

    groups: tuple[OpenFile, ...] = ()
    why: str = ""
    pressure: OpenFile | None = None

    def close(self) -> None:
        for file in (*self.groups, *([self.pressure] if self.pressure is not None else [])):
            file.close()


class ControlGroups:
    """`root`: of the file system, for tests. `find` looks up where a process is, and is asked again now and then."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._places: dict[int, _Place] = {}

    def close(self) -> None:
        for pid in list(self._places):
            self.forget(pid)

    def find(self, pid: int) -> None:
        self.forget(pid)
        self._places[pid] = self._place(pid)

    def forget(self, pid: int) -> None:
        if (place := self._places.pop(pid, None)) is not None:
            place.close()

    def throttled_ns(self, pid: int) -> tuple[int | None, str]:
        """In all since the groups exist; 0 where no group has a quota. None, and why, where it cannot be read."""
        place = self._places.get(pid) or _Place(why="the control group was not looked up yet")
        if place.why:
            return None, place.why
        total_ns = 0
        for file in place.groups:
            try:
                total_ns += _throttled(file.read())
            except OSError as error:
                return None, because(error, file.path)
            except ValueError:
                return None, f"{file.path} does not count throttled time"
        return total_ns, ""

    def held_up_by_io_ns(self, pid: int) -> tuple[int | None, str]:
        """In all since its group exists: some of it waited for I/O, and none of it ran. None, and why, where that
        cannot be read."""
        place = self._places.get(pid, _Place())
        if (file := place.pressure) is None:
            return None, place.why or "control groups of version 1 do not count it"
        try:
            return stalled_ns(file.read())["full"], ""
        except OSError as error:
            return None, because(error, file.path)
        except (KeyError, ValueError):
            return None, f"{file.path} does not count it"

    def _place(self, pid: int) -> _Place:
        path = self._root / "proc" / str(pid) / "cgroup"
        try:
            lines = path.read_text().splitlines()
        except OSError as error:
            return _Place(why=because(error, path))
        base, group = self._hierarchy(lines)
        if base is None:
            return _Place(why="no cpu controller of control groups is mounted at /sys/fs/cgroup")
        leaf = base / group.lstrip("/")
        if ".." in leaf.parts or not leaf.is_dir():
            return _Place(why=f"the control group {group} cannot be seen from here")
        around = [leaf, *(parent for parent in leaf.parents if parent == base or base in parent.parents)]
        return _Place(
            groups=tuple(OpenFile(folder / "cpu.stat") for folder in around if _has_quota(folder)),
            pressure=OpenFile(leaf / "io.pressure") if (base / "cgroup.controllers").exists() else None,
        )

    def _hierarchy(self, lines: list[str]) -> tuple[Path | None, str]:
        """Where the groups of the cpu controller are, and the process's own in it."""
        mounted = self._root / "sys/fs/cgroup"
        for line in lines:
            _, controllers, group = line.split(":", 2)
            if "cpu" in controllers.split(","):
                found = next((mounted / name for name in (controllers, "cpu") if (mounted / name).is_dir()), None)
                return found, group
        for line in lines:
            _, controllers, group = line.split(":", 2)
            if not controllers and (mounted / "cgroup.controllers").is_file():
                return mounted, group
        return None, ""


def _has_quota(folder: Path) -> bool:
    try:
        if (folder / "cpu.max").exists():
            return not (folder / "cpu.max").read_text().startswith("max")
        return (folder / "cpu.cfs_quota_us").exists() and int((folder / "cpu.cfs_quota_us").read_text()) > 0
    except (OSError, ValueError):  # a group that is removed just now
        return False


def _throttled(text: bytes) -> int:
    for line in text.splitlines():
        key, _, value = line.partition(b" ")
        if key == b"throttled_usec":
            return int(value) * 1000
        if key == b"throttled_time":
            return int(value)
    raise ValueError("no throttled time")
