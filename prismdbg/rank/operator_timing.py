"""Times operators alone: `python -m prismdbg.rank.operator_timing PLAN RESULT`, for `prismdbg sample`.

Calls are made again from their description, on tensors of random values, in turn until the time is over: the first
of the plan are the most wanted. A call that cannot be made again is reported with the reason.
"""

from __future__ import annotations

import importlib
import json
import math
import sys
import time
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

Given = tuple[list[Any], dict[str, Any]]  # arguments

_ROUNDS = 5  # of each call; their median counts
_LEAST_S = 2e-4  # a round repeats a short call for so long
_MOST_BYTES = 1 << 30
_COLD_BYTES = 64 << 20  # what the arguments of a call have together, copies included
_MOST_COPIES = 64
_FSDP = "torch.distributed.fsdp._fully_shard._fsdp_collectives"  # registers its operators
_NO_SUCH = "unknown"


class CannotMake(Exception):
    pass


def main(plan: Path, result: Path) -> None:
    wanted = json.loads(plan.read_text())
    torch.set_num_threads(int(wanted["threads"]))
    torch.manual_seed(0)
    end = time.monotonic() + float(wanted["budget_s"])
    rows = [_timed(call, end) for call in wanted["calls"]]
    result.write_text(json.dumps({"rows": rows, "torch": torch.__version__}))


def _timed(call: dict[str, Any], end: float) -> dict[str, Any]:
    """`ns`, or `left_out` with the reason."""
    if time.monotonic() > end:
        return {"left_out": "the time was over"}
    try:
        with torch.no_grad():
            return {"ns": _time_ns(call, end)}
    except CannotMake as error:
        return {"left_out": str(error)}
    except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError) as error:
        return {"left_out": f"{type(error).__name__}: {str(error).splitlines()[0][:120]}"}


def _time_ns(call: dict[str, Any], end: float) -> float:
    func = _operator(call["op"])
    args = [_made(arg) for arg in call["args"]]
    kwargs = {name: _made(value) for name, value in call["kwargs"].items() if not _is_usual(value)}
    calls = cycle(_copies((args, kwargs)))
    repeats, taken = 1, _once(func, calls, 1)
    if taken < _LEAST_S:
        repeats = max(1, math.ceil(_LEAST_S / max(taken, 1e-7)))
    rounds = []
    for _ in range(_ROUNDS):
        rounds.append(_once(func, calls, repeats) / repeats)
        if time.monotonic() > end:
            break
    return median(rounds) * 1e9


def _copies(given: Given) -> list[Given]:
    """As many as a cache does not hold: a program seldom finds an operator's tensors where it left them."""
    size_bytes = sum(each.nbytes for each in tree_leaves(given) if isinstance(each, torch.Tensor))
    count = min(_COLD_BYTES // max(size_bytes, 1), _MOST_COPIES)
    return [given, *(_copy(given) for _ in range(count - 1))]


def _copy(given: Given) -> Given:
    copied: Given = tree_map(lambda each: each.clone() if isinstance(each, torch.Tensor) else each, given)
    return copied


def _once(func: Any, calls: Iterator[Given], repeats: int) -> float:
    """Of one thread its own time: what other programs take from it does not count."""
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    began = clock()
    for args, kwargs in islice(calls, repeats):
        func(*args, **kwargs)
    return clock() - began


def _operator(name: str) -> Any:
    namespace, packet, overload = name.split(".")
    if namespace == "fsdp":
        importlib.import_module(_FSDP)
    elif namespace != "aten":
        raise CannotMake(f"{namespace} is not aten")
    return getattr(getattr(getattr(torch.ops, namespace), packet), overload)


def _is_usual(value: Any) -> bool:
    return isinstance(value, dict) and value.get(_NO_SUCH) == ""


def _made(value: Any) -> Any:
    if isinstance(value, list):
        return [_made(each) for each in value]
    if not isinstance(value, dict):
        return value
    if "tensor" in value:
        return _tensor(value)
    if "dtype" in value:
        return getattr(torch, value["dtype"].removeprefix("torch."))
    if _is_usual(value):
        return None
    raise CannotMake(f"an argument of type {value.get(_NO_SUCH)}")


def _tensor(value: dict[str, Any]) -> torch.Tensor:
    dtype = getattr(torch, value["dtype"].removeprefix("torch."))
    sizes, order = value["tensor"], value["order"]
    if math.prod(sizes) * 8 > _MOST_BYTES:
        raise CannotMake(f"a tensor of {sizes} is too large")
    laid_out = [sizes[at] for at in order]
    if dtype == torch.bool:
        made = torch.rand(laid_out) < 0.5
    elif dtype.is_floating_point or dtype.is_complex:
        made = torch.rand(laid_out, dtype=torch.float32).add_(0.1).to(dtype)
    else:
        made = torch.randint(0, max(int(value.get("high", 2)), 1), laid_out, dtype=dtype)
    return made.permute([order.index(at) for at in range(len(order))])


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
