"""What one microbatch does in a layer, before the first and after the last: operators, and communication between them.

The parts are Megatron's: norm, linear to queries, keys and values, attention, linear, residual; norm, linear,
activation, linear, residual. With a tensor parallel size t the linears have 1/t of their outputs or inputs, and each
half of the layer ends in an all-reduce, or begins with an all-gather and ends in a reduce-scatter (sequence parallel).
Experts are those of Megatron-Core (MoEAlltoAllTokenDispatcher): each rank of tp sends its part of the sequence to the
experts' ranks, and what came there is gathered over tp. All experts get as many tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np

from prismdbg.predict.model.memory import WIDE_BYTES
from prismdbg.predict.model.model import Attention, Model
from prismdbg.predict.model.training import Training
from prismdbg.predict.operators.operators import ADAM_WAYS, ADD_WAYS, DROPOUT_WAYS, LINEAR, MASK_WAYS
from prismdbg.predict.operators.work import Floats, Work, lookup, matmul, memory_bound

SCORES = "ScaledUpperTriangMaskedSoftmax"


class Core(StrEnum):
    """Whether selective recomputation runs it again."""

    ATTENTION = "attention"
    REST = "rest"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Operator:
    """`count`: as often. Its `work` is of one shape."""

    work: Work
    core: Core = Core.REST
    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Half:
    """Attention or MLP: what is before the gathered region, in it, and after it. exchanged_bytes: what a rank gives and
    gets in each of two all-to-all of experts; 0 for a dense model. copies: of each token, in the gathered region."""

    name: str
    before: Sequence[Operator]
    inside: Sequence[Operator]
    after: Sequence[Operator]
    exchanged_bytes: int = 0
    copies: int = 1
    core: Sequence[Operator] = field(init=False)
    inside_but_first: Sequence[Operator] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "core", [each for each in self.inside if each.core is Core.ATTENTION])
        object.__setattr__(self, "inside_but_first", self.inside[1:])


def one(value: float) -> Floats:
    return np.array([float(value)])


def _dropped(items: Floats, sizes: Mapping[str, Floats]) -> Work:
    """Reads, writes, and keeps a mask of a byte."""
    return memory_bound("dropout", sizes, items=items, ways=DROPOUT_WAYS, backward_ways=DROPOUT_WAYS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    model: Model
    training: Training

    @property
    def tokens(self) -> int:
        return self.model.sequence * self.training.microbatch

    @property
    def hidden_bytes(self) -> int:
        """Of the activations between layers, of all tensor parallel ranks."""
        return self.training.value_bytes * self.tokens * self.model.hidden

    def halves(self) -> tuple[Half, Half]:
        return (self._attention(), self._mlp())

    def first(self) -> list[Operator]:
        """The embedding; its dropout is done where the sequence is divided."""
        m, t = self.model, self.training.tp
        table = lookup(tokens=one(self.tokens), width=one(m.hidden), mp=one(t), vocabulary=one(m.vocabulary))
        return [Operator(work=table), *self._dropout()]

    def last(self) -> list[Operator]:
        m, t = self.model, self.training.tp
        part = -(-m.vocabulary // t)
        return [
            self._rows(m.norm, m.hidden, 2),
            self._linear(part, m.hidden),
            self._rows("parallel_cross_entropy_128", part, 4, is_whole=True),
        ]

    def step(self, stage: int, parameters: float, updated: float) -> list[Operator]:
        """Adam over `updated` of the parameters of a stage: as if it had so many layers less. With weights of 16 bits,
        also what mixed precision takes (Micikevicius et al., arXiv 1710.03740, section 3)."""
        m, tr = self.model, self.training
        place = "first" if stage == 0 else "last" if stage == tr.pp - 1 else "middle"
        layers = m.layers / tr.pp * updated / parameters
        sizes = {"dim": one(m.hidden), "mp": one(tr.tp), "encoders": one(layers)}
        adam = memory_bound(f"{place}Stage_optimizer", sizes, items=one(updated), ways=ADAM_WAYS)
        if place != "middle":
            adam = replace(adam, limits={"vocabulary": one(m.vocabulary)})
        if tr.value_bytes >= WIDE_BYTES:
            return [Operator(work=adam)]
        return [Operator(work=adam), Operator(work=self._passes(sizes, parameters, updated))]

    def _passes(self, sizes: Mapping[str, Floats], parameters: float, updated: float) -> Work:
        """Gradients are read for their norm and set to zero, those of 16 bits are copied to 32; weights are copied to
        16 bits. A rank sets to zero what it keeps: with ZeRO 2 and 3, only its part."""
        gradient, value = self.training.gradient_bytes, self.training.value_bytes
        widened = gradient + WIDE_BYTES if gradient < WIDE_BYTES else 0
        kept = updated if self.training.zero >= 2 else parameters
        moved = updated * (gradient + widened + WIDE_BYTES + value) + kept * gradient
        return memory_bound("gradient_passes", sizes, items=one(moved), ways=1, item_bytes=1)

    def _attention(self) -> Half:
        m, t = self.model, self.training.tp
        rope = [self._rope()] if m.has_rope else []
        return Half(
            name="attention",
            before=[self._rows(m.norm, m.hidden, 2)],
            inside=[self._linear(m.qkv // t, m.hidden), *rope, *self._core(), self._linear(m.hidden, m.hidden // t)],
            after=self._residual(),
        )

    def _mlp(self) -> Half:
        m, tr = self.model, self.training
        before, after = [self._rows(m.norm, m.hidden, 2)], self._residual()
        if not m.experts:
            return Half(name="mlp", before=before, inside=self._expert(self.tokens), after=after)
        routed = self.tokens * m.experts_per_token
        own = m.experts // tr.ep
        inside = [Operator(work=each.work, count=own) for each in self._expert(max(routed // own, 1))]
        router = self._linear(m.experts, m.hidden, self.tokens // tr.norm_parts)
        return Half(
            name="mlp",
            before=[*before, router],
            inside=inside,
            after=after,
            exchanged_bytes=tr.value_bytes * routed * m.hidden // tr.norm_parts,
            copies=m.experts_per_token if tr.ep > 1 and tr.is_sequence_parallel else 1,
        )

    def _expert(self, tokens: int) -> list[Operator]:
        m, t = self.model, self.training.tp
        inner = m.ffn // t
        wide = inner * (2 if m.is_gated else 1)
        return [
            self._linear(wide, m.hidden, tokens),
            Operator(work=self._on_rows("gelu", tokens, inner, 3 if m.is_gated else 2)),
            self._linear(m.hidden, inner, tokens),
        ]

    def _core(self) -> list[Operator]:
        m, length = self.model, one(self.model.sequence)
        heads, width = one(self.training.microbatch * m.heads / self.training.tp), one(m.head)
        if m.attention is Attention.FLASH:
            work = Work(
                family="flash_atten",
                flops=2 * heads * length**2 * width,
                moved_bytes=8 * heads * length * width,
                sizes={"l": length, "width": width, "heads": heads},
            )
            return [Operator(work=work, core=Core.ATTENTION)]
        scores = memory_bound(SCORES, {"l": length, "heads": heads}, items=heads * length**2, ways=2)
        works = [
            matmul("baddbmm", m=length, n=length, k=width, batch=heads),
            scores,
            *([_dropped(heads * length**2, {"l": length, "heads": heads})] if m.has_dropout else []),
            matmul("bmm", m=length, n=width, k=length, batch=heads),
        ]
        return [Operator(work=work, core=Core.ATTENTION) for work in works]

    def _rope(self) -> Operator:
        m, tr = self.model, self.training
        sizes = {
            "heads": one(m.heads / tr.tp),
            "b": one(tr.microbatch),
            "l": one(m.sequence),
            "head": one(m.head),
        }
        return Operator(work=memory_bound("RoPE", sizes, items=one(self.tokens * m.hidden / tr.tp), ways=4))

    def _residual(self) -> list[Operator]:
        """With dropout one kernel forward, as Megatron fuses bias, dropout and addition: two tensors are read, one and
        the mask are written. Backward the mask is applied, and the gradients of both ways are added."""
        if not self.model.has_dropout:
            return [self._rows("res_add", self.model.hidden, ADD_WAYS)]
        tokens, width = self._divided
        sizes = {"tokens": tokens, "width": width}
        ways, backward_ways = ADD_WAYS + MASK_WAYS, ADD_WAYS + DROPOUT_WAYS
        return [
            Operator(
                work=memory_bound(
                    "bias_dropout_add", sizes, items=tokens * width, ways=ways, backward_ways=backward_ways
                )
            )
        ]

    def _dropout(self) -> list[Operator]:
        if not self.model.has_dropout:
            return []
        tokens, width = self._divided
        return [Operator(work=_dropped(tokens * width, {"tokens": tokens, "width": width}))]

    @property
    def _divided(self) -> tuple[Floats, Floats]:
        """Tokens and width of what a rank has outside of the linears."""
        return one(self.tokens // self.training.norm_parts), one(self.model.hidden)

    def _linear(self, n: int, k: int, tokens: int | None = None) -> Operator:
        return Operator(work=matmul(LINEAR, m=one(tokens or self.tokens), n=one(n), k=one(k)))

    def _rows(self, family: str, width: int, ways: float, *, is_whole: bool = False) -> Operator:
        parts = 1 if is_whole else self.training.norm_parts
        return Operator(work=self._on_rows(family, self.tokens // parts, width, ways))

    def _on_rows(self, family: str, tokens: int, width: int, ways: float) -> Work:
        sizes = {"tokens": one(tokens), "width": one(width)}
        return memory_bound(str(family), sizes, items=one(tokens * width), ways=ways)
