"""`gpu.json` beside an image's memory: which processes had state on GPUs, and what gives it back. Foreign input."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from prismdbg.capsule.transfer import open_plain
from prismdbg.checkpoint.engine import GpuPart
from prismdbg.checkpoint.gpu_facts import INSTEAD, driver_version, uuids
from prismdbg.errors import CapsuleError, FacilityError

PART = "gpu.json"
MAX_PART_BYTES = 1 << 20
_MOST_PIDS, _MOST_GPUS = 10_000, 64
_HINT = "fetch the capsule again: this copy is damaged or was altered"
_NAME = re.compile(r"[\w.-]{1,80}")


def save_part(images: Path, part: GpuPart) -> None:
    (images / PART).write_text(json.dumps({"pids": part.pids, "driver": part.driver, "gpus": part.gpus}))


def read_part(images: Path, pids: Iterable[int]) -> GpuPart | None:
    """Foreign input. `CapsuleError` where it names what is not in the image."""
    path = images / PART
    if not os.path.lexists(path):
        return None
    try:
        with open_plain(path) as file:
            data = file.read(MAX_PART_BYTES + 1)
    except OSError as error:
        raise _unreadable(path, error) from error
    part = parse_part(data, path)
    if not set(part.pids) <= set(pids):
        raise CapsuleError(f"the checkpoint {path} names processes that are not in it", hint=_HINT)
    return part


def parse_part(data: bytes, path: Path) -> GpuPart:
    """Foreign input, of the file `path`."""
    try:
        if len(data) > MAX_PART_BYTES:
            raise ValueError("it is too long")
        told = json.loads(data)
        gpus = tuple(map(_named, _listed(told["gpus"], _MOST_GPUS)))
        numbers = tuple(map(_number, _listed(told["pids"], _MOST_PIDS)))
        if not numbers or len(set(numbers)) < len(numbers):
            raise ValueError("it names no processes, or one twice")
        return GpuPart(pids=numbers, driver=_named(told["driver"]), gpus=gpus)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> CapsuleError:
    return CapsuleError(f"the checkpoint {path} cannot be read: {str(error)[:200]}", hint=_HINT)


def require_gpus(part: GpuPart) -> None:
    """`FacilityError` where this machine cannot give the state back."""
    if part.driver != (here := driver_version()):
        raise FacilityError(
            f"the checkpoint has the state of a GPU, {driver_text(part.driver)}; "
            + (f"this machine has {here}" if here else "this machine has none"),
            hint=f"replay it where the rank ran, or {INSTEAD}",
        )
    present = set(uuids().values())
    if missing := [gpu for gpu in part.gpus if gpu not in present]:
        raise FacilityError(
            f"the checkpoint has the state of {', '.join(missing)}, which this machine lacks",
            hint=f"replay it where the rank ran, or {INSTEAD}",
        )


def driver_text(driver: str) -> str:
    """`saved with NVIDIA's driver 580.159.04`."""
    return f"saved with NVIDIA's driver {driver}" if driver else "saved with an unknown version of NVIDIA's driver"


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
