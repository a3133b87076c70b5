"""How much work an operator is: arithmetic, bytes moved, and the sizes that decide how well a machine does it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Work:
    """Of n shapes of one operator. Every array has shape (n,).

    flops: floating-point operations of the forward pass. moved_bytes: what it must read and write at least.
    backward_bytes: the same of the backward pass, None where it is not known. sizes: by name, what a regressor sees of
    the shape. limits: what else must be as it was sampled; all samples have about the same, so nothing is fitted to it.
    has_tiles: whether a kernel cuts the sizes into tiles, so that it matters how round they are.
    """

    family: str
    flops: Floats
    moved_bytes: Floats
    sizes: Mapping[str, Floats]
    has_tiles: bool = True
    backward_bytes: Floats | None = None
    limits: Mapping[str, Floats] = field(default_factory=dict)

    def backward(self) -> Work:
        """With the bytes of the backward pass as its own, where they are known."""
        return self if self.backward_bytes is None else replace(self, moved_bytes=self.backward_bytes)

    def __len__(self) -> int:
        return len(self.flops)

    def shape(self, number: int) -> str:
        """`linear k=4096 m=2048 n=12288`."""
        return " ".join([self.family, *(f"{name}={size[number]:g}" for name, size in sorted(self.sizes.items()))])

    def identity(self, number: int) -> tuple[object, ...]:
        """Equal for shapes that differ in nothing on which a time or a doubt depends."""
        named = sorted({**self.sizes, **self.limits, "moved": self.moved_bytes, "flops": self.flops}.items())
        backward = None if self.backward_bytes is None else float(self.backward_bytes[number])
        return self.family, backward, *((name, float(values[number])) for name, values in named)


def matmul(family: str, *, m: Floats, n: Floats, k: Floats, batch: Floats | float = 1, item_bytes: int = 2) -> Work:
    """`batch` products of (m, k) with (k, n): 2 m n k operations each."""
    many = m * 0 + batch
    sizes = {"m": m, "n": n, "k": k} | ({} if isinstance(batch, int | float) else {"batch": many})
    return Work(
        family=family,
        flops=2 * many * m * n * k,
        moved_bytes=item_bytes * many * (m * n + m * k + n * k),
        sizes=sizes,
    )


def memory_bound(
    family: str,
    sizes: Mapping[str, Floats],
    *,
    items: Floats,
    ways: float,
    item_bytes: int = 2,
    backward_ways: float | None = None,
) -> Work:
    """Reads and writes `items` elements, together `ways` times; its arithmetic does not count."""
    return Work(
        family=family,
        flops=0 * items,
        moved_bytes=ways * item_bytes * items,
        sizes=sizes,
        backward_bytes=None if backward_ways is None else backward_ways * item_bytes * items,
    )


def lookup(*, tokens: Floats, width: Floats, mp: Floats, vocabulary: Floats) -> Work:
    """In one of `mp` parts of a table: reads and writes a row for each token. The gradient is that of all its rows."""
    rows = tokens * width
    return Work(
        family="embedding",
        flops=0 * rows,
        moved_bytes=4 * rows,
        sizes={"tokens": tokens, "width": width, "mp": mp},
        backward_bytes=4 * rows + 2 * vocabulary * width / mp,
        limits={"vocabulary": vocabulary},
    )
