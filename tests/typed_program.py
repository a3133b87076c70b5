"""A user's program of the Python API, for mypy --strict where prismdbg is installed. It is never run."""

from __future__ import annotations

import numpy as np

import prismdbg
from prismdbg.api.memory import Memory
from prismdbg.api.recording import Rank, Recording
from prismdbg.api.replay import Replay
from prismdbg.api.telemetry import Readings
from prismdbg.errors import PrismError


def busiest(recording: Recording) -> dict[str, float]:
    of_cpus: list[Readings] = [r for (_, name), r in recording.telemetry().items() if name == "cpu_time"]
    return {readings.subject: float(np.nanmax(readings.rates())) for readings in of_cpus}


def peak_bytes(rank: Rank) -> int:
    memory: Memory = rank.memory()
    peak = memory.peak()
    return peak.size_bytes if peak is not None else 0


def source(rank: Replay) -> str:
    return f"{rank.stack()[0]} {rank.run_to('11.1').step}"


try:
    with prismdbg.open("RUN") as recording:
        print(busiest(recording), peak_bytes(recording[0]), recording.why().verdicts[0].text)
    with prismdbg.replay("CAPSULE") as replayed:
        print(source(replayed))
except PrismError as error:
    print(error.hint)
