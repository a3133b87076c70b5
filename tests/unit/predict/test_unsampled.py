"""Times of operators that OPS has nothing of: at the median rate of those that it has."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from prismdbg.predict.fit.operator_times import OperatorTimes
from prismdbg.predict.operators.work import lookup, memory_bound
from prismdbg.predict.samples.samples import Phase, Samples

LENGTH = 1024.0


def one(value: float) -> np.ndarray:
    return np.array([value])


def rows(operator: str, bytes_per_ns: float, *, call_ns: float = 0, shapes: int = 1) -> Samples:
    """Of `operator`, on tokens by width."""
    sizes = np.linspace(LENGTH, LENGTH * shapes, shapes)
    ones = np.ones(shapes)
    named = Samples(
        operator=operator,
        columns={"b": ones, "l": sizes, "dim": LENGTH * ones, "mp": ones},
        times_ns={Phase.FORWARD: ones},
    )
    times = {Phase.FORWARD: call_ns + named.work.moved_bytes / bytes_per_ns, Phase.BACKWARD: 1e9 * ones}
    return Samples(operator=operator, columns=named.columns, times_ns=times)


def scores(operator: str, bytes_per_ns: float) -> Samples:
    return Samples(
        operator=operator,
        columns={"mp": one(1), "b": one(1), "h": one(1), "l": one(LENGTH), "dim": one(64)},
        times_ns={Phase.FORWARD: one(4 * LENGTH**2 / bytes_per_ns)},
    )


SAMPLES = {
    "layernorm": rows("layernorm", 1000),
    "gelu": rows("gelu", 1400),
    "RMSlayernorm": rows("RMSlayernorm", 300),
    "softmax": scores("softmax", 800),
    "fillmask": scores("fillmask", 700),
}
DROPPED = memory_bound("dropout", {"l": one(64), "heads": one(64)}, items=one(1e6), ways=2.5, backward_ways=2.5)


def test_an_unsampled_operator_takes_its_bytes_as_a_residual_addition_of_that_size() -> None:
    """Of which a call takes 2 µs, too."""
    times = OperatorTimes({"res_add": rows("res_add", 1700, call_ns=2000, shapes=8), **SAMPLES})
    for phase in (Phase.FORWARD, Phase.BACKWARD):
        assert times.time_ns(DROPPED, phase) == pytest.approx(2000 + 5e6 / 1700, rel=1e-2)
    assert "estimated by its bytes at the rate of res_add: OPS has no samples" in times.doubts.unsampled["dropout"]


def test_without_a_residual_addition_the_fastest_operator_of_which_all_passes_are_counted_says_the_rate() -> None:
    times = OperatorTimes(SAMPLES)
    assert times.time_ns(DROPPED, Phase.FORWARD) == pytest.approx(5e6 / 1400, rel=1e-3)
    assert "at the rate of gelu:" in times.doubts.unsampled["dropout"]


def test_an_unsampled_operator_takes_the_same_whatever_else_was_sampled() -> None:
    """These move more than their bytes, so that their rates are none of a machine."""
    fewer = {name: one for name, one in SAMPLES.items() if name not in ("softmax", "fillmask", "RMSlayernorm")}
    assert len({OperatorTimes(given).time_ns(DROPPED, Phase.FORWARD) for given in (SAMPLES, fewer)}) == 1


def test_where_nothing_else_was_sampled_the_median_rate_counts() -> None:
    given = {name: one for name, one in SAMPLES.items() if name not in ("layernorm", "gelu")}
    times = OperatorTimes(given)
    assert times.time_ns(DROPPED, Phase.FORWARD) == pytest.approx(5e6 / 700, rel=1e-3)
    assert "at the median rate of operators:" in times.doubts.unsampled["dropout"]


def test_two_shapes_that_differ_in_their_bytes_alone_have_times_of_their_own() -> None:
    """As with gradients of 2 bytes and of 4, which a sweep may compare."""
    times = OperatorTimes(SAMPLES)
    one_ns, other_ns = (
        times.of_another_job().time_ns(memory_bound("gradient_passes", {"dim": one(64)}, items=one(n), ways=1), phase)
        for n, phase in ((1e6, Phase.WHOLE), (2e6, Phase.WHOLE))
    )
    assert other_ns == pytest.approx(2 * one_ns, rel=1e-3)


@pytest.mark.parametrize("vocabularies", [(50_304, 256_000), (256_000, 50_304)])
@pytest.mark.parametrize("phase", [Phase.FORWARD, Phase.BACKWARD])
@pytest.mark.parametrize(
    "sampled", [{}, {"embedding": rows("embedding", 1000, shapes=8)}], ids=["unsampled", "sampled"]
)
def test_two_vocabularies_have_times_and_doubts_of_their_own(
    sampled: dict[str, Samples], phase: Phase, vocabularies: tuple[int, int]
) -> None:
    """A sweep asks for both in any order."""
    times = OperatorTimes({**SAMPLES, **sampled})
    for vocabulary in vocabularies:
        asked = lookup(tokens=one(LENGTH), width=one(LENGTH), mp=one(1), vocabulary=one(vocabulary))
        again, fresh = times.of_another_job(), OperatorTimes({**SAMPLES, **sampled})
        assert again.time_ns(asked, phase) == fresh.time_ns(asked, phase)
        assert again.doubts == fresh.doubts


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


def test_the_gpu_is_that_of_operators() -> None:
    """Collectives say nothing of theirs."""
    columns = {"shape": one(64), "nodes": one(1), "GPUsPerNode": one(2)}
    of_a100 = Samples(operator="allreduce", columns=columns, times_ns={Phase.WHOLE: one(5)}, gpu="A100")
    assert OperatorTimes({"allreduce": of_a100, **SAMPLES}).gpu == ""
    of_h200 = {name: replace(one, gpu="H200") for name, one in SAMPLES.items()}
    assert OperatorTimes({"allreduce": of_a100, **of_h200}).gpu == "H200"
