"""Why a screen could not open or read something, and what to do."""

from __future__ import annotations

from collections.abc import Callable

from prismdbg.errors import CapsuleError, PrismError
from prismdbg.render.machine_refusal import machine_refusal


def why_refused(opens: Callable[[], object]) -> str:
    """Why what was chosen on a screen could not be opened; empty where it was. What nobody has foreseen is raised."""
    try:
        opens()
    except PrismError as error:
        return with_hint(error)
    except OSError as error:
        if (refusal := machine_refusal(error)) is None:
            raise
        return with_hint(refusal)
    return ""


def of_reading(error: PrismError | OSError, what: str) -> PrismError:
    """The error of reading `what`, a run for instance, that was there before. It may have been removed meanwhile; other
    errors that nobody has foreseen are raised."""
    if isinstance(error, PrismError):
        return error
    if isinstance(error, FileNotFoundError) and error.filename is not None:
        return CapsuleError(
            f"{error.filename} is gone: the {what} was removed or moved",
            hint=f"use the new path of the {what}, if it has one",
        )
    if (refusal := machine_refusal(error)) is None:
        raise error
    return refusal


def with_hint(error: PrismError) -> str:
    return f"{error}\ntry: {error.hint}" if error.hint else str(error)
