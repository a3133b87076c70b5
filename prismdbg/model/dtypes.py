"""Element types by torch's `c10::ScalarType` number, and their sizes, without torch."""

from __future__ import annotations

# c10/core/ScalarType.h, in its order; quantized and bit types travel as bytes of the size given.
_NAMES: dict[int, tuple[str, int]] = {
    0: ("uint8", 1),
    1: ("int8", 1),
    2: ("int16", 2),
    3: ("int32", 4),
    4: ("int64", 8),
    5: ("float16", 2),
    6: ("float32", 4),
    7: ("float64", 8),
    8: ("complex32", 4),
    9: ("complex64", 8),
    10: ("complex128", 16),
    11: ("bool", 1),
    15: ("bfloat16", 2),
    23: ("float8_e5m2", 1),
    24: ("float8_e4m3fn", 1),
    25: ("float8_e5m2fnuz", 1),
    26: ("float8_e4m3fnuz", 1),
    27: ("uint16", 2),
    28: ("uint32", 4),
    29: ("uint64", 8),
}
NUMBERS: dict[str, int] = {name: number for number, (name, _) in _NAMES.items()}
ITEM_BYTES: dict[str, int] = dict(_NAMES.values())
REDUCE_OPS = (
    "SUM",
    "AVG",
    "PRODUCT",
    "MIN",
    "MAX",
    "BAND",
    "BOR",
    "BXOR",
    "PREMUL_SUM",
)  # c10d ReduceOp::RedOpType


def name_of(number: int) -> str:
    """`scalar7` style for a number this table does not know: a reader never fails on a newer torch."""
    return _NAMES[number][0] if number in _NAMES else f"scalar{number}"
