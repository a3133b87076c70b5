"""The state of a rank on NVIDIA GPUs, which CRIU does not see: in the rank's own memory while it is dumped.

`images/starter/gpu_state.py` moves it, as a program of its own, which moves it back when we are gone, however we end.
"""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from prismdbg.capsule.transfer import open_plain
from prismdbg.checkpoint.engine import GpuPart
from prismdbg.checkpoint.gpu_facts import (
    driver_version,
    gpus_of,
    held_bytes,
    loads_driver,
    open_devices,
    tree_of,
    uuids,
)
from prismdbg.checkpoint.memory_room import room_bytes
from prismdbg.errors import CapsuleError, CheckpointError, FacilityError
from prismdbg.model.sizes import size

PART = "gpu.json"
_EARLIER_S, _REAP_S = 10.0, 5.0
_MOVE_S = 120.0  # back, of a whole GPU: it has been some 10 GB/s there
_HEADROOM = 1.1
_MAX_PART_BYTES, _MOST_PIDS, _MOST_GPUS = 1 << 20, 10_000, 64
_INSTEAD = "capture it with --origin start or --origin state"
_HINT = "fetch the capsule again: this copy is damaged or was altered"
_NAME = re.compile(r"[\w.-]{1,80}")


@contextmanager
def in_memory(pid: int, *, timeout_s: float) -> Iterator[GpuPart | None]:
    """The state of the process and its children on GPUs is in their memory meanwhile, and afterwards back, also where
    this process is killed or stopped. None, and nothing is done, where they use none.

    `CheckpointError` where the driver refuses; the rank goes on then. One where the state cannot be moved back says so.
    """
    pids = [one for one in tree_of(pid) if loads_driver(one)]
    if not pids:
        yield None
        return
    require_room(pid)
    gpus = gpus_of(pids)
    holder = _started("hold", [pid, *(one for one in pids if one != pid)], timeout_s)
    said: dict[str, Any] = {}
    try:
        said = _line(holder, time.monotonic() + timeout_s)
        if "held" not in said:
            raise CheckpointError(
                f"the state of process {pid} on its GPU cannot be saved: {_why(said, holder, timeout_s)}", hint=_INSTEAD
            )
        held = tuple(int(one) for one in said["held"])
        yield GpuPart(pids=held, driver=driver_version(), gpus=gpus) if held else None
        if _has_said_more(holder) or holder.poll() is not None:
            raise CheckpointError(
                f"the state of process {pid} was moved back to its GPU before its checkpoint was complete",
                hint="capture it again: this command was stopped for too long, or its helper process was ended",
            )
    finally:
        last = _ended(holder)
        if "error" not in said or said.get("stuck"):  # a refusal moved nothing, or moved it back
            _require_back(last, pid, pids)


def require_room(pid: int) -> int:
    """What the process and its children have on GPUs, in bytes. `FacilityError` where the memory of the machine, or of
    a control group around the process, might not hold it: the kernel would end the rank."""
    held = held_bytes(pid)
    if held is None:
        raise FacilityError(
            f"cannot determine how much process {pid} has on its GPU (nvidia-smi is missing or fails); its machine's "
            "memory must hold that for the time of a checkpoint",
            hint=f"install NVIDIA's driver with nvidia-smi, or {_INSTEAD}",
        )
    if (needed := int(held * _HEADROOM)) > (room := room_bytes(pid)):
        raise FacilityError(
            f"what process {pid} has on GPUs needs {size(needed)} of its machine's memory for the time of a "
            f"checkpoint, and {size(room)} is free",
            hint=_INSTEAD,
        )
    return held


def is_used(pid: int) -> bool:
    """Whether the process or its children have a GPU open."""
    return any(loads_driver(one) and open_devices(one) for one in tree_of(pid))


def save_part(images: Path, part: GpuPart) -> None:
    (images / PART).write_text(json.dumps({"pids": part.pids, "driver": part.driver, "gpus": part.gpus}))


def read_part(images: Path, pids: Iterable[int]) -> GpuPart | None:
    """Foreign input. `CapsuleError` where it names what is not in the image."""
    path = images / PART
    if not os.path.lexists(path):
        return None
    try:
        with open_plain(path) as file:
            data = file.read(_MAX_PART_BYTES + 1)
        if len(data) > _MAX_PART_BYTES:
            raise ValueError("it is too long")
        told = json.loads(data)
        gpus = tuple(map(_named, _listed(told["gpus"], _MOST_GPUS)))
        numbers = tuple(map(_number, _listed(told["pids"], _MOST_PIDS)))
        part = GpuPart(pids=numbers, driver=_named(told["driver"]), gpus=gpus)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise CapsuleError(f"the checkpoint {path} cannot be read: {str(error)[:200]}", hint=_HINT) from error
    if not part.pids or len(set(part.pids)) < len(part.pids) or not set(part.pids) <= set(pids):
        raise CapsuleError(f"the checkpoint {path} names processes that are not in it", hint=_HINT)
    return part


def require_gpus(part: GpuPart) -> None:
    """`FacilityError` where this machine cannot give the state back."""
    if part.driver != (here := driver_version()):
        raise FacilityError(
            f"the checkpoint has the state of a GPU, saved with NVIDIA's driver {part.driver}; "
            + (f"this machine has {here}" if here else "this machine has none"),
            hint=f"replay it where the rank ran, or {_INSTEAD}",
        )
    present = set(uuids().values())
    if missing := [gpu for gpu in part.gpus if gpu not in present]:
        raise FacilityError(
            f"the checkpoint has the state of {', '.join(missing)}, which this machine lacks",
            hint=f"replay it where the rank ran, or {_INSTEAD}",
        )


def _named(text: Any) -> str:
    if not isinstance(text, str) or (text and not _NAME.fullmatch(text)):
        raise ValueError(f"{str(text)[:80]!r} cannot be a name")
    return text


def _listed(value: Any, most: int) -> list[Any]:
    if not isinstance(value, list) or len(value) > most:
        raise ValueError(f"{str(value)[:80]} cannot be a list of at most {most}")
    return value


def _number(value: Any) -> int:
    if type(value) is not int:
        raise ValueError(f"{str(value)[:80]!r} cannot be a PID")
    return value


# ---- the program that holds


def _started(verb: str, pids: Iterable[int], timeout_s: float) -> subprocess.Popen[bytes]:
    """In a session of its own: Ctrl-C is not for it. The driver's bound comes before ours, so that its words arrive."""
    bound_ms, hold_ms = int(max(timeout_s - _EARLIER_S, timeout_s / 2) * 1000), int(2 * timeout_s * 1000)
    return subprocess.Popen(
        [sys.executable, "-I", "-S", str(program()), verb, str(bound_ms), str(hold_ms), *map(str, pids)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def program() -> Path:
    """In a checkout or in an installed package."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "_images" / "starter" / "gpu_state.py"
    return installed if installed.is_file() else package.parent / "images" / "starter" / "gpu_state.py"


def _require_back(said: dict[str, Any], pid: int, pids: list[int]) -> None:
    """By who held the states; where that did not say so, by another one."""
    if "returned" in said:
        return
    another = _started("return", pids, _MOVE_S)
    if "returned" not in (said := _ended(another)):
        raise CheckpointError(
            f"the state of process {pid} was not moved back to its GPU: {_why(said, another, _MOVE_S)}",
            hint="capture the rank again, which tries it again; its calls of CUDA wait until then",
        )


def _why(said: dict[str, Any], holder: subprocess.Popen[bytes], bound_s: float) -> str:
    code = holder.poll()
    silent = f"no answer within {bound_s:g} s" if code is None else f"its helper process ended with {code}"
    return str(said.get("error", silent))


def _line(holder: subprocess.Popen[bytes], deadline: float) -> dict[str, Any]:
    """What it says first; nothing where it does not say it in time."""
    assert holder.stdout is not None
    poll, line = select.poll(), b""
    poll.register(holder.stdout, select.POLLIN | select.POLLHUP)
    while not line.endswith(b"\n") and (left := deadline - time.monotonic()) > 0:
        if poll.poll(left * 1000):
            if not (part := os.read(holder.stdout.fileno(), 1)):
                break
            line += part
    return _object(line)


def _has_said_more(holder: subprocess.Popen[bytes]) -> bool:
    poll = select.poll()
    assert holder.stdout is not None
    poll.register(holder.stdout, select.POLLIN)
    return bool(poll.poll(0))


def _ended(holder: subprocess.Popen[bytes]) -> dict[str, Any]:
    """The last that it says, once it is told that nobody waits any more."""
    try:
        output, _ = holder.communicate(timeout=_MOVE_S)
    except subprocess.TimeoutExpired:
        holder.kill()
        try:
            output, _ = holder.communicate(timeout=_REAP_S)
        except subprocess.TimeoutExpired:  # the kernel does not let it go
            return {}
    return _object(output.splitlines()[-1] if output.splitlines() else b"")


def _object(line: bytes) -> dict[str, Any]:
    with suppress(ValueError):
        found = json.loads(line)
        return found if isinstance(found, dict) else {}
    return {}
