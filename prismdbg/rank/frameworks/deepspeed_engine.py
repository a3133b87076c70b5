"""DeepSpeed's engine, also that of a pipeline. It counts a step that its loss scaler skips, and ZeRO calls torch's
optimizer for each group of parameters."""

from __future__ import annotations

from typing import Any

from prismdbg.rank.frameworks.step_calls import StepCall


def install(module: Any) -> None:
    StepCall(
        method="_take_model_step",
        optimizer=lambda engine: engine.basic_optimizer,
        has_scaler=lambda engine: engine.fp16_enabled(),
        was_skipped=lambda engine, _: engine.optimizer.overflow,
    ).install(module.DeepSpeedEngine)
