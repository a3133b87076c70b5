"""What a command ends with that somebody did not want to wait for."""

from __future__ import annotations

from prismdbg.errors import PrismError


class Interrupted(PrismError):
    """Somebody did not want to wait; the rank stands where it came to, or runs on."""
