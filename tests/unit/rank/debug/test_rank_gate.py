"""Where a replayed rank stops and goes on, module ends, and operators looked into for the first NaN."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
from waiting import wait_for

from prismdbg.errors import UsageError
from prismdbg.model.collective import Identity
from prismdbg.model.moment import Moment
from prismdbg.model.ops import OPS
from prismdbg.rank.c10d.call import Call
from prismdbg.rank.debug.breakpoints import CallView
from prismdbg.rank.debug.gate import Gate, Stop
from prismdbg.rank.debug.nonfinite_probe import NonfiniteProbe
from prismdbg.rank.debug.stopping import FINISH, Halts
from prismdbg.rank.program.isolation import quiet


class Walk:
    """A thread that issues collectives 1.1, 1.2, ... and stops where the gate says so."""

    def __init__(self, count: int = 9) -> None:
        self.told: list[dict[str, Any]] = []
        self.gate = Gate(lambda event, **data: self.told.append({"event": event, **data}))
        self.halts = Halts(self.gate, self.gate._publish)
        self.thread = threading.Thread(target=self._run, args=(count,), daemon=True)
        self.thread.start()
        self.wait(1)

    def _run(self, count: int) -> None:
        self.gate.stop(Stop("start", Moment(0), {}, None, {}))
        for number in range(1, count + 1):
            moment, tensor = Moment(1, number), torch.full((2,), 3.0)
            call = SimpleNamespace(
                spec=OPS["allreduce_"], inputs=[tensor], outputs=[tensor], sent=[], received=[], group_name="0", root=-1
            )
            view = CallView(cast(Call, call), moment, Identity("0", number), None, ("0", "dp"))
            halt = self.halts.before(view)
            tensor += 10  # the answer lies where the input was
            if reason := self.halts.after(halt, {"profiling_name": "all_reduce"}, synthesized=False):
                self.gate.stop(Stop(reason, moment, {"at": number}, None, {}, answered=True, stops=halt.stops))

    def wait(self, number: int) -> None:
        wait_for(lambda: self.gate.number == number and self.gate.current is not None, 10, f"stop {number}")

    def go(self, **message: Any) -> dict[str, Any]:
        """What the next stop is told with; empty where the thread came to its end."""
        number = self.gate.number + 1
        self.gate.resume(message)
        wait_for(
            lambda: (self.gate.number == number and self.gate.current is not None) or not self.thread.is_alive(),
            10,
            "it",
        )
        stops = [told for told in self.told if told["event"] == "stopped" and told["number"] == number]
        return stops[-1] if stops else {}


def where(stop: dict[str, Any]) -> tuple[str, str]:
    return stop["reason"], stop["moment"]


def test_counts_moments_and_the_end() -> None:
    walk = Walk()
    assert where(walk.go(count=2)) == ("next", "1.2")
    assert where(walk.go(until="1.5")) == ("until", "1.5")
    assert where(walk.go(pause_after_s=0.0)) == ("spacing", "1.6")
    assert walk.go() == {}
    with pytest.raises(UsageError, match="running already"):
        walk.gate.resume({})


def test_going_on_as_before_keeps_the_aim_and_what_was_noted() -> None:
    walk = Walk()
    walk.halts.stops.replace([{"number": 4, "kind": "collective", "condition": "collective in (2, 5)"}])
    spaced = walk.go(until="1.7", stops="note", pause_after_s=0.0)
    assert where(spaced) == ("spacing", "1.1")
    arrived = walk.go(continued=True)
    assert where(arrived) == ("until", "1.7")
    assert [(hit["stop"], hit["moment"]) for hit in arrived["hits"]] == [(4, "1.2"), (4, "1.5")]
    assert where(walk.go(stops="apply", count=1)) == ("next", "1.8")


def test_stops_apply_or_are_passed() -> None:
    walk = Walk()
    walk.halts.stops.replace(
        [
            {"number": 1, "kind": "collective", "condition": "collective >= 3", "ignore": 1},
            {"number": 2, "kind": "collective", "condition": "collective == 2", "log_only": True},
        ]
    )
    stop = walk.go(stops="apply")
    assert (*where(stop), stop["stops"]) == ("stop", "1.4", [1])
    assert [told["moment"] for told in walk.told if told["event"] == "hit"] == ["1.2"]
    assert walk.go(stops="ignore") == {}


def test_what_is_sent_is_the_same_in_both_directions() -> None:
    """`number` is a local of the program: whether the condition holds is known after the answer."""
    walk = Walk()
    walk.halts.stops.replace([{"number": 1, "kind": "collective", "condition": "max(input[0]) < number"}])
    forwards = [walk.go(stops="apply")["moment"] for _ in range(2)]
    walk = Walk()
    walk.halts.stops.replace([{"number": 1, "kind": "collective", "condition": "max(input[0]) < number"}])
    noted = walk.go(until="1.5", stops="note")
    assert [hit["moment"] for hit in noted["hits"]] == forwards == ["1.4", "1.5"]


def test_a_logpoint_tells_the_values_in_its_text() -> None:
    walk = Walk()
    text = "{moment} {out[0]} {collective * 2} {nowhere} {out}"
    walk.halts.stops.replace([{"number": 1, "kind": "collective", "log_only": True, "message": text}])
    walk.halts.stops.assumes = lambda moment, names: "out" in names
    assert walk.go(stops="apply") == {}
    first = next(told for told in walk.told if told["event"] == "hit")
    moment, out, doubled, absent, whole = first["values"]
    assert (whole["kind"], whole["text"]) == ("object", "list of 1"), "parts of a value are not sent"
    assert out["assumed"] and whole["assumed"] and "assumed" not in doubled
    assert (moment["value"], out["shape"], doubled["value"]) == ("1.1", [2], 2)
    assert absent["text"].startswith("<unknown name 'nowhere'")
    assert len([told for told in walk.told if told["event"] == "hit"]) == 9, "a value that there is not stops nothing"


def test_without_a_module_a_step_is_finished() -> None:
    walk = Walk()
    stop = walk.go(until="1.4", stops="note", finish={"module": "", "step": 2})
    assert [hit["stop"] for hit in stop["hits"]] == [FINISH] * 4, "all of an earlier step"
    assert where(walk.go(stops="apply", finish={"module": "", "step": 0})) == ("finish", "1.5")
    assert where(walk.go(stops="apply", finish={"module": "layers.3", "step": 1})) == ("finish", "1.6")


def test_stops_hold_also_on_the_way_to_a_steps_end() -> None:
    walk = Walk()
    walk.halts.stops.replace([{"number": 1, "kind": "collective", "condition": "collective in (3, 5)"}])
    stop = walk.go(stops="apply", finish={"module": "", "step": 1})
    assert (*where(stop), stop["stops"]) == ("stop", "1.3", [1])
    noted = walk.go(until="1.7", stops="note", finish={"module": "", "step": 1})
    assert [(hit["stop"], hit["moment"]) for hit in noted["hits"]] == [(1, "1.5")]


def test_what_is_asked_of_a_thread_runs_in_it_and_its_errors_are_the_askers() -> None:
    walk = Walk()
    assert walk.gate.ask(lambda stop: (threading.get_ident(), stop.reason)) == (walk.thread.ident, "start")
    with pytest.raises(ZeroDivisionError):
        walk.gate.ask(lambda _: 1 / 0)
    walk.go()
    with pytest.raises(UsageError, match="the rank is running"):
        walk.gate.ask(lambda stop: stop)


def looked_at(body: Any, nan_only: bool = True) -> dict[str, Any] | None:
    with NonfiniteProbe(nan_only, lambda: Moment(3, 1, 7)) as microscope:
        body()
    return microscope.found


def test_a_nan_that_an_operator_makes_is_born_there() -> None:
    found = looked_at(lambda: torch.zeros(2).log().sub(torch.zeros(2).log()).sum())
    assert found is not None
    assert (found["op"], found["born"], found["moment"]) == ("aten::sub.Tensor", True, "3.1.7")
    assert found["frames"][0]["filename"] == __file__


def test_a_nan_from_outside_came_in_with_the_inputs() -> None:
    read = torch.tensor([1.0, float("nan")])
    found = looked_at(lambda: read[1:] * 2)
    assert found is not None and not found["born"]


def test_an_operator_that_writes_over_its_inputs_may_still_have_made_it() -> None:
    large, mean = torch.full((2, 1), 3e38), torch.zeros(1)
    found = looked_at(lambda: torch.nn.functional.batch_norm(large, mean, torch.ones(1), training=True), nan_only=False)
    assert found is not None and "batch_norm" in found["op"] and found["born"] and not mean.isfinite()
    zero = torch.zeros(1)
    found = looked_at(lambda: zero.div_(0))
    assert found is not None and (found["op"], found["born"]) == ("aten::div_.Tensor", True)
    found = looked_at(lambda: zero.add_(1))
    assert found is not None and not found["born"]


def unfilled(count: int) -> torch.Tensor:
    """As allocated, with NaN where it happens to lie."""
    memory = torch.empty(count)
    with quiet():
        memory.fill_(float("nan"))
    return memory


def test_what_lay_in_memory_is_nobodys_value_until_somebody_computes_with_it() -> None:
    """As DDP makes its buckets: views of memory that is filled part by part."""

    def bucket() -> torch.Tensor:
        whole = unfilled(6)
        first, second = whole.as_strided((3,), (1,), 0), whole[3:]
        first.copy_(torch.ones(3))
        second.view(3, 1).fill_(2.0)
        return whole

    assert looked_at(lambda: bucket().sum()) is None
    buffer = torch.ones(4)

    def resized() -> torch.Tensor:
        """As FSDP makes its buffers, without an operator."""
        buffer.untyped_storage().resize_(0)
        buffer.untyped_storage().resize_(16)
        with quiet():
            buffer.fill_(float("nan"))
        return buffer.view(2, 2)

    assert looked_at(resized) is None
    found = looked_at(lambda: unfilled(4)[1:] * 2)
    assert found is not None and (found["op"], found["born"]) == ("aten::mul.Tensor", False)


def test_a_view_of_what_was_filled_is_somebodys_value() -> None:
    data = torch.tensor([1.0, float("nan"), 1.0, 1.0])

    def read() -> torch.Tensor:
        memory = unfilled(4)
        memory.copy_(data)
        return memory

    found = looked_at(read)
    assert found is not None and found["op"] == "aten::copy_"

    def filled_elsewhere() -> torch.Tensor:
        memory = unfilled(4)
        memory.copy_(torch.ones(4))
        with quiet():
            memory[1] = float("nan")
        return memory[1]

    found = looked_at(filled_elsewhere)
    assert found is not None and found["op"] == "aten::select.int"


def test_an_infinity_is_looked_for_only_if_asked() -> None:
    mask = torch.zeros(2, dtype=torch.bool)
    mask[0] = True
    attend = lambda: torch.zeros(2).masked_fill(mask, float("-inf")).softmax(0)  # noqa: E731
    assert looked_at(attend) is None
    found = looked_at(attend, nan_only=False)
    assert found is not None and found["op"].startswith("aten::masked_fill")


def test_memory_that_was_never_filled_is_no_finding() -> None:
    assert looked_at(lambda: torch.empty(1 << 16).resize_(4).fill_(0).sum()) is None


def test_it_sees_the_backward_pass_and_draws_nothing() -> None:
    weight = torch.zeros(2, requires_grad=True)
    state = torch.get_rng_state()
    found = looked_at(lambda: (weight.sqrt() * 0).sum().backward())
    assert found is not None and found["born"] and "Backward" not in found["op"]
    assert torch.equal(state, torch.get_rng_state())


def test_an_operator_of_a_dtensor_is_looked_at_by_its_local_part() -> None:
    """FSDP2's parameters and gradients; the shapes that DTensor and torch.compile work with have no values."""
    probe = NonfiniteProbe(False, lambda: Moment(1))
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        whole = distribute_tensor(torch.ones(2, 2), init_device_mesh("cpu", (1,)), [Shard(0)])
        with FakeTensorMode() as mode:
            shape = mode.from_tensor(torch.ones(2))
        with probe:
            _ = shape / 0, whole.sum()
            assert probe.found is None
            _ = whole / 0
    finally:
        dist.destroy_process_group()
    assert probe.found is not None
    assert (probe.found["op"], probe.found["born"]) == ("aten::div.Tensor", True)
