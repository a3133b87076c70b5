"""Element types by torch's `c10::ScalarType` number, and their sizes, without torch."""

from __future__ import annotations

# c10/core/ScalarType.h (torch 2.13), in its order.
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
    12: ("qint8", 1),
    13: ("quint8", 1),
    14: ("qint32", 4),
    15: ("bfloat16", 2),
    16: ("quint4x2", 1),
    17: ("quint2x4", 1),
    18: ("bits1x8", 1),
    19: ("bits2x4", 1),
    20: ("bits4x2", 1),
    21: ("bits8", 1),
    22: ("bits16", 2),
    23: ("float8_e5m2", 1),
    24: ("float8_e4m3fn", 1),
    25: ("float8_e5m2fnuz", 1),
    26: ("float8_e4m3fnuz", 1),
    27: ("uint16", 2),
    28: ("uint32", 4),
    29: ("uint64", 8),
    **{29 + bits: (f"uint{bits}", 1) for bits in range(1, 8)},
    **{36 + bits: (f"int{bits}", 1) for bits in range(1, 8)},
    44: ("float8_e8m0fnu", 1),
    45: ("float4_e2m1fn_x2", 1),
}
UNKNOWN = 255  # of an element type that this table does not know
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
