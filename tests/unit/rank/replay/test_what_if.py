"""Peers that send something else: every kind of collective is answered as the sum of its parts says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist

from prismdbg.model.moment import Moment
from prismdbg.model.ops import OPS
from prismdbg.rank.c10d.call import Call
from prismdbg.rank.emulation import control
from prismdbg.rank.replay.departure import Departure
from prismdbg.rank.replay.peers import SynthesizedPeers
from prismdbg.rank.replay.what_if import Assumption, WhatIf

RANK, SIZE = 1, 4
MEMBERS = [10, 11, 12, 13]  # global ranks
WHEN = Moment(3, 1)


class Stand(SimpleNamespace):
    """As a kernel would receive it."""

    _argument, _parts = Call._argument, Call._parts
    parts_sent, parts_received = Call.parts_sent, Call.parts_received


def call(name: str, inputs: Any, outputs: Any, **more: Any) -> Any:
    spec = OPS[name]
    fields = {"root": -1, "reduce_op": "SUM", "timeout_ms": 5000, "group_name": "7", "_args": ()}
    return Stand(
        spec=spec, inputs=inputs, received=outputs, outputs=outputs, rank=RANK, size=SIZE, **{**fields, **more}
    )


def what_if(**assumed: Any) -> WhatIf:
    return WhatIf([Assumption.from_json(assumed)], members=lambda _: MEMBERS, titles=lambda group: (group, "dp"))


def answered(called: Any, recorded: bool = False, key: str = "7 #1", **assumed: Any) -> Any:
    assumptions = what_if(**assumed)
    chosen = assumptions.chosen(called, WHEN)
    assert chosen is not None
    answer = assumptions.answer(called, *chosen, recorded=recorded, key=key)
    assert answer.synthesized
    return called.received


def own() -> torch.Tensor:
    return torch.tensor([1.0, 2.0, 4.0, 8.0])


EACH_KIND = {
    "allreduce_": lambda: call("allreduce_", [t := own()], [t]),
    "reduce_": lambda: call("reduce_", [t := own()], [t], root=RANK, reduce_op="MAX"),
    "allgather_": lambda: call("allgather_", [own()], [torch.zeros(4) for _ in range(SIZE)]),
    "_allgather_base_": lambda: call("_allgather_base_", [own()], [torch.zeros(16)]),
    "_reduce_scatter_base_": lambda: call("_reduce_scatter_base_", [own()], [torch.zeros(1)]),
    "reduce_scatter_": lambda: call("reduce_scatter_", [own() * k for k in range(SIZE)], [torch.zeros(4)]),
    "alltoall_base_": lambda: call("alltoall_base_", [own()], [torch.zeros(4)]),
    "broadcast_": lambda: call("broadcast_", [t := own()], [t], root=2),
    "recv_": lambda: call("recv_", [], [own()], root=2),
}


@pytest.mark.parametrize("kind", EACH_KIND)
def test_when_all_echo_it_is_what_synthesized_peers_answer(kind: str) -> None:
    called, reference = EACH_KIND[kind](), EACH_KIND[kind]()
    SynthesizedPeers().answer(reference, None)
    for got, wanted in zip(answered(called, answer="echo"), reference.received, strict=True):
        assert torch.equal(got, wanted)


@pytest.mark.parametrize("kind", EACH_KIND)
def test_what_was_made_in_inference_mode_is_filled_too(kind: str) -> None:
    with torch.inference_mode():
        made = EACH_KIND[kind]()
    expected = answered(EACH_KIND[kind](), answer="zeros")
    assert [t.tolist() for t in answered(made, answer="zeros")] == [t.tolist() for t in expected]


def in_ddp(action: Callable[[], object]) -> None:
    """As if DistributedDataParallel called it."""
    code = compile("action()", "/v/site-packages/torch/nn/parallel/distributed.py", "exec")
    exec(code, {"action": action})


def test_what_ddp_aligns_is_left_as_this_rank_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The order of its buckets is of indices that torch does not check: zeros end the process."""
    # what stands here between DDP and its call is no module of the program's
    monkeypatch.setattr(control, "_BETWEEN", (*control._BETWEEN, __file__))
    order = call("broadcast_", [t := torch.tensor([2, 0, 1, 2], dtype=torch.int32)], [t], root=2)
    wanted = t.clone()
    in_ddp(lambda: SynthesizedPeers().answer(order, None))
    for kind in ("echo", "zeros", "noise"):
        in_ddp(lambda kind=kind: answered(order, answer=kind))
    assert torch.equal(t, wanted)
    SynthesizedPeers().answer(order, None)
    assert not t.any(), "what only the root knows"


def test_zeros_leave_what_this_rank_sends() -> None:
    assert torch.equal(answered(EACH_KIND["allreduce_"](), answer="zeros")[0], own())
    gathered = answered(EACH_KIND["allgather_"](), answer="zeros")
    assert [bool(t.any()) for t in gathered] == [False, True, False, False]
    assert torch.equal(gathered[RANK], own())
    assert not answered(EACH_KIND["recv_"](), answer="zeros")[0].any()


def test_only_the_chosen_peers_send_it_and_what_the_record_tells_of_the_others_stays() -> None:
    summed = answered(EACH_KIND["allreduce_"](), answer="zeros", ranks=[13])
    assert torch.equal(summed[0], own() * 3)
    recorded = call("allgather_", [own()], [torch.full((4,), float(k)) for k in range(SIZE)])
    gathered = answered(recorded, recorded=True, answer="zeros", ranks=[13])
    assert [float(t[0]) for t in gathered] == [0.0, 1.0, 2.0, 0.0]


@pytest.mark.parametrize("width", [1, 3])
def test_of_parts_of_different_sizes_only_the_chosen_peers_are_changed(width: int) -> None:
    received, sent = [1, 3, 0, 4], [2, 3, 1, 0]
    rows = torch.arange(1.0, 9.0).repeat_interleave(width).view(8, width)
    given = torch.cat([torch.zeros(2, width), rows[1:4], torch.zeros(1, width)])  # this rank's own part in the middle
    uneven = call("alltoall_base_", [given], [rows.clone()], _args=(None, None, None, received, sent))
    assert torch.equal(answered(uneven, recorded=True, answer="zeros", ranks=[12])[0], rows), "it sends nothing"
    changed = answered(uneven, recorded=True, answer="zeros", ranks=[13])[0]
    assert torch.equal(changed[:4], rows[:4]) and not changed[4:].any()


def test_an_average_is_one() -> None:
    averaged = call("allreduce_", [t := own()], [t], reduce_op="AVG")
    assert torch.equal(answered(averaged, answer="zeros")[0], own() / SIZE)


def test_noise_is_the_same_each_time_and_draws_from_no_generator_of_the_program() -> None:
    before = torch.get_rng_state()
    first, again, other_seed, other_call = (
        answered(EACH_KIND["allgather_"](), key=key, answer="noise", seed=seed)
        for seed, key in ((1, "7 #1"), (1, "7 #1"), (2, "7 #1"), (1, "7 #2"))
    )
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[0], other_seed[0]) and not torch.equal(first[0], other_call[0])
    assert not torch.equal(first[0], first[2])
    assert torch.equal(first[RANK], own())


def test_what_an_assumption_is_about() -> None:
    reduced, received = EACH_KIND["allreduce_"](), EACH_KIND["recv_"]()
    assert what_if(answer="zeros", since="3.2").chosen(reduced, WHEN) is None
    assert what_if(answer="zeros", until="3.1").chosen(reduced, WHEN) is None
    assert what_if(answer="zeros", group="tp").chosen(reduced, WHEN) is None
    assert what_if(answer="zeros", ranks=[11]).chosen(reduced, WHEN) is None  # this rank itself
    assert what_if(answer="zeros", ranks=[13]).chosen(received, WHEN) is None  # it receives from 12
    for fits in ({"since": "3.1"}, {"until": "3.2"}, {"group": "dp"}, {"group": "7"}, {"ranks": [12]}):
        assert what_if(answer="zeros", **fits).chosen(received, WHEN) is not None


@pytest.fixture
def group_of_five_seconds() -> Iterator[Any]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1, timeout=timedelta(seconds=5))
    yield dist.group.WORLD
    dist.destroy_process_group()


@pytest.mark.parametrize("timeout_ms", [5000, -1])
def test_a_peer_that_does_not_come_is_a_timeout(timeout_ms: int, group_of_five_seconds: Any) -> None:
    """Of the call itself, else of its group."""
    called = call("allreduce_", [t := own()], [t], timeout_ms=timeout_ms, group=group_of_five_seconds)
    for assumed in ({"missing": True}, {"late_s": 5.5}):
        missing = what_if(ranks=[12], **assumed)
        chosen = missing.chosen(called, WHEN)
        assert chosen is not None
        with pytest.raises(RuntimeError, match="rank 12 did not come to all_reduce of group dp within 5 s"):
            missing.arrive(called, *chosen)


def test_after_the_departure_no_recorded_answer_holds() -> None:
    departure = Departure()
    receiving, sending = EACH_KIND["recv_"](), call("send", [own()], [], root=2)
    assert departure.record_holds(receiving, WHEN)
    assert departure.leave(WHEN) and not departure.leave(Moment(3, 2))
    assert not departure.record_holds(sending, WHEN)
    assert departure.affected is None
    assert not departure.record_holds(receiving, Moment(3, 2)) and not departure.record_holds(receiving, Moment(3, 3))
    assert (departure.left, departure.affected) == (WHEN, Moment(3, 2))


def test_what_rests_on_the_departure() -> None:
    """At the call in which it left, what the rank had computed is its own; the answer is not."""
    departure = Departure()
    assert not departure.assumes(WHEN, ["out"])
    departure.leave(WHEN)
    assert not departure.assumes(Moment(3, 0), ["out"])
    assert not departure.assumes(WHEN, ["input", "loss"])
    assert departure.assumes(WHEN, ["input", "out"])
    assert departure.assumes(Moment(3, 2), ["loss"])
