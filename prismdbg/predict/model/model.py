"""A transformer as sizes. `model_file` reads it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Norm(StrEnum):
    LAYER = "layernorm"
    RMS = "RMSlayernorm"


class Attention(StrEnum):
    FLASH = "flash"
    UNFUSED = "unfused"  # bmm, masked softmax, dropout, bmm


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """`heads` ask and `kv_heads` are asked. ffn: inner size of the MLP, `is_gated` with two inputs (SwiGLU).

    experts: 0 for a dense model; each token goes to `experts_per_token` of them. is_tied: one table of `vocabulary` by
    `hidden` is embedding and output.
    """

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocabulary: int
    sequence: int
    norm: Norm
    attention: Attention
    is_gated: bool
    has_rope: bool
    has_dropout: bool
    is_tied: bool
    experts: int = 0
    experts_per_token: int = 2

    @property
    def head(self) -> int:
        """The width of a head."""
        return self.hidden // self.heads

    @property
    def qkv(self) -> int:
        return self.hidden + 2 * self.kv_heads * self.head

    @property
    def attention_parameters(self) -> int:
        """Of a layer."""
        return self.hidden * self.qkv + self.hidden * self.hidden

    @property
    def mlp_parameters(self) -> int:
        """Of one MLP, or of one expert."""
        return self.hidden * self.ffn * (3 if self.is_gated else 2)

    @property
    def table_parameters(self) -> int:
        return self.vocabulary * self.hidden

    @property
    def parameters(self) -> int:
        mlps = self.mlp_parameters * max(self.experts, 1) + self.hidden * self.experts
        return self.layers * (self.attention_parameters + mlps) + self.table_parameters * (1 if self.is_tied else 2)
