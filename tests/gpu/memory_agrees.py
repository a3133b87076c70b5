"""Compares a memory trace with what torch's allocator said in the end: `memory_agrees.py RUN|TRACE REPORT.json`.

REPORT.json has what `programs/traced_gpt.py` printed in that run. Prints both; the exit code is 1 where they differ.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prismdbg.capsule.memory_format import device_number
from prismdbg.jobs.replay.memory_trace import recorded_trace
from prismdbg.memory.trace import open_trace

Figures = dict[str, int | None]


def traced(folder: Path, report: Mapping[str, Any]) -> Figures:
    """What the trace's files say of the report's device, as far as the report goes."""
    trace = open_trace(folder, report["records"], device_number(report["device"]))
    held = trace.total_bytes + trace.backend_bytes
    return {
        "requested_bytes": int(held[-1]),
        "requested_peak_bytes": int(held.max()),
        "reserved_bytes": int(trace.reserved_bytes[-1]),
        "reserved_peak_bytes": int(trace.reserved_bytes.max()),
    }


def counted(report: Mapping[str, Any]) -> Figures:
    """What the tracer counted itself, in the rank."""
    told = report["tracer"][report["device"]]
    return {"requested_bytes": told["allocated"] + told["backend"], "reserved_bytes": told["reserved"]}


def differences(folder: Path, report: Mapping[str, Any]) -> dict[str, dict[str, int | None]]:
    """By name, where the three are not the same. For the CPU torch has no figures."""
    sources = {"torch": report["torch"], "tracer": counted(report), "trace": traced(folder, report)}
    wrong = {}
    for name in sources["trace"]:
        told = {source: figures[name] for source, figures in sources.items() if figures.get(name) is not None}
        if len(set(told.values())) > 1:
            wrong[name] = told
    return wrong


def main() -> None:
    folder = recorded_trace(Path(sys.argv[1]), None)
    assert folder is not None, "neither a trace nor a run"
    lines = Path(sys.argv[2]).read_text().splitlines()
    report = json.loads(next(line for line in lines if line.startswith('{"device"')))
    wrong = differences(folder, report)
    print(json.dumps({"torch": report["torch"], "trace": traced(folder, report), "differ": wrong}))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
