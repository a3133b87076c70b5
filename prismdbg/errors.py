"""Every error prismdbg raises on purpose.

    PrismError
    ├── UsageError           the request makes no sense as given                    exit 2
    │   ├── MismatchError    ranks of one job do not fit together: it hangs
    │   ├── NoSuchKey        a mapping lacks this key; a KeyError, too
    │   └── NotLogged        a log does not show what was computed: calls on a device
    ├── CapsuleError         a capsule or a run's log is damaged, hostile, newer    exit 3
    │   └── NotReplayable    evidence was kept that no replay can start from
    ├── FacilityError        this machine lacks something                           exit 4
    │   ├── CheckpointError  the checkpoint engine refused; carries the decisive line of its log
    │   │   └── CheckpointTooSlow  the engine was ended at its bound; the process may not have survived it
    │   └── RuntimeFailure   the container or namespace could not be made or died
    ├── Divergence           the replay is not the recorded run; carries its story  exit 5
    ├── RankLost             the rank died, or its agent cannot be reached          exit 6
    ├── WaitTimeout          a bounded wait ended; says what it waited for          exit 124
    └── Defect               prismdbg's own code failed in a way nobody foresaw      exit 1

A message says what happened, where, and what to do next.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from traceback import extract_tb

INTERRUPTED = 130  # a program that SIGINT ended, as a shell says it


class PrismError(Exception):
    """Base of all. `hint` says what to do next; shown on a line of its own. `bare`: the message without the picture of
    the place that some errors have below it."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint
        self.bare = message


class UsageError(PrismError):
    exit_code = 2


class MismatchError(UsageError):
    pass


class NotLogged(UsageError):
    pass


class NoSuchKey(UsageError, KeyError):
    """What mappings raise, so that their `get` gives its default."""

    def __str__(self) -> str:
        return str(self.args[0])


class CapsuleError(PrismError):
    exit_code = 3


class NotReplayable(CapsuleError):
    """`evidence`: the folder of what was kept."""

    def __init__(self, message: str, *, hint: str = "", evidence: Path) -> None:
        super().__init__(message, hint=hint)
        self.evidence = evidence


class FacilityError(PrismError):
    exit_code = 4


class CheckpointError(FacilityError):
    pass


class CheckpointTooSlow(CheckpointError):
    pass


class RuntimeFailure(FacilityError):
    pass


class Divergence(PrismError):
    exit_code = 5


class RankLost(PrismError):
    exit_code = 6


class WaitTimeout(PrismError):
    exit_code = 124


class Defect(PrismError):
    """The rank, or whatever else was worked on, may be as well as before."""

    @classmethod
    def of(cls, error: Exception) -> Defect:
        """With the innermost place in the code, for whoever mends it."""
        frames = extract_tb(error.__traceback__)
        place = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
        return cls(
            f"{type(error).__name__}: {error}{place}",
            hint="report this: it is a bug in prismdbg, not in the program; the session continues",
        )


def shortened(text: str, most: int = 60) -> str:
    """For a message: what was typed or pasted may be long."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def quoted(text: str) -> str:
    """As Python writes it, and shortened."""
    return repr(shortened(text))


def suggestion(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'continue'?` for a word that is nearly a known one; empty where none is near."""
    near = get_close_matches(word.lower(), [str(name) for name in known], n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def exit_code_of(kind: str) -> int:
    """Of an error by its class's name, as an agent says it; 1 for one that is not known here."""
    known: list[type[PrismError]] = [PrismError]
    for error in known:
        known += error.__subclasses__()
    return next((error.exit_code for error in known if error.__name__ == kind), PrismError.exit_code)
