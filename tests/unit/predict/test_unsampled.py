"""Times of operators that OPS has nothing of: at the median rate of those that it has."""

from __future__ import annotations

import numpy as np
import pytest

from prismdbg.predict.fit.operator_times import OperatorTimes
from prismdbg.predict.operators.work import memory_bound
from prismdbg.predict.samples.samples import Phase, Samples

LENGTH = 1024.0


def one(value: float) -> np.ndarray:
    return np.array([value])


def rows(operator: str, bytes_per_ns: float) -> Samples:
    """One shape of `operator`, on tokens by width."""
    named = Samples(
        operator=operator,
        columns={"b": one(1), "l": one(LENGTH), "dim": one(LENGTH), "mp": one(1)},
        times_ns={Phase.FORWARD: one(1), Phase.BACKWARD: one(1e9)},
    )
    times = {Phase.FORWARD: named.work.moved_bytes / bytes_per_ns, Phase.BACKWARD: one(1e9)}
    return Samples(operator=operator, columns=named.columns, times_ns=times)


def scores(bytes_per_ns: float) -> Samples:
    return Samples(
        operator="softmax",
        columns={"mp": one(1), "b": one(1), "h": one(1), "l": one(LENGTH)},
        times_ns={Phase.FORWARD: one(4 * LENGTH**2 / bytes_per_ns)},
    )


SAMPLES = {
    "layernorm": rows("layernorm", 1000),
    "res_add": rows("res_add", 1700),
    "gelu": rows("gelu", 1400),
    "softmax": scores(800),
}


@pytest.mark.parametrize(
    ("sizes", "bytes_per_ns"), [(("tokens", "width"), 1400), (("l", "heads"), 800), (("items",), 1200)]
)
def test_an_unsampled_operator_has_the_median_rate_on_such_tensors(sizes: tuple[str, ...], bytes_per_ns: float) -> None:
    """Backward passes of the samples do not count; on tensors that nothing was sampled on, all operators do."""
    work = memory_bound("dropout", {name: one(64) for name in sizes}, items=one(1e6), ways=2.5)
    times = OperatorTimes(SAMPLES)
    for phase in (Phase.FORWARD, Phase.BACKWARD):
        assert times.time_ns(work, phase) == pytest.approx(5e6 / bytes_per_ns, rel=1e-3)
    assert "at the median rate" in times.doubts.unsampled["dropout"]


def test_another_operator_takes_twice_as_long_backward() -> None:
    work = memory_bound("RoPE", {"tokens": one(64), "width": one(64)}, items=one(1e6), ways=4)
    forward, backward = (OperatorTimes(SAMPLES).time_ns(work, phase) for phase in (Phase.FORWARD, Phase.BACKWARD))
    assert backward == pytest.approx(2 * forward, rel=1e-3)


def test_values_of_a_programs_samples_have_32_bits_also_where_an_operator_was_not_sampled() -> None:
    """The model counts bytes of 16-bit values, the samples' rate is of 32-bit ones."""
    items = np.array([1e4, 1e5, 1e6, 1e7])
    columns = {"items": items, "width": items / 100, "tensors": items * 0 + 1}
    times = OperatorTimes(
        {
            "mm": Samples(operator="mm", columns={name: one(64) for name in "mnk"}, times_ns={Phase.WHOLE: one(1)}),
            "add": Samples(operator="add", columns=columns, times_ns={Phase.WHOLE: 4 * 2 * items / 100}),
        }
    )
    rotated = memory_bound("RoPE", {"tokens": one(64), "width": one(64)}, items=one(1e6), ways=4)
    assert times.time_ns(rotated, Phase.FORWARD) == pytest.approx(4 * 4 * 1e6 / 100, rel=1e-3)
    added = memory_bound("gelu", {"tokens": one(1e3), "width": one(1e3)}, items=one(1e6), ways=2)
    assert times.time_ns(added, Phase.FORWARD) == pytest.approx(4 * 2 * 1e6 / 100, rel=1e-3), "translated"
