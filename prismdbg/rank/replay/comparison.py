"""Is this call the recorded one? Structure first, then what the rank sends."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import FrameType

from prismdbg.model.collective import Collective, Identity, TensorMeta
from prismdbg.model.moment import Moment
from prismdbg.model.ops import OBJECT_CALLS, OPS
from prismdbg.model.sketch import Sketch, relative_difference
from prismdbg.protocol.wire import Message
from prismdbg.rank.c10d import fingerprint, sketches
from prismdbg.rank.c10d.call import Call, metas
from prismdbg.rank.c10d.sparse import dense_parts


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One thing that is not as recorded. `structural`: the call itself; else only the values it sends."""

    field: str
    expected: str
    actual: str
    structural: bool = True


@dataclass(slots=True)
class Tally:
    """What a replay has compared so far. within: whose fingerprint differs, but not their sketch by more than the
    tolerance; farthest: the largest difference of these. unsketched: whose fingerprint differs, and of which the
    recording has no sketch."""

    compared: int = 0
    fingerprints: int = 0
    within: int = 0
    unsketched: int = 0
    farthest: float = 0.0
    object_notes: int = 0
    synthesized: int = 0
    again: int = 0  # synthesized as they were when the rank was emulated
    served: set[int] = field(default_factory=set)


class Sent:
    """What a call sends, as a fingerprint: worked out once, before the answer overwrites it."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._known = False
        self._value: int | None = None

    @property
    def fingerprint(self) -> int | None:
        """None where nothing is sent."""
        if not self._known:
            self._known = True
            sent = self._call.sent
            self._value = fingerprint.of(dense_parts(sent)) if sent else None
        return self._value

    @property
    def sketch(self) -> Sketch | None:
        return sketches.of(dense_parts(self._call.sent))

    @property
    def holds_floats(self) -> bool:
        return any(tensor.is_floating_point() or tensor.is_complex() for tensor in self._call.sent)


@dataclass(slots=True, kw_only=True)
class Measure:
    """What counts as a difference. strict: pickled objects that differ, as a PID or a time does. tolerance: values that
    are further apart than this, relative to the recorded ones; 0: values that are not the same bits."""

    strict: bool = False
    tolerance: float = 0.0

    def take(self, message: Message) -> None:
        """What a client says of it; the rest stays."""
        self.strict = bool(message.get("strict", self.strict))
        self.tolerance = float(message.get("tolerance", self.tolerance))


def compare(call: Call, record: Collective, tally: Tally, measure: Measure, sent: Sent) -> list[Difference]:
    """All differences; what is none by `measure` is only counted."""
    differences = list(_structure(call, record))
    tally.compared += 1
    if differences and not measure.strict and _are_pickles(call, record, differences):
        tally.fingerprints += record.fingerprint is not None
        tally.object_notes += 1
        return []
    if differences or record.fingerprint is None:
        return differences
    tally.fingerprints += 1
    actual = sent.fingerprint or 0
    if actual == record.fingerprint:
        return []
    if not measure.strict and carries_object():
        tally.object_notes += 1
        return []
    bits = Difference(field="sent", expected=f"{record.fingerprint:016x}", actual=f"{actual:016x}", structural=False)
    if not measure.tolerance or not sent.holds_floats:
        return [bits]
    far = list(_by_tolerance(record.sketch, sent, tally, measure.tolerance))
    return [bits, *far] if far else []


def _by_tolerance(recorded: Sketch | None, sent: Sent, tally: Tally, tolerance: float) -> Iterator[Difference]:
    actual = sent.sketch if recorded is not None else None
    if recorded is None or actual is None:
        tally.unsketched += 1
        return
    apart = relative_difference(recorded, actual)
    if apart > tolerance:
        least = f"at most {tolerance:g}"
        yield Difference(field="tolerance", expected=least, actual=f"about {apart:.2g}", structural=False)
        return
    tally.within += 1
    tally.farthest = max(tally.farthest, apart)


def _structure(call: Call, record: Collective) -> list[Difference]:
    pairs = [
        ("op", OPS[record.op].label if record.op in OPS else record.op, call.spec.label),
        ("root", str(record.root), str(call.root)),
        ("tag", str(record.tag), str(call.tag)),
        ("reduce_op", record.reduce_op, call.reduce_op),
        ("inputs", _shapes(record.inputs), _shapes(metas(call.inputs))),
        ("outputs", _shapes(record.outputs), _shapes(metas(call.outputs))),
    ]
    return [Difference(field=name, expected=old, actual=new) for name, old, new in pairs if old != new]


def _shapes(tensors: tuple[TensorMeta, ...]) -> str:
    return ", ".join(str(t) for t in tensors)


def _are_pickles(call: Call, record: Collective, differences: list[Difference]) -> bool:
    """Whether only the lengths of pickles differ."""
    here, there = (metas(call.inputs), metas(call.outputs)), (record.inputs, record.outputs)
    is_rest_equal = all(difference.field in ("inputs", "outputs") for difference in differences)
    return is_rest_equal and carries_object() and list(map(_unsized, here)) == list(map(_unsized, there))


def _unsized(tensors: tuple[TensorMeta, ...]) -> list[str]:
    """Without the lengths of pickles: torch sends them as bytes in one dimension."""
    return [t.dtype if t.dtype == "uint8" and len(t.shape) == 1 else str(t) for t in tensors]


def carries_object() -> bool:
    """True inside one of torch's object collectives: pickles of the same object need not be the same bytes."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if code.co_name in OBJECT_CALLS and code.co_filename.endswith("distributed_c10d.py"):
            return True
        frame = frame.f_back
    return False


def describe_call(call: Call, record_id: int, moment: Moment, identity: Identity, title: str) -> dict[str, object]:
    """A call that is issued now, in the words of the log. `title`: of its group."""
    return {
        "record_id": record_id,
        "moment": str(moment),
        "profiling_name": call.spec.label,
        "op": call.spec.name,
        "process_group": call.group_name,
        "group_title": title,
        "identity": str(identity),
        "root": call.root if call.root >= 0 else None,
        "tag": call.tag if call.spec.is_p2p else None,
        "reduce_op": call.reduce_op or None,
        "is_async": call.is_async,
        "inputs": [str(m) for m in metas(call.inputs)],
        "outputs": [str(m) for m in metas(call.outputs)],
    }
