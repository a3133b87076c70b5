"""The bench's split: a shape is either fitted or asked for, whichever operator has it."""

from __future__ import annotations

from itertools import product

import numpy as np

from prismdbg.predict.samples.samples import Phase, Samples
from tests.bench.held_out import errors, errors_beyond, is_held_out


def linear(operator: str) -> Samples:
    rows = np.array(list(product((1.0, 2.0, 4.0), (64.0, 128.0, 256.0), (256.0, 512.0, 1024.0))))
    columns = dict(zip(("b", "l", "dim"), rows.T, strict=True)) | {"mp": np.ones(len(rows))}
    return Samples(operator=operator, columns=columns, times_ns={Phase.FORWARD: 1e3 * rows.prod(axis=1)})


def test_no_shape_is_fitted_and_asked() -> None:
    """b and l are one size of a linear: rows that differ in them alone are one shape."""
    found: dict[str, set[bool]] = {}
    for samples in (linear("linear3"), linear("linear4")):
        work = samples.work
        for number, out in enumerate(is_held_out(work)):
            found.setdefault(work.shape(number), set()).add(bool(out))
    assert all(len(sides) == 1 for sides in found.values())
    shares = [sides == {True} for sides in found.values()]
    assert 0 < sum(shares) < len(shares) / 2


def test_only_held_out_shapes_have_errors() -> None:
    samples = linear("linear3")
    (found,) = errors([samples])
    assert len(found.signed) == int(is_held_out(samples.work).sum())


def test_beyond_the_samples_wide_shapes_are_asked_of_narrow_ones() -> None:
    rows = np.array(list(product((1.0, 2.0, 4.0), (64.0, 128.0), (1024.0, 2048.0, 4096.0, 8192.0))))
    columns = dict(zip(("b", "l", "dim"), rows.T, strict=True))
    times = {Phase.FORWARD: 1e-3 * rows.prod(axis=1)}
    norms = Samples(operator="layernorm", columns=columns, times_ns=times)
    (found,) = errors_beyond([norms])
    assert set(found.columns["dim"]) == {8192.0}
    assert max(found.absolute) < 5, "bytes alone count"
