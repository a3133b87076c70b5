"""The closed table of functions: what may be called and with how many arguments. The rank brings the bodies."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Signature:
    """`most` is None where any number of arguments is taken."""

    least: int
    most: int | None
    meaning: str


_ONE = {
    "nan": "whether any element is NaN",
    "inf": "whether any element is infinite",
    "finite": "whether every element is finite",
    "abs": "magnitude, element by element",
    "mean": "mean of all elements",
    "std": "standard deviation of all elements (population)",
    "sum": "sum of all elements",
    "norm": "Euclidean norm over all elements",
    "shape": "sizes of a tensor",
    "dtype": "element type of a tensor, as text",
    "len": "number of items",
    "numel": "number of elements, over all tensors of a list",
    "any": "whether any element is true",
    "all": "whether every element is true",
    "first_nan": "index of the first NaN, or None",
}

SIGNATURES: dict[str, Signature] = {
    **{name: Signature(1, 1, meaning) for name, meaning in _ONE.items()},
    "max": Signature(1, None, "largest element, or largest of the arguments"),
    "min": Signature(1, None, "smallest element, or smallest of the arguments"),
}
