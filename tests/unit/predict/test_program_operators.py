"""Operators of a model as what PyTorch calls for them."""

from __future__ import annotations

from math import ceil

import numpy as np
import pytest

from prismdbg.predict.fit.operator_times import OperatorTimes
from prismdbg.predict.operators.operators import ADAM_WAYS, LINEAR
from prismdbg.predict.operators.work import matmul, memory_bound
from prismdbg.predict.samples.program_operators import calls_of
from prismdbg.predict.samples.samples import Phase, Samples


def one(value: float) -> np.ndarray:
    return np.array([float(value)])


def products(operator: str, flops_per_ns: float) -> Samples:
    sizes = np.array([[m, n, k] for m in (64, 128, 256) for n in (64, 256) for k in (64, 256)], dtype=float)
    columns = {"m": sizes[:, 0], "n": sizes[:, 1], "k": sizes[:, 2], "batch": np.ones(len(sizes))}
    return Samples(operator=operator, columns=columns, times_ns={Phase.WHOLE: 2 * sizes.prod(axis=1) / flops_per_ns})


LINEAR_WORK = matmul(LINEAR, m=one(128), n=one(256), k=one(64))


def test_a_linear_is_one_product_forward_and_two_backward() -> None:
    (forward,) = calls_of(LINEAR_WORK, Phase.FORWARD)
    assert forward.family == "addmm" and forward.flops[0] == LINEAR_WORK.flops[0]
    inputs, weights, bias = calls_of(LINEAR_WORK, Phase.BACKWARD)
    assert [each.shape(0) for each in (inputs, weights)] == [
        "mm batch=1 k=256 m=128 n=64",
        "mm batch=1 k=128 m=256 n=64",
    ]
    assert bias.family == "sum.dim_IntList" and bias.sizes["items"][0] == 128 * 256


@pytest.mark.parametrize(
    ("mp", "layers", "a_layer"),
    [(1, 2, 12), (2, 2, 12), (2, 0.5, 12), (1, 1.5, 12), (1, 2, 10)],
    ids=["whole", "tensor-parallel", "half-a-layer", "a-layer-and-a-half", "smaller-layers"],
)
def test_an_optimizer_updates_all_parameters_of_its_layers(mp: int, layers: float, a_layer: int) -> None:
    """With ZeRO a rank updates a part of each tensor. a_layer: parameters, in squares of the width."""
    items = layers * a_layer * 64**2 / mp
    sizes = {"dim": one(64), "mp": one(mp), "encoders": one(layers)}
    calls = calls_of(memory_bound("middleStage_optimizer", sizes, items=one(items), ways=ADAM_WAYS), Phase.WHOLE)
    roots = [each.sizes["items"][0] for each in calls if each.family == "sqrt"]
    assert sum(roots) == pytest.approx(items + layers * 8 * 64), "and biases and norms"
    assert len(roots) == ceil(layers) * (4 + 8)


def test_a_first_stages_optimizer_updates_its_table() -> None:
    items = 2 * 12 * 64**2 + 256 * 64
    sizes = {"dim": one(64), "mp": one(1), "encoders": one(2)}
    calls = calls_of(memory_bound("firstStage_optimizer", sizes, items=one(items), ways=ADAM_WAYS), Phase.WHOLE)
    assert 256 * 64 in [each.sizes["items"][0] for each in calls if each.family == "sqrt"]


def test_times_of_a_programs_samples_add_up_and_what_it_did_not_call_is_named() -> None:
    times = OperatorTimes({"addmm": products("addmm", 10), "mm": products("mm", 20)})
    expected = LINEAR_WORK.flops[0] / 10
    assert abs(times.time_ns(LINEAR_WORK, Phase.FORWARD) / expected - 1) < 0.25
    assert times.is_sampled(LINEAR_WORK, Phase.FORWARD)
    assert not times.is_sampled(LINEAR_WORK, Phase.BACKWARD), "the bias was never summed"
