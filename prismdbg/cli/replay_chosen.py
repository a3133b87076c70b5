"""What was asked of `prismdbg replay`, and which of it goes together."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.errors import CapsuleError, Defect, FacilityError, PrismError, RankLost, UsageError, WaitTimeout
from prismdbg.model.moment import Moment
from prismdbg.workflows.replay import ReplayRequest
from prismdbg.workflows.source_overlay import NothingMatches, make_overlay

CANNOT_TELL = 125  # `git bisect run` skips this commit


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The options. `lines`: the file of -x."""

    capsule: Path
    runtime: str
    until: Moment | None
    script: Path | None
    lines: str | None
    source: Path | None
    junit: Path | None
    strict: bool
    allow_writes: bool
    bound_s: float
    bisect: bool
    as_json: bool

    @property
    def is_scripted(self) -> bool:
        return self.lines is None and (self.script is not None or self.source is not None)

    def check(self) -> None:
        """`UsageError` for what does not go together."""
        if self.script is not None and self.lines is not None:
            raise UsageError("--script and -x are two ways to say what to do", hint="give one of them")
        if self.junit is not None and self.script is None:
            raise UsageError("--junit reports the checks of a script", hint="give --script, too")
        if self.lines is not None and self.as_json:
            raise UsageError("-x prints as the debugger does", hint="--script gives JSON")
        more = self.script is not None or self.lines is not None or self.source is not None
        if more and self.until is not None:
            raise UsageError("--until is for a replay without more", hint="`run_to` in a script, until with -x")

    def request(self, capsule: Capsule) -> ReplayRequest:
        return ReplayRequest(
            capsule=capsule,
            runtime=self.runtime,
            allow_writes=self.allow_writes,
            strict=self.strict,
            overlay=make_overlay(capsule, self.source) if self.source is not None else None,
        )


def cannot_tell(error: PrismError) -> bool:
    """Whether it says nothing of the code: it cannot run, the capsule is bad, the machine lacks something, time is
    over."""
    return isinstance(error, FacilityError | CapsuleError | RankLost | WaitTimeout | NothingMatches | Defect)
