"""Compares a memory trace with what torch's allocator said in the end: `memory_agrees.py RUN|TRACE REPORT.json`.

REPORT.json has what `programs/traced_gpt.py` printed in that run. Prints both; the exit code is 1 where they differ.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

from prismdbg.capsule.memory_format import device_number
from prismdbg.jobs.replay.memory_trace import recorded_trace
from prismdbg.memory.trace import open_trace


def traced(folder: Path, report: Mapping[str, object]) -> dict[str, int]:
    """What the trace says of the report's device as far as the report goes, by torch's names."""
    trace = open_trace(folder, int(str(report["records"])), device_number(str(report["device"])))
    held = trace.total_bytes + trace.backend_bytes
    return {
        "requested_bytes": int(held[-1]),
        "requested_peak_bytes": int(held.max()),
        "reserved_bytes": int(trace.reserved_bytes[-1]),
        "reserved_peak_bytes": int(trace.reserved_bytes.max()),
    }


def differences(folder: Path, report: Mapping[str, object]) -> dict[str, tuple[int, int]]:
    """By name: what torch said and what the trace says, where these are not the same."""
    told = report["torch"]
    assert isinstance(told, dict)
    found = traced(folder, report)
    return {name: (told[name], value) for name, value in found.items() if told[name] != value}


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
