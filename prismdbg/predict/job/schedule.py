"""1F1B, and its interleaved form: in which order a stage runs its microbatches forward and backward."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One pass of a microbatch through a chunk of this stage's layers."""

    is_forward: bool
    microbatch: int
    chunk: int


def turns(stage: int, stages: int, microbatches: int, chunks: int = 1) -> list[Turn]:
    """As in Narayanan et al., arXiv 2104.04473. With several chunks `microbatches` is a multiple of `stages`."""
    total = microbatches * chunks
    ahead = stages - 1 - stage
    if chunks > 1:
        ahead = 2 * ahead + (chunks - 1) * stages
    ahead = min(ahead, total)
    forward = [_turn(True, number, stages, chunks) for number in range(total)]
    backward = [_turn(False, number, stages, chunks) for number in range(total)]
    found = forward[:ahead]
    for one, other in zip(forward[ahead:], backward, strict=False):
        found += [one, other]
    return found + backward[total - ahead :]


def _turn(is_forward: bool, number: int, stages: int, chunks: int) -> Turn:
    if chunks == 1:
        return Turn(is_forward=is_forward, microbatch=number, chunk=0)
    group, within = divmod(number, stages * chunks)
    chunk, place = divmod(within, stages)
    return Turn(
        is_forward=is_forward,
        microbatch=group * stages + place,
        chunk=chunk if is_forward else chunks - 1 - chunk,
    )
