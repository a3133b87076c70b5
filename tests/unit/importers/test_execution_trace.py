"""PyTorch execution traces as logs. The nodes have the fields that torch 2.13's observer writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from test_kineto import all_reduce, diagnosed, trace

from prismdbg.errors import CapsuleError, UsageError
from prismdbg.importers import execution_trace
from prismdbg.importers.formats import is_imported, read_job
from prismdbg.importers.imported_job import ImportedJob
from prismdbg.model.collective import Identity, TensorMeta

GROUPS = [
    {
        "pg_name": "0",
        "pg_desc": "default_pg",
        "backend_config": "cpu:gloo",
        "ranks": [],
        "group_size": 2,
        "group_count": 1,
    }
]


def node(number: int, name: str, inputs: Any = None, *, inside: int = 2, **attributes: Any) -> dict[str, Any]:
    nothing: dict[str, Any] = {"values": [], "shapes": [], "types": [], "strides": []}
    attrs = {"rf_id": number, "tid": 1, "op_schema": ""} | attributes
    return {
        "id": number, "name": name, "ctrl_deps": inside, "inputs": nothing | (inputs or {}), "outputs": nothing,
        "attrs": [{"name": key, "type": "uint64", "value": value} for key, value in attrs.items()],
    }  # fmt: skip


def tensor(elements: int, device: str = "cpu") -> list[Any]:
    return [7, 8, 0, elements, 4, device]


def gathered(number: int, elements: int = 2) -> dict[str, Any]:
    return node(number, "c10d::allgather_", {
        "values": [[[tensor(elements), tensor(elements)]], [tensor(elements, "cuda:1")], "<Object>", False, -1],
        "shapes": [[[[elements], [elements]]], [[elements]], [], [], []],
        "types": ["GenericList[GenericList[Tensor(float),Tensor(float)]]", "GenericList[Tensor(c10::BFloat16)]",
                  "Object", "Bool", "Int"],
    })  # fmt: skip


def described(number: int, inside: int, seq: int, group: str = "5", **other: Any) -> dict[str, Any]:
    inputs = {
        "values": [[tensor(2)], [seq, False], [group, "dp"], 0, "all_gather", [], [], 0, 1, 2, False],
        "shapes": [[[2]], [[], []], [[], []], [], [], [], [], [], [], [], []],
        "types": ["GenericList[Tensor(float)]", "Tuple[Int,Bool]", "Tuple[String,String]", "Int", "String",
                  "GenericList[]", "GenericList[]", "Int", "Int", "Int", "Bool"],
    }  # fmt: skip
    told = {"collective_name": "all_gather", "pg_name": group, "pg_desc": "dp", "pg_size": 2, "global_rank_start": 0}
    return node(number, "record_param_comms", inputs, inside=inside, **told | {"global_rank_stride": 1} | other)


def execution(*nodes: dict[str, Any]) -> dict[str, Any]:
    groups = node(3, "## process_group:init ##", {"values": [json.dumps(GROUPS)], "shapes": [[]], "types": ["String"]})
    return {"schema": "1.1.1-chakra.0.0.4", "pid": 70, "time": "2026-01-01", "start_ts": 1, "nodes": [groups, *nodes]}


def write(folder: Path, *traces: dict[str, Any]) -> Path:
    folder.mkdir(exist_ok=True)
    for rank, each in enumerate(traces):
        (folder / f"et_{rank}.json").write_text(json.dumps(each, indent=1))
    return folder


def read(folder: Path) -> ImportedJob:
    job = read_job(folder)
    assert job is not None
    return job


def test_a_call_is_what_the_node_says(tmp_path: Path) -> None:
    nodes = gathered(30), node(10, "ProfilerStep#6"), gathered(20, 3), node(25, "ProfilerStep#7")
    job = read(write(tmp_path / "t", execution(*nodes), execution(*nodes)))
    first, second = job.logs[1].collectives
    assert [str(call.moment) for call in (first, second)] == ["6.1", "7.1"]
    assert (first.op, first.identity, first.is_async) == ("allgather_", Identity("0", 0), False)
    assert first.inputs == (TensorMeta((3,), "bfloat16", "cuda:1"),)
    assert first.outputs == (TensorMeta((3,), "float32"),) * 2
    assert job.logs[0].groups["0"].ranks == (0, 1)
    assert not job.hosts


def test_a_call_that_its_backend_describes_has_group_and_number(tmp_path: Path) -> None:
    nodes = gathered(20), described(21, 20, 17), described(40, 39, 18, collective_name="wait")
    job = read(write(tmp_path / "t", execution(*nodes), execution(*nodes)))
    (call,) = job.logs[0].collectives
    assert call.identity == Identity("5", 17)
    assert job.logs[0].groups["5"].ranks == (0, 1)


def test_why_finds_a_call_that_does_not_match(tmp_path: Path) -> None:
    folder = write(tmp_path / "t", execution(gathered(20)), execution(gathered(20, 3)))
    assert [verdict.kind for verdict in diagnosed(folder).verdicts] == ["mismatch"]


def test_beside_a_profilers_trace_it_completes_the_calls(tmp_path: Path) -> None:
    call = {"values": [[tensor(8, "cuda:3")], "", "", "", True, -1], "shapes": [[[8]], [], [], [], [], []],
            "types": ["GenericList[Tensor(float)]", "Object", "Object", "None", "Bool", "Int"]}  # fmt: skip
    folder = write(tmp_path / "t", execution(node(20, "c10d::allreduce_", call, rf_id=31)))
    (folder / "trace.json").write_text(json.dumps(trace(0, *all_reduce(100, 31), *all_reduce(200, 33))))
    first, second = read(folder).logs[0].collectives
    assert first.inputs == (TensorMeta((8,), "float32", "cuda:3"),)
    assert second.inputs == (TensorMeta((8,), "bfloat16"),)
    assert first.duration_ns == 21_000


def test_the_rank_is_the_number_in_the_name(tmp_path: Path) -> None:
    folder = write(tmp_path / "t", execution())
    (folder / "et_0.json").rename(folder / "trace.json")
    assert is_imported(folder)
    with pytest.raises(UsageError, match="does not end with a rank"):
        read_job(folder)


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({"id": -1}, "must not be below zero"),
        ({"inputs": []}, "must be an object"),
        ({"attrs": [{"value": 1}]}, "name is missing"),
        ({"inputs": {"values": [], "shapes": [], "types": [7]}}, "must be a string"),
    ],
)
def test_what_is_damaged_is_one_error(tmp_path: Path, change: dict[str, Any], wrong: str) -> None:
    folder = write(tmp_path / "t", execution(gathered(20) | change))
    with pytest.raises(CapsuleError, match=wrong):
        read_job(folder)


@pytest.mark.parametrize(
    "text", ["no", "{}", '[{"pg_name": 5}]', '[{"pg_name": "0", "group_size": -1}]', "[" * 10_000, 7]
)
def test_groups_that_are_damaged_are_one_error(tmp_path: Path, text: Any) -> None:
    groups = node(3, "## process_group:init ##", {"values": [text], "shapes": [[]], "types": ["String"]})
    with pytest.raises(CapsuleError, match="the groups"):
        read_job(write(tmp_path / "t", execution(groups)))


def test_arguments_of_any_shape_are_let_be(tmp_path: Path) -> None:
    odd: list[Any] = [None, {}, [[]], [[[[[[[[]]]]]]]], 2**70, [tensor(-1)], [[1, 2, 3, 4, 5, "x" * 100]], float("nan")]
    for value in odd:
        inputs = {"values": [value] * 6, "shapes": [value] * 6, "types": ["Tensor(" * 3] * 6}
        nodes = node(20, "c10d::send", inputs), node(21, "c10d::allgather_", {**inputs, "types": []})
        assert len(read(write(tmp_path / "t", execution(*nodes))).logs[0].collectives) == 2


def test_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution_trace, "MOST_CALLS", 1)
    with pytest.raises(CapsuleError, match="more than 1 calls"):
        read_job(write(tmp_path / "t", execution(gathered(20), gathered(30))))
