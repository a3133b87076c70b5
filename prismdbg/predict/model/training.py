"""How a model is trained: microbatches, recomputation, and what its ranks share."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from prismdbg.errors import UsageError
from prismdbg.predict.model.model import Model
from prismdbg.simulate.graph.mesh import Mesh

TP, PP, DP, EP = "tp", "pp", "dp", "ep"
AXES = (PP, DP, EP, TP)


class Recompute(StrEnum):
    NONE = "none"
    SELECTIVE = "selective"  # the core of the attention
    FULL = "full"  # each layer from its input


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """`batch`: samples of an iteration, of all ranks. interleave: chunks of layers of a stage.

    zero: what is divided among data-parallel ranks: 1 optimizer states, 2 gradients, 3 weights, too. gradient_bytes: of
    one gradient, as it is kept and as it is sent. value_bytes: of one weight and one activation.
    """

    mesh: Mesh
    batch: int
    microbatch: int = 1
    recompute: Recompute = Recompute.NONE
    is_sequence_parallel: bool = False
    interleave: int = 1
    zero: int = 0
    gradient_bytes: int = 4
    value_bytes: int = 2
    sizes: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        for name in self.mesh.names:
            if name not in AXES:
                raise UsageError(f"a prediction has no axis {name!r}", hint="use pp, dp, ep and tp")
        named = dict(zip(self.mesh.names, self.mesh.sizes, strict=True))
        object.__setattr__(self, "sizes", {axis: named.get(axis, 1) for axis in AXES})

    @property
    def tp(self) -> int:
        return self.sizes[TP]

    @property
    def pp(self) -> int:
        return self.sizes[PP]

    @property
    def ep(self) -> int:
        return self.sizes[EP]

    @property
    def replicas(self) -> int:
        """How many ranks have the same weights outside of experts and other samples."""
        return self.sizes[DP] * self.ep

    @property
    def microbatches(self) -> int:
        return self.batch // (self.replicas * self.microbatch)

    @property
    def norm_parts(self) -> int:
        """Among how many ranks the sequence is divided outside of the linears."""
        return self.tp if self.is_sequence_parallel else 1

    def check(self, model: Model) -> None:
        """UsageError, by name, where this model cannot be trained so."""
        whole = {
            f"a batch of {self.batch}": (self.batch, self.replicas * self.microbatch, "samples of one microbatch each"),
            f"{model.layers} layers": (model.layers, self.pp * self.interleave, "chunks of stages"),
            f"{model.heads} heads": (model.heads, self.tp, "ranks of tp"),
            f"{model.kv_heads} heads of keys and values": (model.kv_heads, self.tp, "ranks of tp"),
            f"an inner size of {model.ffn}": (model.ffn, self.tp, "ranks of tp"),
            f"a sequence of {model.sequence}": (model.sequence, self.norm_parts, "ranks of tp"),
            f"{model.experts or 1} experts": (model.experts or self.ep, self.ep, "ranks of ep"),
        }
        for what, (size, parts, of) in whole.items():
            if size % parts:
                raise UsageError(f"{what} cannot be divided among {parts} {of}", hint=f"use a multiple of {parts}")
        self._check_interleaving()
        if self.zero and self.replicas == 1:
            raise UsageError(
                "--zero needs more than one data-parallel rank, and the mesh has one",
                hint="set dp in --mesh, or leave --zero out",
            )
        if self.ep > 1 and not model.experts:
            raise UsageError("this model has no experts for the axis ep", hint="leave ep out of the mesh")

    def _check_interleaving(self) -> None:
        if self.interleave == 1:
            return
        if self.pp == 1:
            raise UsageError(
                "--interleave needs more than one pipeline stage, and the mesh has one",
                hint="set pp in --mesh, or leave --interleave out",
            )
        if self.microbatches % self.pp:
            raise UsageError(
                f"--interleave needs a multiple of {self.pp} microbatches (the size of pp), not {self.microbatches}",
                hint="set --batch or --microbatch to another number, or leave --interleave out",
            )
