"""megatron-core's optimizers. They are called in each iteration: also if a loss scaler skips it, and on a stage whose
parameters are all frozen, which has no optimizer of torch."""

from __future__ import annotations

from typing import Any

from prismdbg.rank.frameworks.step_calls import StepCall

_CLASSES = ("ChainedOptimizer", "MixedPrecisionOptimizer", "FP32Optimizer")


def install(module: Any) -> None:
    call = StepCall(method="step", optimizer=_torchs, has_scaler=_has_scaler, was_skipped=_was_skipped)
    for kind in (vars(module)[name] for name in _CLASSES if name in vars(module)):
        call.install(kind)


def _parts(optimizer: Any) -> Any:
    return getattr(optimizer, "chained_optimizers", ())


def _torchs(optimizer: Any) -> Any:
    if hasattr(optimizer, "chained_optimizers"):  # `optimizer` raises there if it has several
        return next(filter(None, map(_torchs, _parts(optimizer))), None)
    return optimizer.optimizer


def _has_scaler(optimizer: Any) -> bool:
    return getattr(optimizer, "grad_scaler", None) is not None or any(map(_has_scaler, _parts(optimizer)))


def _was_skipped(_: Any, result: Any) -> bool:
    """Of whether it was successful, the norm of the gradients, and how many are zero."""
    return not result[0]
