"""Families of collectives: what is told apart by colour, and by a letter where there is no colour."""

from __future__ import annotations

from dataclasses import dataclass

from prismdbg.model.ops import OPS, check_complete


@dataclass(frozen=True, slots=True)
class OpFamily:
    name: str
    letter: str
    on_dark: str
    on_light: str
    words: tuple[str, ...]

    def color(self, dark: bool) -> str:
        return self.on_dark if dark else self.on_light


COMPUTE = OpFamily("computes", "C", "#7f8fb0", "#56657f", ())  # of a simulated rank; a recorded one has gaps there
FAMILIES = (
    OpFamily("all_reduce", "R", "#4fa3ff", "#1565c0", ("allreduce",)),
    OpFamily("all_gather", "G", "#3ddc97", "#00795a", ("allgather",)),
    OpFamily("reduce_scatter", "S", "#ff9e4f", "#b85000", ("reduce_scatter",)),
    OpFamily("broadcast", "B", "#ffd866", "#8a6a00", ("broadcast",)),
    OpFamily("all_to_all", "X", "#c792ea", "#7b2fa8", ("alltoall",)),
    OpFamily("send, recv", "P", "#5ce1e6", "#007a80", ("send", "recv")),
    OpFamily("rooted", "O", "#ff85c0", "#ad1f6b", ("reduce_", "gather_", "scatter_")),
    OpFamily("barrier", "|", "#a0a8b8", "#5a6272", ("barrier",)),
    COMPUTE,
)
NONFINITE = ("#ff4d5e", "#c4001d")


def family_of(op: str) -> int:
    """An operator's number in `FAMILIES`; of a newer torch's it may not be known, which stands with the rooted ones."""
    found = _known(op)
    return found if found is not None else FAMILIES.index(next(f for f in FAMILIES if f.name == "rooted"))


def _known(op: str) -> int | None:
    name = op.lstrip("_")
    return next((n for n, family in enumerate(FAMILIES) if any(word in name for word in family.words)), None)


check_complete((op for op in OPS if _known(op) is not None), "the families of collectives (timeline/op_families.py)")
