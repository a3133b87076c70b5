"""The first difference of two logs: of a call, of what was sent, of what was received; whichever comes first."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from prismdbg.capsule.log.events import RankLog
from prismdbg.diagnosis.rank_comparison import Aspect, Comparison, Side, compare
from prismdbg.errors import CapsuleError, UsageError
from prismdbg.log.rank_log import columns_of
from prismdbg.model.collective import Collective, Group, Identity, PayloadRef, State, TensorMeta
from prismdbg.model.moment import Moment

FOUR = (TensorMeta((2, 2), "float32"),)
WORLD = Group(name="0", ranks=(0, 1), desc="default_pg")


def call(number: int, **changed: Any) -> Collective:
    """Two in a step; each received `number` four times."""
    usual: dict[str, Any] = {
        "record_id": number, "moment": Moment(number // 2, number % 2 + 1), "identity": Identity("0", number),
        "op": "allreduce_", "group": "0", "is_p2p": False, "is_async": False, "root": -1, "tag": 0, "reduce_op": "SUM",
        "timeout_ms": 1000, "inputs": FOUR, "outputs": FOUR, "fingerprint": number, "sent_nonfinite": False,
        "time_created_ns": number * 100, "thread_id": 1, "frames": (), "state": State.COMPLETED,
        "time_completed_ns": number * 100 + 10, "payload": PayloadRef(0, 0, 16),
    }  # fmt: skip
    return Collective(**{**usual, **changed})


def side(calls: list[Collective], *, rank: int = 0, received: dict[int, Any] | None = None) -> Side:
    """`received`: what, by record, where it is not the record's number."""
    log = RankLog(rank=rank, pid=1, wall_offset_ns=0, collectives=calls, groups={"0": WORLD})

    def arrays(of: Collective) -> tuple[np.ndarray[Any, Any], ...]:
        value = (received or {}).get(of.record_id, float(of.record_id))
        return (np.broadcast_to(np.asarray(value, dtype=np.float32), (2, 2)).copy(),)

    return Side(log=columns_of(log), payload=lambda of: arrays(of)[0].tobytes(), arrays=arrays)


def calls(count: int = 6) -> list[Collective]:
    return [call(number) for number in range(count)]


def changed(at: int, **fields: Any) -> list[Collective]:
    return [replace(each, **fields) if each.record_id == at else each for each in calls()]


def moments(found: Comparison) -> list[str]:
    assert found.difference is not None
    return [str(each.moment) if each is not None else "-" for each in found.difference.calls]


def test_equal_logs() -> None:
    found = compare(side(calls()), side(calls()))
    assert (found.difference, found.calls, found.sent, found.received) == (None, 6, 6, 6)
    assert [(each.name, each.group, each.counts, each.medians_ns) for each in found.timings] == [
        ("all_reduce", "world", (6, 6), (10, 10))
    ]


@pytest.mark.parametrize(
    ("fields", "aspect", "what"),
    [
        ({"op": "broadcast_"}, Aspect.CALL, "operator all_reduce and broadcast"),
        ({"inputs": (TensorMeta((4, 1), "float32"),)}, Aspect.CALL, "input float32[2, 2] and float32[4, 1]"),
        ({"root": 1}, Aspect.CALL, "root none and 1"),
        ({"tag": 2}, Aspect.CALL, "tag 0 and 2"),
        ({"reduce_op": "MAX"}, Aspect.CALL, "reduction SUM and MAX"),
        ({"state": State.FAILED}, Aspect.CALL, "end completed and failed"),
        ({"outputs": (TensorMeta((2, 2), "int32"),)}, Aspect.CALL, "output float32[2, 2] and int32[2, 2]"),
        ({"group": "1"}, Aspect.CALL, "group world and 1"),
        ({"fingerprint": 99}, Aspect.SENT, "sent other values"),
    ],
)
def test_each_difference_is_named(fields: dict[str, Any], aspect: Aspect, what: str) -> None:
    found = compare(side(calls()), side(changed(3, **fields)))
    assert found.difference is not None
    assert (found.difference.aspect, found.difference.what, moments(found)) == (aspect, what, ["1.2", "1.2"])


def test_the_peer_of_a_message_is_named() -> None:
    a, b = (changed(3, op="send", is_p2p=True, root=peer, outputs=()) for peer in (1, 2))
    found = compare(side(a), side(b))
    assert found.difference is not None and found.difference.what == "peer 1 and 2"


def test_of_a_call_that_has_not_ended_it_is_not_known_how_it_ends() -> None:
    cut = changed(5, state=State.SCHEDULED, time_completed_ns=None, payload=None)
    assert compare(side(changed(5, state=State.FAILED, payload=None)), side(cut)).difference is None


def test_what_was_received_before_comes_first() -> None:
    found = compare(side(calls()), side(changed(3, fingerprint=99), received={2: [[2.0, 2.5], [2.0, -2.0]]}))
    assert found.difference is not None and found.difference.aspect is Aspect.RECEIVED
    assert moments(found) == ["1.1", "1.1"]
    (tensor,) = found.difference.tensors
    assert (tensor.differing, tensor.max_abs, tensor.at, tensor.nans) == (2, 4.0, (1, 1), (0, 0))
    assert tensor.max_rel == 2.0


def test_nan_is_nan_and_a_number_is_none() -> None:
    nan = float("nan")
    assert compare(side(calls(), received={1: nan}), side(calls(), received={1: nan})).difference is None
    found = compare(side(calls(), received={1: 1.0}), side(calls(), received={1: [[1.0, nan], [1.0, 1.0]]}))
    assert found.difference is not None
    (tensor,) = found.difference.tensors
    assert (tensor.differing, tensor.max_abs, tensor.at, tensor.nans) == (1, None, (0, 1), (0, 1))


def test_a_call_that_one_side_lacks() -> None:
    without = [each for each in calls() if each.record_id != 2]
    found = compare(side(calls()), side(without))
    assert found.difference is not None
    assert (found.difference.what, moments(found)) == ("only the first has this call", ["1.1", "-"])
    assert moments(compare(side(without), side(calls()))) == ["-", "1.1"]


def test_only_where_both_logs_reach() -> None:
    """A capsule begins later, and one run went on for longer."""
    assert compare(side(calls()), side(calls()[2:])).difference is None
    assert compare(side(calls(4)), side(calls(6))).difference is None
    assert compare(side(calls(2)), side(calls()[4:])).calls == 0
    assert compare(side([]), side(calls())).calls == 0


def test_a_difference_before_the_lonely_call_is_the_first() -> None:
    without = [
        replace(each, fingerprint=99) if each.record_id == 1 else each for each in calls() if each.record_id != 4
    ]
    assert moments(compare(side(calls()), side(without))) == ["0.2", "0.2"]


def test_two_ranks_send_what_they_like_and_receive_alike() -> None:
    other = [replace(each, fingerprint=7, moment=Moment(9, each.record_id)) for each in calls()]
    found = compare(side(calls()), side(other, rank=1))
    assert (found.difference, found.calls, found.sent, found.received) == (None, 6, 0, 6)
    found = compare(side(calls()), side(other, rank=1, received={4: 0.0}))
    assert found.difference is not None
    assert (found.difference.aspect, moments(found)) == (Aspect.RECEIVED, ["2.1", "9.4"])


def test_two_ranks_calls_must_belong_together() -> None:
    other = [replace(each, root=1) if each.record_id == 5 else each for each in calls()]
    assert moments(compare(side(calls()), side(other, rank=1))) == ["2.2", "2.2"]
    gathers = [replace(each, op="gather_") for each in calls()]  # only the root has outputs
    leaves = [replace(each, outputs=()) for each in gathers]
    assert compare(side(gathers), side(leaves, rank=1)).difference is None


def told(found: Comparison) -> tuple[str, int, list[tuple[int, float | None, float | None, tuple[int, ...]]]]:
    """Where other values were received, how many calls were compared for it, and each tensor there."""
    assert found.difference is not None and found.difference.aspect is Aspect.SENT
    calls = found.difference.received_in
    tensors = [(each.differing, each.max_abs, each.max_rel, each.at) for each in found.difference.tensors]
    return "-" if calls is None else str(calls[1].moment), found.difference.received, tensors


@pytest.mark.parametrize(
    ("received", "at", "compared"), [({2: 1.0, 3: 4.0}, "1.1", 1), ({3: 4.0, 4: 9.0}, "1.2", 2), ({}, "-", 4)]
)
def test_where_other_values_were_sent_the_first_that_were_received_are_told(
    received: dict[int, float], at: str, compared: int
) -> None:
    found = compare(side(calls()), side(changed(2, fingerprint=99), received=received))
    assert moments(found) == ["1.1", "1.1"] and found.received == 2, "only what was received before"
    tensors = [] if at == "-" else [(4, 1.0, 0.5 if at == "1.1" else 0.25, (0, 0))]
    assert told(found) == (at, compared, tensors)


def test_a_later_call_is_told_if_the_first_was_not_kept() -> None:
    log = changed(2, payload=None)
    other = [replace(each, fingerprint=99) if each.record_id == 2 else each for each in log]
    found = compare(side(log), side(other, received={2: 9.0, 3: 4.0}))
    assert moments(found) == ["1.1", "1.1"] and told(found)[:2] == ("1.2", 1)
    nothing = [replace(each, payload=None) for each in other]
    assert told(compare(side(calls()), side(nothing))) == ("-", 0, [])


def test_later_calls_that_are_others_are_not_compared() -> None:
    """The programs go different ways from 1.1 on; what they receive there has nothing to do with each other."""
    other = [replace(each, op="broadcast_" if each.record_id > 1 else each.op, fingerprint=7) for each in calls()]
    assert told(compare(side(calls()), side(other, received={3: 9.0})))[:2] == ("-", 2)


@pytest.mark.parametrize("fields", [{}, {"fingerprint": 99}])
def test_elements_that_numpy_cannot_read_are_only_told_to_differ(fields: dict[str, int]) -> None:
    def unreadable(_: Collective) -> tuple[np.ndarray[Any, Any], ...]:
        raise UsageError("numpy has no element type float8_e5m2")

    a, b = (replace(each, arrays=unreadable) for each in (side(calls()), side(changed(3, **fields), received={3: 9.0})))
    found = compare(a, b).difference
    assert found is not None and found.received_in is not None
    assert (str(found.received_in[0].moment), found.tensors) == ("1.2", ())
    assert found.why_no_tensors == "which elements differ is unknown: numpy has no element type float8_e5m2"


@pytest.mark.parametrize("fields", [{}, {"fingerprint": 99}])
@pytest.mark.parametrize("bits", [(0x00000000, 0x80000000), (0x7FC00000, 0x7FC00001)])
def test_bits_that_are_equal_as_numbers_are_told_to_be(bits: tuple[int, int], fields: dict[str, int]) -> None:
    a, b = (np.array([each], dtype=np.uint32).view(np.float32) for each in bits)
    found = compare(side(calls(), received={3: a}), side(changed(3, **fields), received={3: b})).difference
    assert found is not None and found.received_in is not None
    assert (str(found.received_in[0].moment), found.tensors) == ("1.2", ())
    assert found.why_no_tensors == "all elements are equal as numbers: only signs of zeros or bits of NaNs differ"


def test_damaged_data_after_other_values_were_sent_hides_no_difference() -> None:
    def damaged(_: Collective) -> bytes | None:
        raise CapsuleError("a payload does not fit its tensor")

    a, b = side(calls()), side(changed(3, fingerprint=99))
    found = compare(a, replace(b, payload=lambda of: (damaged if of.record_id == 4 else b.payload)(of)))
    assert moments(found) == ["1.2", "1.2"] and told(found) == ("-", 0, [])
    assert found.difference is not None and found.difference.damage == "a payload does not fit its tensor"


def test_synthesized_answers_are_not_compared() -> None:
    made = [replace(each, synthesized=True) for each in calls()]
    assert compare(side(calls()), side(made, received={2: 9.0})).received == 0
