"""Builds the library that stands in for NVIDIA's driver, and writes its scripts. See `libnvidia-ml.c`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests import c_library

SOURCE = Path(__file__).with_name("libnvidia-ml.c")
NAME = "libnvidia-ml.so.1"
Script = Mapping[str, Sequence[tuple[int, int]]]  # by reading: milliseconds after nvmlInit, and the value from then on


def build(folder: Path) -> Path:
    """The folder with the library, for LD_LIBRARY_PATH."""
    c_library.build(SOURCE, folder, NAME)
    return folder


def write_script(folder: Path, devices: Sequence[Script]) -> Path:
    """The folder for FAKE_NVML; a device is named by its number: `GPU-FAKE-0`."""
    for number, readings in enumerate(devices):
        place = folder / str(number)
        place.mkdir(parents=True)
        (place / "uuid").write_text(f"{uuid(number)}\n")
        for name, values in readings.items():
            (place / name).write_text("".join(f"{ms} {value}\n" for ms, value in values))
    return folder


def uuid(number: int) -> str:
    return f"GPU-FAKE-{number}"


def environment(library: Path, script: Path) -> dict[str, str]:
    paths = [str(library), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    return {**os.environ, "LD_LIBRARY_PATH": os.pathsep.join(paths), "FAKE_NVML": str(script)}
