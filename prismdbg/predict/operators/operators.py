"""The work of each operator by the columns of its CSV file. The operators are those of arXiv 2509.22832.

Columns: `mp` tensor parallel size, `b` samples of a microbatch, `l` tokens of a sample, `h` attention heads of the
whole layer, `dim` hidden size; optimizers have `encoders` layers. The rest is that of the measured model, as the
columns do not have it: an inner size of 4 dim, and a vocabulary of 50,257, padded to a multiple of 128 mp.

An operator that is not in the table is a collective (`shape` elements, `nodes`, `GPUsPerNode`), or one of a program
that was sampled (`m n k batch`, `l width heads`, or `items`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

import numpy as np

from prismdbg.errors import CapsuleError
from prismdbg.predict.operators.work import Floats, Work, lookup, matmul, memory_bound

Columns = Mapping[str, Floats]
LINEAR, VOCABULARY, PADDED_TO = "linear", 50_257, 128
ADD_WAYS, MASK_WAYS = 3, 0.5  # a mask of a byte
DROPOUT_WAYS = 2 + MASK_WAYS
ADAM_WAYS = 14  # of 2 bytes: reads weight, gradient and two moments, writes all but the gradient


def _tokens(at: Columns) -> Floats:
    return at["b"] * at["l"]


def _heads(at: Columns) -> Floats:
    return at["b"] * at["h"] / at["mp"]


def _vocabulary(at: Columns) -> Floats:
    """Of one rank: padded for all, then divided."""
    part = PADDED_TO * at["mp"]
    return np.ceil(VOCABULARY / part) * PADDED_TO


def _linear(n: Callable[[Columns], Floats], k: Callable[[Columns], Floats]) -> Callable[[Columns], Work]:
    return lambda at: matmul(LINEAR, m=_tokens(at), n=n(at), k=k(at))


def _scores(family: str) -> Callable[[Columns], Work]:
    """On the square of the attention, (b, h, l, l)."""
    return lambda at: memory_bound(family, {"l": at["l"], "heads": _heads(at)}, items=_heads(at) * at["l"] ** 2, ways=2)


def _attention(family: str) -> Callable[[Columns], Work]:
    """Causal: half of the square, twice."""

    return lambda at: _attention_of(family, {"l": at["l"], "width": at["dim"] / at["h"], "heads": _heads(at)})


def _attention_of(family: str, at: Columns) -> Work:
    width, heads, length = at["width"], at["heads"], at["l"]
    return Work(
        family=family,
        flops=2 * heads * length**2 * width,
        moved_bytes=8 * heads * length * width,
        sizes={"l": length, "width": width, "heads": heads},
    )


def _rows(family: str, ways: float, width: Callable[[Columns], Floats]) -> Callable[[Columns], Work]:
    """On a matrix of tokens by `width`."""
    return lambda at: memory_bound(
        family, {"tokens": _tokens(at), "width": width(at)}, items=_tokens(at) * width(at), ways=ways
    )


def _embedding(at: Columns) -> Work:
    return lookup(tokens=_tokens(at), width=at["dim"], mp=at["mp"], vocabulary=_vocabulary(at) * at["mp"])


def _rope(at: Columns) -> Work:
    width = at["dim"] / at["mp"]
    sizes = {"heads": at["h"] / at["mp"], "b": at["b"], "l": at["l"], "head": at["dim"] / at["h"]}
    return memory_bound("RoPE", sizes, items=_tokens(at) * width, ways=4)


def _optimizer(family: str, tables: int) -> Callable[[Columns], Work]:
    """Adam over the parameters of a stage, in 32 bits; `tables` embeddings are among them."""

    def work(at: Columns) -> Work:
        parameters = 12 * at["dim"] ** 2 * at["encoders"] / at["mp"] + tables * _vocabulary(at) * at["dim"]
        sizes = {"dim": at["dim"], "mp": at["mp"], "encoders": at["encoders"]}
        limits = {"vocabulary": _vocabulary(at) * at["mp"]} if tables else {}
        return replace(memory_bound(family, sizes, items=parameters, ways=ADAM_WAYS), limits=limits)

    return work


def _collective(at: Columns) -> Work:
    sizes = {"elements": at["shape"], "nodes": at["nodes"], "gpus": at["GPUsPerNode"]}
    return replace(memory_bound("collective", sizes, items=at["shape"], ways=1), has_tiles=False)


OPERATORS: Mapping[str, Callable[[Columns], Work]] = {
    "linear1": _linear(lambda at: 3 * at["dim"] / at["mp"], lambda at: at["dim"]),
    "linear2": _linear(lambda at: at["dim"], lambda at: at["dim"] / at["mp"]),
    "linear3": _linear(lambda at: 4 * at["dim"] / at["mp"], lambda at: at["dim"]),
    "linear4": _linear(lambda at: at["dim"], lambda at: 4 * at["dim"] / at["mp"]),
    "linear_final": _linear(_vocabulary, lambda at: at["dim"]),
    "baddbmm": lambda at: matmul("baddbmm", m=at["l"], n=at["l"], k=at["dim"] / at["h"], batch=_heads(at)),
    "bmm": lambda at: matmul("bmm", m=at["l"], n=at["dim"] / at["h"], k=at["l"], batch=_heads(at)),
    "fillmask": _scores("fillmask"),
    "softmax": _scores("softmax"),
    "ScaledUpperTriangMaskedSoftmax": _scores("ScaledUpperTriangMaskedSoftmax"),
    "flash_atten": _attention("flash_atten"),
    "RoPE": _rope,
    "embedding": _embedding,
    "layernorm": _rows("layernorm", 2, lambda at: at["dim"]),
    "RMSlayernorm": _rows("RMSlayernorm", 2, lambda at: at["dim"]),
    "res_add": _rows("res_add", ADD_WAYS, lambda at: at["dim"]),
    "gelu": _rows("gelu", 2, lambda at: 4 * at["dim"] / at["mp"]),
    "parallel_cross_entropy_128": _rows("parallel_cross_entropy_128", 4, _vocabulary),
    "firstStage_optimizer": _optimizer("firstStage_optimizer", 1),
    "middleStage_optimizer": _optimizer("middleStage_optimizer", 0),
    "lastStage_optimizer": _optimizer("lastStage_optimizer", 1),
}
_SAMPLED = ({"items", "tensors"}, {"m", "n", "k"})  # by a program, some under the same name
PLACES = frozenset({"nodes", "GPUsPerNode"})  # columns that only collectives have
_COLLECTIVE, _ATTENTION = {"shape", *PLACES}, {"l", "width", "heads"}


def is_known(operator: str, columns: Collection[str]) -> bool:
    """Whether its name or its columns say how much work it is."""
    return operator in OPERATORS or any(
        names <= set(columns) for names in (*_SAMPLED, _COLLECTIVE, _ATTENTION, {"items"})
    )


def work_of(operator: str, columns: Columns) -> Work:
    """CapsuleError where a column is missing that this operator needs."""
    try:
        is_of_model = operator in OPERATORS and not any(names <= set(columns) for names in _SAMPLED)
        return OPERATORS[operator](columns) if is_of_model else _sampled(operator, columns)
    except KeyError as error:
        raise CapsuleError(
            f"operator {operator}: column {error} is missing", hint=f"add it; there are: {', '.join(columns)}"
        ) from error


def _sampled(operator: str, at: Columns) -> Work:
    """Elements are of 4 bytes."""
    if set(at) >= _COLLECTIVE:
        return replace(_collective(at), family=operator)
    if {"m", "n", "k"} <= set(at):
        return matmul(operator, m=at["m"], n=at["n"], k=at["k"], batch=at.get("batch", 1), item_bytes=4)
    if set(at) >= _ATTENTION:
        return replace(_attention_of(operator, at), moved_bytes=16 * at["heads"] * at["l"] * at["width"])
    return memory_bound(operator, at, items=at["items"], ways=2, item_bytes=4)
