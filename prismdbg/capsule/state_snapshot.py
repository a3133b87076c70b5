"""What a state snapshot says about itself: a typed value, its JSON, and the strict way back. The names of its files."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prismdbg.capsule import checked_json, safetensors
from prismdbg.capsule.checked_json import Fields
from prismdbg.capsule.limits import MAX_JSON_BYTES
from prismdbg.errors import CapsuleError, UsageError
from prismdbg.model.moment import Moment
from prismdbg.model.sizes import size

DESCRIPTION = "state.json"
TENSORS = "tensors.safetensors"
PROLOGUE = "prologue"  # a log with what the rank issued and received before its restore point
FORMAT = 1

Sequence = tuple[str, str, int, int, int]  # group, op (point-to-point only), peer, tag; the number that comes next
Packed = Any  # a value as `rank.recording.plain_state` packs it


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSnapshot:
    """Registered training state at a step boundary.

    moment: the last collective before it. past_records: how many collectives the rank had issued; prologue_records: how
    many of them before its restore point. by_hand: steps are marked by `prismdbg.step`. objects: what was registered,
    by name; null for a loader that had not begun. random: the generators at the boundary; random_at_forward: at the
    first forward pass after it, null where there is none. buckets: of each DDP module its parameters in the order of
    its buckets.
    """

    moment: Moment
    past_records: int
    prologue_records: int
    by_hand: bool
    sequences: tuple[Sequence, ...]
    objects: dict[str, Packed]
    random: Packed
    random_at_forward: Packed
    buckets: tuple[tuple[tuple[int, ...], ...], ...]

    @property
    def step(self) -> int:
        return self.moment.step

    def to_bytes(self) -> bytes:
        """`UsageError` if `read` would refuse it for its size."""
        described = {
            "format": FORMAT,
            "moment": str(self.moment),
            "past_records": self.past_records,
            "prologue_records": self.prologue_records,
            "by_hand": self.by_hand,
            "sequences": self.sequences,
            "objects": self.objects,
            "random": self.random,
            "random_at_forward": self.random_at_forward,
            "buckets": self.buckets,
        }
        data = json.dumps(described, separators=(",", ":"), allow_nan=False).encode()
        if len(data) > MAX_JSON_BYTES:
            raise UsageError(
                f"the plain values of the registered objects take {size(len(data))}, more than {size(MAX_JSON_BYTES)}: "
                "use tensors or arrays in state_dict"
            )
        return data

    @classmethod
    def read(cls, folder: Path) -> StateSnapshot:
        """`CapsuleError` for whatever is not exactly a description that this program can read."""
        fields = checked_json.read(folder / DESCRIPTION)
        if (version := fields.integer("format", least=1)) > FORMAT:
            fields.fail("format", f"is {version}; this version reads {FORMAT}")
        snapshot = cls(
            moment=fields.moment("moment"),
            past_records=fields.integer("past_records"),
            prologue_records=fields.integer("prologue_records"),
            by_hand=fields.boolean("by_hand"),
            sequences=tuple(_sequence(fields, entry) for entry in fields.checked("sequences", list[Any])),
            objects=dict(fields.fields("objects").value),
            random=fields.value.get("random"),
            random_at_forward=fields.value.get("random_at_forward"),
            buckets=tuple(_buckets(fields, one) for one in fields.checked("buckets", list[Any])),
        )
        if snapshot.prologue_records > snapshot.past_records:
            fields.fail("prologue_records", f"is {snapshot.prologue_records}, more than past_records")
        return snapshot


def require_whole(folder: Path) -> StateSnapshot:
    """The snapshot in a folder whose files are as they must be. `CapsuleError` names what is not."""
    snapshot = StateSnapshot.read(folder)
    try:
        safetensors.read_header(folder / TENSORS)
    except OSError as error:
        raise CapsuleError(
            f"{folder / TENSORS} cannot be read: {error.strerror}",
            hint="fetch the capsule again, or run prismdbg as the owner of the file",
        ) from error
    return snapshot


def _sequence(fields: Fields, entry: Any) -> Sequence:
    if not isinstance(entry, list) or [type(value) for value in entry] != [str, str, int, int, int]:
        fields.fail("sequences", "must contain only (group, op, peer, tag, number)")
    group, op, peer, tag, following = entry
    return group, op, peer, tag, following


def _buckets(fields: Fields, module: Any) -> tuple[tuple[int, ...], ...]:
    if not isinstance(module, list) or not all(isinstance(bucket, list) for bucket in module):
        fields.fail("buckets", "must contain lists of lists")
    if any(type(index) is not int or index < 0 for bucket in module for index in bucket):
        fields.fail("buckets", "must contain only whole numbers")
    return tuple(tuple(bucket) for bucket in module)
