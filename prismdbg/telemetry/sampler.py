"""The sampler's process: `python -m prismdbg.telemetry.sampler FOLDER PERIOD_NS`. The supervisor starts it.

It is told the ranks on its standard input, a line each: the name of the log folder and the PID; or, with a dash for the
PID, why the rank cannot be seen. At the end of that input, which also comes when the supervisor is killed, it takes
the last readings and ends.
"""

from __future__ import annotations

import os
import select
import sys
import time
from pathlib import Path

from prismdbg.telemetry import sensor as names
from prismdbg.telemetry.collectors.cpus import CpuCollector, PressureCollector
from prismdbg.telemetry.collectors.hardware import HardwareCollector
from prismdbg.telemetry.collectors.infiniband import InfinibandCollector
from prismdbg.telemetry.collectors.network import NetworkCollector
from prismdbg.telemetry.collectors.nvidia import NvidiaCollector
from prismdbg.telemetry.collectors.processes import ProcessCollector
from prismdbg.telemetry.collectors.ranks import RankCollector
from prismdbg.telemetry.open_files import raise_limit
from prismdbg.telemetry.sampling import Sampling
from prismdbg.telemetry.sensor import rank_subject
from prismdbg.telemetry.writer import TelemetryWriter, about

_OF_RANKS = (names.CPU_TIME, names.RUN_QUEUE_WAIT, names.QUOTA_THROTTLED)


def main() -> int:
    folder, period_ns = Path(sys.argv[1]), int(sys.argv[2])
    raise_limit()
    writer = TelemetryWriter(folder, about(period_ns))
    root = Path("/")
    ranks = RankCollector(root, period_ns)
    others = (
        CpuCollector(root),
        PressureCollector(root),
        NetworkCollector(root),
        InfinibandCollector(root),
        HardwareCollector(root),
        NvidiaCollector(lambda: ranks.pids),
        ProcessCollector(root, ranks),
    )
    sampling = Sampling(writer, (ranks, *others), period_ns)
    orders = _Orders(sys.stdin.fileno(), ranks, writer)
    due_ns = time.monotonic_ns()
    while orders.take(max(due_ns - time.monotonic_ns(), 0) / 1e9):
        if time.monotonic_ns() >= due_ns:
            sampling.look()
            due_ns = max(due_ns + sampling.period_ns, time.monotonic_ns())
    sampling.close()
    return 0


class _Orders:
    """`take` waits for a line at most that long; false when there will be no more."""

    def __init__(self, descriptor: int, ranks: RankCollector, writer: TelemetryWriter) -> None:
        self._descriptor = descriptor
        self._ranks = ranks
        self._writer = writer
        self._rest = b""

    def take(self, seconds: float) -> bool:
        readable, _, _ = select.select([self._descriptor], [], [], seconds)
        if not readable:
            return True
        data = os.read(self._descriptor, 1 << 16)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            folder, pid, why = line.decode(errors="replace").split(" ", 2)
            if pid.isdecimal():
                self._ranks.watch(folder, int(pid))
            else:
                for name in _OF_RANKS:
                    self._writer.missing(rank_subject(folder), name, why)
        return bool(data)


if __name__ == "__main__":
    sys.exit(main())
