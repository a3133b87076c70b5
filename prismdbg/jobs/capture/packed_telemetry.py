"""Readings of sensors as a part of a capsule: those that concern its rank, over the time that its log covers."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from prismdbg.capsule import layout
from prismdbg.capsule.capsule_dir import Capsule, CapsuleWriter
from prismdbg.capsule.log.events import RankLog
from prismdbg.jobs.storage.job_nodes import node_of
from prismdbg.jobs.storage.run_folder import RunFolder
from prismdbg.telemetry.excerpt import excerpt, write_excerpt
from prismdbg.telemetry.reader import read_telemetry
from prismdbg.telemetry.series import Telemetry

_MOST_BYTES = 64 << 20  # of readings, unpacked: a supervisor may be who makes the capsule
_AROUND_NS = 1_000_000_000  # slow sensors are read once a second


def packed_telemetry(capsule: Capsule) -> Telemetry | None:
    """None where the capsule has none. What cannot be read of it is said (`Telemetry.damage`)."""
    found = read_telemetry(capsule.path / layout.TELEMETRY)
    if (found is not None and found.damage) or not (faults := capsule.faults_below(layout.TELEMETRY)):
        return found
    return replace(found or Telemetry(period_ns=0, wall_offset_ns=0), damage=faults[0])


def add_telemetry(writer: CapsuleWriter, run: RunFolder, folder: Path, log: RankLog) -> None:
    """`folder`: of the rank's log, of which `log` is in the capsule. Nothing where nothing was read."""
    if not len(log.collectives):
        return
    found = read_telemetry(run.telemetry / node_of(folder), _MOST_BYTES)
    if found is None or not found.period_ns:
        return
    last = log.collectives[len(log.collectives) - 1]
    begin_ns = log.collectives[0].time_created_ns - _AROUND_NS
    end_ns = (last.time_completed_ns or last.time_created_ns) + _AROUND_NS
    kept = excerpt(found, folder.name, begin_ns, end_ns)
    with tempfile.TemporaryDirectory(dir=writer.folder) as made:  # what a killed writer leaves is known by its name
        write_excerpt(Path(made), kept)
        for path in Path(made).iterdir():
            writer.add_file(f"{layout.TELEMETRY}/{path.name}", path)
