"""What a rank holds, in bytes. Activations are those of Korthikanti et al., arXiv 2205.05198, equations 1 to 6, for one
layer and one microbatch; masks of dropout have a byte.

The workspace is what autograd has beside that while an operator runs backward: the gradient of its output and that of
its input. An operator frees both before the next one but one, so the largest pair counts.
"""

from __future__ import annotations

from dataclasses import dataclass

from prismdbg.predict.model.model import Attention, Model
from prismdbg.predict.model.training import Recompute, Training

WIDE_BYTES = 4
MOMENTS_BYTES = 8  # Adam


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """Of a rank: outside of experts, and of experts."""

    dense: int = 0
    experts: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StageMemory:
    """Of a rank of stage `stage`. expert_parameters: of `parameters`, those of experts. layer_activation_bytes,
    recomputed_bytes: of a layer and a microbatch, kept until its backward pass, and again there while a layer is
    recomputed. workspace_bytes: in a backward pass."""

    stage: int
    parameters: int
    expert_parameters: int
    weight_bytes: int
    gradient_bytes: int
    optimizer_bytes: int
    layer_activation_bytes: int
    recomputed_bytes: int
    head_bytes: int
    workspace_bytes: int

    @property
    def fixed_bytes(self) -> int:
        return self.weight_bytes + self.gradient_bytes + self.optimizer_bytes


def stage_memory(model: Model, training: Training, stage: int) -> StageMemory:
    tr = training
    own = _parameters(model, tr, stage)
    optimizer = optimizer_bytes(tr) * divided(own, tr, tr.zero >= 1)
    gradients = tr.gradient_bytes * divided(own, tr, tr.zero >= 2)
    weights = tr.value_bytes * divided(own, tr, tr.zero >= 3)
    kept = layer_activation_bytes(model, tr, tr.recompute)
    whole = layer_activation_bytes(model, tr, Recompute.NONE)
    return StageMemory(
        stage=stage,
        parameters=own.dense + own.experts,
        expert_parameters=own.experts,
        weight_bytes=weights,
        gradient_bytes=gradients,
        optimizer_bytes=optimizer,
        layer_activation_bytes=kept,
        recomputed_bytes=max(whole - kept, 0),
        head_bytes=_head_bytes(model, tr) if stage == tr.pp - 1 else 0,
        workspace_bytes=_workspace_bytes(model, tr, is_last=stage == tr.pp - 1),
    )


def optimizer_bytes(training: Training) -> int:
    """Of a parameter. Weights in 16 bits have a copy in 32."""
    return MOMENTS_BYTES + (WIDE_BYTES if training.value_bytes < WIDE_BYTES else 0)


def layer_activation_bytes(model: Model, training: Training, recompute: Recompute) -> int:
    """Of a layer and a microbatch."""
    size, value = model.sequence * training.microbatch * model.hidden, training.value_bytes
    if recompute is Recompute.FULL:
        return value * size // training.norm_parts
    t, outside = training.tp, training.norm_parts
    dropped = 1 if model.has_dropout else 0
    qkv = model.qkv / model.hidden
    attention = value * qkv + value  # queries, keys, values; the input of the second linear
    inner = model.ffn / model.hidden * (value * (3 if model.is_gated else 2))
    mlp = inner * (model.experts_per_token if model.experts else 1)
    whole = 4 * value + 2 * dropped  # inputs of two norms and of two linears, masks of two dropouts
    if model.experts:
        whole += (2 * model.experts_per_token - 1) * value  # a token for each of its experts, and what each makes of it
    core = 0.0
    if recompute is Recompute.NONE and model.attention is Attention.UNFUSED:
        core = (2 * value + dropped) * model.heads * model.sequence / model.hidden  # scores, softmax, mask
    return round(size * (whole / outside + (attention + mlp + core) / t))


def layer_parameters(model: Model, training: Training) -> Parameters:
    attention = model.attention_parameters + (0 if model.experts else model.mlp_parameters)
    return Parameters(
        dense=attention // training.tp + model.hidden * model.experts,
        experts=model.mlp_parameters * model.experts // (training.tp * training.ep),
    )


def _parameters(model: Model, training: Training, stage: int) -> Parameters:
    layers, layer = model.layers // training.pp, layer_parameters(model, training)
    tables = (stage == 0) + (stage == training.pp - 1 and not (model.is_tied and training.pp == 1))
    return Parameters(
        dense=layers * layer.dense + tables * model.table_parameters // training.tp, experts=layers * layer.experts
    )


def divided(own: Parameters, training: Training, is_divided: bool) -> int:
    """How many of its parameters a rank has of what ZeRO divides. Experts are the same on the ranks of dp alone."""
    if not is_divided:
        return own.dense + own.experts
    return -(-own.dense // training.replicas) + -(-own.experts // (training.replicas // training.ep))


def _head_bytes(model: Model, training: Training) -> int:
    """The output layer's input and its 32-bit scores, while a microbatch is there."""
    tokens = model.sequence * training.microbatch
    return tokens * (training.value_bytes * model.hidden + WIDE_BYTES * model.vocabulary // training.tp)


def _workspace_bytes(model: Model, training: Training, *, is_last: bool) -> int:
    """The gradients of output and input, of the operator that has most: a linear that widens, the activation, the
    softmax of unfused attention, or the 32-bit scores of the vocabulary, which 16-bit ones become."""
    value, tp = training.value_bytes, training.tp
    tokens = model.sequence * training.microbatch
    routed = tokens * (model.experts_per_token if model.experts else 1)
    ways = 2 if model.is_gated else 1
    pairs = [
        value * tokens * (model.qkv // tp + model.hidden),
        value * routed * (ways * model.ffn // tp + model.hidden),
        value * routed * (ways + 1) * model.ffn // tp,
    ]
    if model.attention is Attention.UNFUSED:
        pairs.append(2 * value * training.microbatch * model.heads * model.sequence**2 // tp)
    if is_last:
        pairs.append((WIDE_BYTES + value) * tokens * model.vocabulary // tp)
    return max(pairs)
