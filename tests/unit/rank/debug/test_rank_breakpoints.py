"""Stops as a rank evaluates them: cheap fields, tensors, changes; a condition that fails is told once."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from prismdbg.expr.parser import parse
from prismdbg.model.breakpoints import BreakpointKind
from prismdbg.model.collective import Collective, Identity, State, TensorMeta
from prismdbg.model.moment import Moment
from prismdbg.model.ops import OPS
from prismdbg.rank.c10d.call import Call
from prismdbg.rank.debug.breakpoints import Breakpoints, CallView
from prismdbg.rank.debug.digest import digest_of
from prismdbg.rank.debug.events import Asked, fits, least_size
from prismdbg.rank.program.frames import program_frame
from prismdbg.rank.replay.state_digest import Place
from prismdbg.rank.tracing import tracer
from prismdbg.rank.tracing.tracer import Event, EventKind
from prismdbg.session.breakpoint_check import NAMES
from prismdbg.session.breakpoint_line import parse_breakpoint
from prismdbg.session.breakpoints import BreakpointList
from tests.unit.logs import lone_collective


def call(op: str = "allreduce_", *tensors: torch.Tensor, root: int = -1) -> Call:
    """As a kernel would receive it."""
    found = list(tensors) or [torch.ones(4)]
    spec = OPS[op]
    stands = SimpleNamespace(
        spec=spec, inputs=found, outputs=found, sent=found, received=found, root=root, group_name="7", size=2, rank=0
    )
    return cast(Call, stands)


def view(of: Call, step: int = 3, seq: int = 5, record: Any = None) -> CallView:
    return CallView(of, Moment(step, 2), Identity("7", seq), cast("Collective | None", record), ("7", "mesh_dp", "dp"))


class Bench:
    """A list of stops as typed, and what they say of a call."""

    def __init__(self, *typed: str) -> None:
        self.failed: list[tuple[int, str]] = []
        self.stops = Breakpoints(lambda number, error: self.failed.append((number, error)))
        wanted = BreakpointList()
        for text in typed:
            wanted.add(parse_breakpoint(text))
        self.stops.replace(wanted.to_json())

    def hit(self, of: CallView) -> list[int]:
        early, waiting = self.stops.early(of)
        return sorted(one.number for one in (*early, *self.stops.late(waiting, of)))


@pytest.mark.parametrize(
    ("typed", "holds"),
    [
        ("all_reduce", True),
        ("broadcast", False),
        ("all_reduce on dp", True),
        ("on mesh_dp", True),
        ("on 7", True),
        ("on tp", False),
        ("#5", True),
        ("#6", False),
        ("3.2", True),
        ("if step >= 4", False),
        ('if op == "all_reduce" and group == "dp" and bytes > 8 and not nan(out)', True),
        ("if bytes > 1MB", False),
        ('if dtype == "float32"', True),
        ("if max(abs(input[0])) > 1e3", False),
        ("if synthesized", False),
        ("if seq == 5 and collective == 2", True),
        ("test_rank_breakpoints.py:1", False),
        ("in layers.3", False),
    ],
)
def test_conditions_over_a_collective(typed: str, holds: bool) -> None:
    bench = Bench(typed)
    assert bench.hit(view(call())) == ([1] if holds else [])
    assert bench.failed == []


def test_a_line_is_the_programs_own_or_one_that_called_it() -> None:
    def helper() -> list[int]:
        frame_line = 0
        try:
            raise ValueError
        except ValueError as error:
            assert error.__traceback__ is not None
            frame_line = error.__traceback__.tb_lineno
        del frame_line
        return bench.hit(view(call()))

    here = helper.__code__.co_firstlineno
    bench = Bench(*[f"test_rank_breakpoints.py:{here + offset}" for offset in range(8, 10)])
    assert len(helper()) == 1


def test_modules_around_a_call_are_known_by_their_names() -> None:
    bench = Bench("in layers.1", "in layers.0", 'if module == "layers.1"')
    seen: list[int] = []

    class Leaf(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.extend(bench.hit(view(call())))
            return x

    class Root(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList([torch.nn.Identity(), Leaf()])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = layer(x)
            return x

    Root()(torch.ones(1))
    assert seen == [1, 3]


def test_nan_is_looked_for_only_where_the_record_does_not_know() -> None:
    bench = Bench("nan")
    bad = call("allreduce_", torch.tensor([1.0, float("inf")]))
    assert bench.hit(view(bad)) == [1]
    assert bench.hit(view(call())) == []
    clean = lone_collective(sent_nonfinite=False, received_nonfinite=False, synthesized=False)
    assert bench.hit(view(bad, record=clean)) == [], "what was recorded is what is answered"
    received = lone_collective(sent_nonfinite=False, received_nonfinite=True, synthesized=False)
    assert bench.hit(view(call(), record=received)) == [1]


def test_a_nan_with_which_pipelining_learns_shapes_is_none() -> None:
    """Also in a program that was edited, of which there is no record."""
    stage = {"hit": lambda *of: bench.hit(view(*of))}
    names = "_forward_metadata_inference", "forward_one_chunk"
    source = "\n".join(f"def {name}(*of): return hit(*of)" for name in names)
    exec(compile(source, "/v/site-packages/torch/distributed/pipelining/stage.py", "exec"), stage)
    bench = Bench("nan")
    bad = call("allreduce_", torch.tensor([1.0, float("nan")]))
    sent = lone_collective(sent_nonfinite=True, received_nonfinite=True, synthesized=False)
    for record in (None, sent):
        assert stage["_forward_metadata_inference"](bad, 3, 5, record) == []
        assert stage["forward_one_chunk"](bad, 3, 5, record) == [1]


def test_what_a_device_sent_is_unknown_where_its_end_does_not_say_it() -> None:
    """The call was open when the log was read, or there was no room to look: then the values of the replay are."""
    bad = call("allreduce_", torch.tensor([1.0, float("inf")]))
    on_device = lone_collective(inputs=(TensorMeta((2,), "float32", "cuda:0"),))
    ended = replace(on_device, state=State.COMPLETED, time_completed_ns=1)
    bench = Bench("nan")
    for record in (on_device, ended):
        assert bench.hit(view(bad, record=record)) == [1]
        assert bench.hit(view(call(), record=record)) == []
    assert bench.hit(view(bad, record=replace(ended, fingerprint=17))) == []


def test_nan_is_not_claimed_of_made_up_values_and_that_is_told_once() -> None:
    bench = Bench("nan", "all_reduce")
    made_up = lone_collective(sent_nonfinite=True, received_nonfinite=True, synthesized=True)
    assert bench.hit(view(call(), record=made_up)) == [2]
    assert bench.hit(view(call(), record=made_up)) == [2]
    ((number, why),) = bench.failed
    assert number == 1 and "depend on synthesized answers" in why


def test_a_peer_is_of_point_to_point() -> None:
    bench = Bench("peer 3")
    assert bench.hit(view(call("send", root=3))) == [1]
    assert bench.hit(view(call("send", root=2))) == []
    assert bench.hit(view(call("broadcast_", root=3))) == []


def test_a_change_counts_from_the_first_value_on() -> None:
    weight = torch.zeros(3)
    bench = Bench("change weight * 2")

    def look() -> list[int]:
        here = weight  # noqa: F841  found in this frame
        return bench.hit(view(call()))

    assert look() == []
    weight[1] = 1
    assert look() == [1] and look() == []
    bench.stops.replace([{"number": 9, "kind": "change", "expression": "weight * 2"}])
    weight[1] = 2
    assert look() == [9], "a list that is sent again goes on from the last value"


def test_what_was_passed_is_no_change() -> None:
    weight = torch.zeros(3)
    bench = Bench("change weight * 2")
    assert bench.hit(view(call())) == []
    weight[1] = 1  # while the rank went on without looking at stops
    nothing: dict[str, Any] = {}
    bench.stops.measure(nothing.__getitem__, program_frame())
    assert bench.hit(view(call())) == []
    weight[1] = 2
    assert bench.hit(view(call())) == [1]


def test_a_name_that_comes_into_being_is_a_change() -> None:
    bench = Bench("change brand_new")
    assert bench.hit(view(call())) == []
    brand_new = 5  # noqa: F841
    assert bench.hit(view(call())) == [1]


def test_a_condition_that_fails_is_told_once_and_does_not_stop() -> None:
    bench = Bench("if nothing_like_it > 1", "if out[9] > 1")
    for _ in range(3):
        assert bench.hit(view(call())) == []
    assert [number for number, _ in bench.failed] == [1, 2]
    name, hint = bench.failed[0][1].splitlines()
    assert name == "unknown name 'nothing_like_it'" and hint.startswith("use the event's names")


def test_a_stop_that_is_not_understood_is_told_once_and_the_program_hears_nothing() -> None:
    bench = Bench("all_reduce")
    bench.stops.replace([{"kind": "collective", "number": 1, "file": "train.py"}, {"kind": "collective", "number": 2}])
    for _ in range(2):
        assert bench.hit(view(call())) == [2]
    ((number, why),) = bench.failed
    assert number == 1 and "this breakpoint cannot be evaluated: KeyError: 'line'" in why


def test_rank_0_is_a_peer_like_any_other() -> None:
    bench = Bench("peer 0")
    assert bench.hit(view(call("send", root=0))) == [1]
    assert bench.hit(view(call("send", root=1))) == []


def test_an_ignored_hit_counts_down() -> None:
    stops = BreakpointList()
    stops.add(parse_breakpoint("all_reduce"))
    stops.ignore(1, 2)
    bench = Bench()
    bench.stops.replace(stops.to_json())
    early, _ = bench.stops.early(view(call()))
    assert [len(bench.stops.admitted(early)) for _ in range(4)] == [0, 0, 1, 1]
    assert bench.stops.left == {"1": 0}


def test_cheap_conditions_need_no_tensor() -> None:
    bench = Bench("all_reduce if bytes > 1MB and step > 3", "if not finite(input)", "if nan(out)")
    early, waiting = bench.stops.early(view(call()))
    assert early == [] and [one.number for one in waiting] == [3]


def test_a_digest_is_of_every_byte() -> None:
    value = {"w": torch.arange(6.0), "n": 3, "t": "x"}
    before = digest_of(value)
    assert digest_of({"w": torch.arange(6.0), "n": 3, "t": "x"}) == before
    for change in ({"w": torch.arange(6.0).view(2, 3)}, {"n": 3.0}, {"t": "y"}, {"more": None}):
        assert digest_of({**value, **change}) != before
    linear = torch.nn.Linear(2, 2)
    before = digest_of(linear)
    with torch.no_grad():
        linear.bias[1] += 1
    assert digest_of(linear) != before


def test_a_place_knows_what_was_sent_received_and_drawn() -> None:
    def walked(*sent: int) -> dict[str, str]:
        place = Place()
        for number, fingerprint in enumerate(sent):
            place.sends(Moment(1, number), Identity("0", number), fingerprint)
            place.receives(Moment(1, number), None, synthesized=True)
        assert place.history(2, skip=0) == [f"1.{n}" for n in range(len(sent))][-2:]
        return place.digests()

    state = torch.get_rng_state()
    try:
        assert walked(1, 2, 3) == walked(1, 2, 3)
        assert walked(1, 2, 3)["sent"] != walked(1, 3, 2)["sent"]
        first = walked(1)
        torch.rand(1)
        assert walked(1)["torch"] != first["torch"]
        assert walked(1)["python"] == "untouched"
    finally:
        torch.set_rng_state(state)


@pytest.mark.parametrize(
    ("condition", "least"),
    [
        ("size > 1MB", 1_000_000),
        ('op == "mm" and size >= 2KiB and step > 3', 2048),
        ("size > 1.5e6", 1_500_000),
        ("size > 1e300", 1 << 62),
        ("size > 1MB or step > 3", 0),
        ("not size > 1MB", 0),
        ("size < 1MB", 0),
        ("total > 1MB", 0),
    ],
)
def test_small_allocations_are_passed_where_they_are_made(condition: str, least: int) -> None:
    assert least_size(parse(condition)) == least


def allocation(**given: Any) -> Event:
    """One of 1 kB by a matrix product inside a module."""
    usual = {
        "kind": EventKind.ALLOCATION, "moment": Moment(3, 2, 7), "op": "aten::mm", "outer_op": "aten::linear",
        "module": "module.blocks.0.mlp.up", "address": 64, "size_bytes": 1000, "total_bytes": 5000, "block": 1,
        "is_backend": False, "device": "cpu", "matched": (),
    }  # fmt: skip
    return Event(**{**usual, **given})


@pytest.mark.parametrize(
    ("typed", "holds"),
    [
        ("allocation", True),
        ("allocation mm", True),
        ("allocation linear", True),
        ("allocation addmm", False),
        ("allocation in module.blocks.0.mlp", True),
        ("allocation in blocks.0", True),
        ("allocation in blocks.1", False),
        ("allocation in nonsense", False),
        ("allocation train.py:57", False),
        ("allocation mm in blocks.1", False),
        ("allocation if bytes > 500 and total > 4000", True),
        ("allocation if size > 1000", False),
        ('allocation if outer_op == "aten::linear" and line > 0 and "test_rank_breakpoints" in file', True),
    ],
)
def test_everything_that_an_allocations_stop_says_must_hold(typed: str, holds: bool) -> None:
    bench, event, frame = Bench(typed), allocation(), program_frame()
    (one,) = bench.stops.watched
    found = fits(one.spec, event, frame) and bench.stops.holds(one, Asked(event, frame).lookup, frame)
    assert (found, bench.failed) == (holds, [])


def test_an_allocation_has_the_programs_line() -> None:
    spec = {"file": "test_rank_breakpoints.py", "line": program_line() + 1}
    assert fits(spec, allocation(), program_frame())
    assert not fits(spec, allocation(), program_frame())


def program_line() -> int:
    """Of the caller."""
    frame = program_frame()
    assert frame is not None and frame.f_back is not None
    return frame.f_back.f_lineno


def test_how_much_memory_is_held_is_known_at_a_collective(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracer, "is_armed", lambda: True)
    monkeypatch.setattr(tracer, "allocated", lambda: 3 << 30)
    bench = Bench("if allocated > 2GiB", "if total > 4GiB", "all_reduce if allocated < 1KiB")
    assert bench.hit(view(call())) == [1] and bench.failed == []


def test_the_programs_own_names_are_local() -> None:
    bench = Bench("if local.op > 4", "if local.loss < 3", "if local.nothing_like_it")

    def step() -> list[int]:
        op, loss = 5, torch.tensor(2.5)  # noqa: F841  found in this frame; the first is the event's, too
        return bench.hit(view(call()))

    assert step() == [1, 2]
    assert [number for number, _ in bench.failed] == [3]
    assert "the program has no 'nothing_like_it'" in bench.failed[0][1]


def test_a_stop_knows_every_name_that_a_condition_knows() -> None:
    names = view(call("broadcast_", torch.ones(3), root=1)).names()
    assert frozenset(names) >= NAMES[BreakpointKind.COLLECTIVE] - {"allocated", "total"}
    assert (names["op"], names["group"], names["bytes"], names["moment"]) == ("broadcast", "dp", 12, "3.2")
    assert names["file"] == __file__ and names["dtype"] == "float32"
