"""Small files of other tools, for two ranks: a profiler's traces, execution traces, Chakra's, and
Flight Recorder's dumps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from prismdbg.exporters import flight_recorder
from prismdbg.exporters.chakra import write_traces
from prismdbg.log.rank_log import read_log

RANKS, CALLS = 2, 3
_GROUP = {"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cpu:gloo", "pg_size": 2, "ranks": [0, 1]}


def write_profiles(folder: Path) -> Path:
    for rank in range(RANKS):
        events = [event for number in range(CALLS) for event in _events(rank, number)]
        trace = {
            "schemaVersion": 1, "distributedInfo": {"rank": rank, "world_size": RANKS, "pg_config": [_GROUP]},
            "host_name": "n1", "baseTimeNanoseconds": 10**18, "traceEvents": events,
        }  # fmt: skip
        _write(folder / f"trace_{rank}.json", trace)
    return folder


def _events(rank: int, number: int) -> list[dict[str, Any]]:
    at = 1000.0 * number
    call = {"Record function id": 2 * number, "Concrete Inputs": ["", "", "", "", "True", "-1"],
            "Input type": ["TensorList"] + [""] * 5, "Input Dims": [[[8]], [], [], [], [], []]}  # fmt: skip
    told = {"Collective name": "allreduce", "Process Group Name": "0", "Seq": number, "dtype": "Float", "Rank": rank,
            "In msg nelems": 8, "Out msg nelems": 8, "Process Group Ranks": "[0, 1]",
            "External id": number}  # fmt: skip
    return [
        _event("user_annotation", f"ProfilerStep#{number}", at, 900.0),
        _event("python_function", "train.py(12): main", at, 800.0),
        _event("cpu_op", "c10d::allreduce_", at + 100, 9.0, **call),
        _event("cpu_op", "record_param_comms", at + 101, 5.0, **told),
        _event("user_annotation", "gloo:all_reduce", at + 102, 50.0, **{"Record function id": 2 * number + 1}),
        _event("kernel", "ncclDevKernel_AllReduce", at + 110, 20.0, **told),
    ]


def _event(kind: str, name: str, at: float, lasts: float, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": kind, "name": name, "pid": 7, "tid": 7, "ts": at, "dur": lasts, "args": args}


def write_executions(folder: Path) -> Path:
    for rank in range(RANKS):
        groups = _node(1, "## process_group:init ##", [json.dumps([_GROUP])], ["String"])
        calls = [
            _node(9 + number, "c10d::allreduce_", [[[7, 8, 0, 8, 4, "cpu"]], "", "", "", True, -1],
                  ["GenericList[Tensor(float)]", *["Object"] * 5]) for number in range(CALLS)
        ]  # fmt: skip
        told = _node(
            90, "record_param_comms", [[5, False]], ["Tuple[Int,Bool]"], collective_name="allreduce", pg_name="0"
        )
        nodes = [groups, _node(8, "ProfilerStep#3", [], []), *calls, told | {"ctrl_deps": 9}]
        _write(folder / f"et_{rank}.json", {"schema": "1.1.1-chakra.0.0.4", "nodes": nodes})
    return folder


def _node(number: int, name: str, values: list[Any], types: list[str], **attributes: Any) -> dict[str, Any]:
    arguments = {"values": values, "shapes": [[[8]], *[[]] * (len(values) - 1)], "types": types}
    attrs = [{"name": key, "type": "string", "value": value} for key, value in (attributes | {"rf_id": number}).items()]
    return {"id": number, "name": name, "ctrl_deps": 2, "inputs": arguments, "attrs": attrs}


def write_nodes(folder: Path, run: Path) -> Path:
    """Of the logs of a run."""
    folder.mkdir()
    write_traces({rank: read_log(run / "ranks" / str(rank)) for rank in range(RANKS)}, folder, last=100)
    return folder


def write_dumps(folder: Path, run: Path) -> Path:
    """Of Flight Recorder, of the logs of a run."""
    folder.mkdir()
    flight_recorder.write_dumps({rank: read_log(run / "ranks" / str(rank)) for rank in range(RANKS)}, folder, last=100)
    return folder


def _write(path: Path, value: object) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value))
