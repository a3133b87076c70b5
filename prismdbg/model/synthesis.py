"""How an answer that no peer gave was made up: the words, and their numbers in the log."""

from __future__ import annotations

NOT_KNOWN = ""
NOTHING = "nothing received"
ECHO = "echo"
ZEROS = "zeros"
NOISE = "noise"
NOISE_LIKE = "noise like the donor"  # with the mean and deviation of what the sender really sent
BALANCED = "balanced"
OWN = "own"
DONOR = "donor"
ECHO_AND_DONOR = "echo and donor"

WAYS = (NOT_KNOWN, NOTHING, ECHO, ZEROS, NOISE, NOISE_LIKE, BALANCED, OWN, DONOR, ECHO_AND_DONOR)
NUMBERS = {way: number for number, way in enumerate(WAYS)}
FROM_OTHERS = frozenset({NOT_KNOWN, DONOR, ECHO_AND_DONOR})  # cannot be made again from what this rank sends


def way_of(number: int) -> str:
    """Not known where a newer writer has more ways."""
    return WAYS[number] if number < len(WAYS) else NOT_KNOWN
