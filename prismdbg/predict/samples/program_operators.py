"""The operators of a model as PyTorch runs them on a CPU: what an OPS folder of `prismdbg sample` has times of.

Each of the model's operators becomes calls of `aten`, with the columns of their CSV files (`operator_call.py`). Linears
have a bias, the optimizer is AdamW for each tensor by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import ceil, sqrt

import numpy as np

from prismdbg.predict.operators.operators import ADAM_WAYS, DROPOUT_WAYS, LINEAR, work_of
from prismdbg.predict.operators.work import Work
from prismdbg.predict.samples.samples import Phase

Sizes = Mapping[str, float]
Call = tuple[str, Sizes]
MODEL_ITEM_BYTES = 2  # that the model's operators are counted with, whatever OPS has
_LAYER_TENSORS = (3.0, 1.0, 4.0, 4.0)  # of a layer, in squares of its width
_LAYER_VECTORS = 8  # biases and norms of a layer, of about its width
_UPDATE = {"mul_": 1, "lerp_.Scalar": 2, "addcmul_": 3, "sqrt": 1, "div": 1, "add_": 1, "addcdiv_": 3}
_TWICE = ("mul_",)


def calls_of(work: Work, phase: Phase) -> list[Work]:
    """Of one shape; nothing where it is not known what PyTorch calls for it."""
    sizes = {name: float(size[0]) for name, size in (*work.sizes.items(), *work.limits.items())}
    moved = float(work.moved_bytes[0]) / MODEL_ITEM_BYTES
    found = _calls(work.family, phase, sizes, moved)
    return [
        work_of(operator, {name: np.array([size]) for name, size in columns.items()}) for operator, columns in found
    ]


def is_of_program(operators: Mapping[str, object]) -> bool:
    """Whether these were sampled from a program, not as a model's operators."""
    return "mm" in operators or "addmm" in operators


def _calls(family: str, phase: Phase, at: Sizes, moved: float) -> list[Call]:
    if family in _ROWS:
        of_phase = _ROWS[family]
        return of_phase[phase is Phase.BACKWARD](at["tokens"], at["width"])
    if family.endswith("Stage_optimizer"):
        return list(_optimizer(moved / ADAM_WAYS, at))
    made = _OTHERS.get((family, phase))
    return made(at, moved) if made else []


def _elements(operator: str, items: float, width: float, tensors: int) -> Call:
    return operator, {"items": items, "width": width, "tensors": tensors}


def _product(operator: str, m: float, n: float, k: float, batch: float = 1) -> Call:
    return operator, {"m": m, "n": n, "k": k, "batch": batch}


def _linear(at: Sizes, _: float) -> list[Call]:
    return [_product("addmm", at["m"], at["n"], at["k"])]


def _linear_backward(at: Sizes, _: float) -> list[Call]:
    m, n, k = at["m"], at["n"], at["k"]
    return [_product("mm", m, k, n), _product("mm", n, k, m), _elements("sum.dim_IntList", m * n, n, 1)]


def _attention(at: Sizes, _: float) -> list[Call]:
    return [("_scaled_dot_product_flash_attention_for_cpu", dict(at))]


def _attention_backward(at: Sizes, _: float) -> list[Call]:
    return [("_scaled_dot_product_flash_attention_for_cpu_backward", dict(at))]


def _embedding(at: Sizes, _: float) -> list[Call]:
    return [_elements("embedding", at["vocabulary"] / at["mp"] * at["width"] + at["tokens"], at["width"], 2)]


def _embedding_backward(at: Sizes, _: float) -> list[Call]:
    return [_elements("embedding_dense_backward", at["tokens"] * (at["width"] + 1), at["width"], 2)]


def _dropout(_: Sizes, moved: float) -> list[Call]:
    items = moved / DROPOUT_WAYS
    width = sqrt(items)
    drawn = [_elements("bernoulli_.float", items, width, 1), _elements("div_.Scalar", items, width, 1)]
    return [*drawn, _elements("mul", 2 * items, width, 2)]


def _dropout_backward(_: Sizes, moved: float) -> list[Call]:
    items = moved / DROPOUT_WAYS
    return [_elements("mul", 2 * items, sqrt(items), 2)]


def _bias_dropout_add(at: Sizes, _: float) -> list[Call]:
    """PyTorch fuses nothing of it on a CPU."""
    items = at["tokens"] * at["width"]
    return [*_dropout(at, DROPOUT_WAYS * items), _elements("add", 2 * items, at["width"], 2)]


def _bias_dropout_add_backward(at: Sizes, _: float) -> list[Call]:
    items = at["tokens"] * at["width"]
    return [*_dropout_backward(at, DROPOUT_WAYS * items), _elements("add", 2 * items, at["width"], 2)]


def _optimizer(parameters: float, at: Sizes) -> Iterator[Call]:
    """Tensors of the usual sizes, and what is left, which are tables. ZeRO divides each tensor, so a part of a layer is
    as many calls as a layer."""
    for items, count in _updated(parameters, at["dim"], ceil(at["encoders"]), at):
        for operator, operands in _UPDATE.items():
            for _ in range(count * (2 if operator in _TWICE else 1)):
                yield _elements(operator, items * operands, min(at["dim"], items), operands)


def _updated(parameters: float, width: float, layers: int, at: Sizes) -> list[tuple[float, int]]:
    """Elements, and of how many tensors."""
    a_layer = sum(_LAYER_TENSORS) * width**2 / at["mp"]
    own = min(at["encoders"] * a_layer, parameters) / (layers * a_layer)
    tensors = [(own * part * width**2 / at["mp"], layers) for part in _LAYER_TENSORS]
    if (rest := parameters - own * layers * a_layer) > width:
        tensors.append((rest, 1))
    return [*tensors, (width * at["encoders"] / layers, layers * _LAYER_VECTORS)]


_Rows = Callable[[float, float], list[Call]]
_ROWS: Mapping[str, tuple[_Rows, _Rows]] = {
    "layernorm": (
        lambda t, w: [_elements("native_layer_norm", t * w + 2 * w, w, 3)],
        lambda t, w: [_elements("native_layer_norm_backward", 2 * t * w + 2 * t + 2 * w, w, 6)],
    ),
    "gelu": (
        lambda t, w: [_elements("gelu", t * w, w, 1)],
        lambda t, w: [_elements("gelu_backward", 2 * t * w, w, 2)],
    ),
    "res_add": (
        lambda t, w: [_elements("add", 2 * t * w, w, 2)],
        lambda t, w: [_elements("add", 2 * t * w, w, 2)],
    ),
    "parallel_cross_entropy_128": (
        lambda t, w: [_elements("_log_softmax", t * w, w, 1), _elements("nll_loss_forward", t * w + t, w, 2)],
        lambda t, w: [
            _elements("nll_loss_backward", t * w + t + 2, w, 4),
            _elements("_log_softmax_backward_data", 2 * t * w, w, 2),
        ],
    ),
}
_OTHERS: Mapping[tuple[str, Phase], Callable[[Sizes, float], list[Call]]] = {
    (LINEAR, Phase.FORWARD): _linear,
    (LINEAR, Phase.BACKWARD): _linear_backward,
    ("flash_atten", Phase.FORWARD): _attention,
    ("flash_atten", Phase.BACKWARD): _attention_backward,
    ("embedding", Phase.FORWARD): _embedding,
    ("embedding", Phase.BACKWARD): _embedding_backward,
    ("dropout", Phase.FORWARD): _dropout,
    ("dropout", Phase.BACKWARD): _dropout_backward,
    ("bias_dropout_add", Phase.FORWARD): _bias_dropout_add,
    ("bias_dropout_add", Phase.BACKWARD): _bias_dropout_add_backward,
}
