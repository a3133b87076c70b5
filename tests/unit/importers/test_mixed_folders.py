"""Files of several tools in one folder: one kind is read, and the others are named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from test_execution_trace import execution
from test_flight_recorder import as_json, dump, entry
from test_kineto import all_reduce, trace

from prismdbg.errors import UsageError
from prismdbg.importers.formats import read_job


def passed_over(folder: Path) -> list[str]:
    job = read_job(folder)
    assert job is not None and list(job.logs) == [0]
    return [line for line in job.gaps if line.startswith("not read beside")]


def profile(folder: Path) -> None:
    (folder / "trace.json").write_text(json.dumps(trace(0, *all_reduce(100, 31))))


def test_dumps_beside_a_profilers_traces_are_not_read(tmp_path: Path) -> None:
    profile(tmp_path)
    (tmp_path / "nccl_trace_rank_0").write_bytes(as_json(dump(entry(0))))
    (tmp_path / "chakra.0.et").write_bytes(b"")
    assert passed_over(tmp_path) == [
        "not read beside traces of torch.profiler: Chakra traces, Flight Recorder dumps; give each kind in a folder "
        "of its own"
    ]


def test_execution_traces_beside_a_profilers_are_read(tmp_path: Path) -> None:
    profile(tmp_path)
    (tmp_path / "et_0.json").write_text(json.dumps(execution()))
    assert passed_over(tmp_path) == []


def test_dumps_of_two_libraries_are_not_mixed(tmp_path: Path) -> None:
    for name in ("nccl_trace_rank_0", "comm_lib_trace_rank_0"):
        (tmp_path / name).write_bytes(as_json(dump(entry(0))))
    with pytest.raises(UsageError, match="rank 0 has several Flight Recorder dumps: comm_lib") as told:
        read_job(tmp_path)
    assert "of other libraries" in told.value.hint
