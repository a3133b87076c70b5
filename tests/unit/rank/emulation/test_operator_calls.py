"""Operators of a real step are noted, forward and backward, and can be made again and timed."""

from __future__ import annotations

import json
from pathlib import Path

import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from prismdbg.rank import operator_timing
from prismdbg.rank.emulation.operator_calls import OperatorCalls


def noted(path: Path) -> dict[str, int]:
    return {call["op"]: call["count"] for call in json.loads(path.read_text())["calls"]}


def step(path: Path) -> None:
    linear = torch.nn.Linear(8, 4)
    with OperatorCalls(path) as calls:
        for number in range(2):
            torch.nn.functional.gelu(linear(torch.randn(16, 8))).sum().backward()
            calls.on_step(number, None)


def test_the_newest_step_is_noted_forward_and_backward(tmp_path: Path) -> None:
    step(tmp_path / "calls.json")
    found = noted(tmp_path / "calls.json")
    assert found["aten.addmm.default"] == 1
    assert found["aten.gelu_backward.default"] == 1 and found["aten.mm.default"] == 1
    assert "aten.view.default" not in found and "aten.t.default" not in found


def test_what_was_noted_can_be_timed(tmp_path: Path) -> None:
    step(tmp_path / "calls.json")
    held = json.loads((tmp_path / "calls.json").read_text())
    calls = [*held["calls"], {"op": "aten.mm.default", "args": [{"unknown": "<class 'x'>"}], "kwargs": {}}]
    threads = torch.get_num_threads()
    (tmp_path / "plan.json").write_text(json.dumps({"threads": threads, "budget_s": 30, "calls": calls}))
    operator_timing.main(tmp_path / "plan.json", tmp_path / "result.json")
    rows = json.loads((tmp_path / "result.json").read_text())["rows"]
    assert len(rows) == len(calls)
    assert rows[-1] == {"left_out": "an argument of type <class 'x'>"}
    assert all(row["ns"] > 0 for row in rows[:-1]), rows


def test_when_the_time_is_over_the_rest_is_left_out(tmp_path: Path) -> None:
    call = {"op": "aten.relu.default", "args": [{"tensor": [4], "dtype": "torch.float32", "order": [0]}], "kwargs": {}}
    plan = {"threads": torch.get_num_threads(), "budget_s": 0, "calls": [call, call]}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    operator_timing.main(tmp_path / "plan.json", tmp_path / "result.json")
    rows = json.loads((tmp_path / "result.json").read_text())["rows"]
    assert rows == [{"left_out": "the time was over"}] * 2


def test_communication_is_passed_on_and_not_noted(tmp_path: Path) -> None:
    dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    reduced: list[bool] = []

    def reduce(gradient: torch.Tensor) -> None:
        dist.all_reduce(gradient)
        reduced.append(True)

    try:
        x = torch.ones(4, requires_grad=True)
        x.register_hook(reduce)
        with OperatorCalls(tmp_path / "calls.json") as calls:
            dist.all_reduce(torch.ones(4))
            x.sum().backward()
            calls.on_step(1, None)
    finally:
        dist.destroy_process_group()
    assert reduced == [True]
    assert noted(tmp_path / "calls.json") and not any("c10d" in op for op in noted(tmp_path / "calls.json"))
