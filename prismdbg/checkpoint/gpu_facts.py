"""What NVIDIA's driver says of its GPUs and of who uses them. Nothing is loaded into this process."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from prismdbg.checkpoint.bounded import run_bounded
from prismdbg.errors import PrismError

INSTEAD = "capture it with --origin start or --origin state"  # of a checkpoint with the state of a GPU
_LIBRARY, _DEVICES = "libcuda.so", "/dev/nvidia"
_DRIVER = Path("/proc/driver/nvidia")
_ASK_S = 5.0  # a rank may stand meanwhile
_VERSION = re.compile(r"Module.*?\s(\d+(?:\.\d+)+)\s")


def loads_driver(pid: int) -> bool:
    """Whether a process may use a GPU."""
    try:
        return _LIBRARY.encode() in Path(f"/proc/{pid}/maps").read_bytes()
    except OSError:
        return False


def tree_of(pid: int) -> list[int]:
    """The process and what it has started."""
    import psutil  # not where images are only read

    with suppress(psutil.Error):
        return [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]
    return [pid]


def driver_version() -> str:
    """Empty without one."""
    with suppress(OSError):
        found = _VERSION.search((_DRIVER / "version").read_text())
        return found[1] if found else ""
    return ""


def held_bytes(pid: int) -> int | None:
    """What the process and its children have on GPUs. Where the driver does not say it by process, all that is taken on
    the GPUs they have open. None where nobody says it."""
    pids = [one for one in tree_of(pid) if loads_driver(one) and any(map(_is_gpu, open_devices(one)))]
    if not pids:
        return 0
    names = set(map(str, pids))
    found = [used for owner, used in _asked("--query-compute-apps=pid,used_memory") if owner in names]
    if not found or not all(map(str.isdecimal, found)):
        gpus = gpus_of(pids)
        found = [used for gpu, used in _asked("--query-gpu=uuid,memory.used") if gpu in gpus]
        if len(found) < max(len(gpus), 1):
            return None
    return sum(map(int, found)) << 20 if all(map(str.isdecimal, found)) else None


def _is_gpu(device: str) -> bool:
    """Not a device that stands for the driver."""
    return device.removeprefix(_DEVICES).isdecimal()


def _asked(query: str) -> list[tuple[str, str]]:
    command = ["nvidia-smi", query, "--format=csv,noheader,nounits"]
    try:
        said = run_bounded(command, timeout_s=_ASK_S, what="nvidia-smi")
    except (OSError, PrismError):  # it is not installed, or hangs
        return []
    pairs = (line.split(",") for line in said.output.splitlines()) if said.returncode == 0 else ()
    return [(pair[0].strip(), pair[1].strip()) for pair in pairs if len(pair) == 2]


def gpus_of(pids: Iterable[int]) -> tuple[str, ...]:
    """UUIDs of those that the processes have open."""
    opened = {name.removeprefix(_DEVICES) for pid in pids for name in open_devices(pid)}
    return tuple(sorted(uuid for minor, uuid in uuids().items() if minor in opened))


def open_devices(pid: int) -> list[str]:
    found: list[str] = []
    with suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                found.append(str(entry.readlink()))
    return [name for name in found if name.startswith(_DEVICES)]


def uuids() -> dict[str, str]:
    """By minor device number."""
    found: dict[str, str] = {}
    for path in (_DRIVER / "gpus").glob("*/information"):
        with suppress(OSError):
            facts = dict(re.findall(r"^([^:\n]+):\s*(.*?)\s*$", path.read_text(), re.MULTILINE))
            if {"Device Minor", "GPU UUID"} <= facts.keys():
                found[facts["Device Minor"]] = facts["GPU UUID"]
    return found
