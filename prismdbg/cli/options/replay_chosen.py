"""What was asked of `prismdbg replay`, and which of it goes together."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.capsule.incident_traits import TRAITS
from prismdbg.capsule.manifest import Manifest
from prismdbg.cli.exit_codes import ExitCode
from prismdbg.errors import Defect, Divergence, PrismError, UsageError
from prismdbg.jobs.replay.replay import ReplayRequest
from prismdbg.jobs.replay.replay_plan import with_files
from prismdbg.jobs.replay.source_overlay import START_HINT, NothingMatches, Overlay, edited_here, make_overlay
from prismdbg.jobs.storage.archive_crypto import NO_KEYS, Keys
from prismdbg.model.deadline import Deadline
from prismdbg.model.moment import Moment
from prismdbg.render import console
from prismdbg.runtime.limits import USUAL, Asked
from prismdbg.runtime.names import PLAIN


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
    tolerance: float = 0.0
    with_files: tuple[str, ...] = ()
    keys: Keys = NO_KEYS
    limits: Asked = USUAL

    @property
    def is_scripted(self) -> bool:
        return self.lines is None and (self.script is not None or self.is_edited)

    @property
    def is_edited(self) -> bool:
        """Whether the program may differ from the recorded one: with --bisect it is that of the commit, which a plain
        process has from this machine's files."""
        return self.source is not None or self.bisect

    def check(self) -> None:
        """`UsageError` for what does not go together."""
        if self.script is not None and self.lines is not None:
            raise UsageError("--script and -x cannot be combined", hint="give one of them")
        if self.junit is not None and self.script is None:
            raise UsageError("--junit needs --script: it reports a script's checks", hint="add --script")
        if self.lines is not None and self.as_json:
            raise UsageError("-x has no JSON output", hint="use --script instead of -x, or leave --json out")
        more = self.script is not None or self.lines is not None or self.is_edited
        if more and self.tolerance:
            raise UsageError(
                "--tolerance cannot be combined with --script, -x, --source or --bisect", hint="leave --tolerance out"
            )
        if more and self.until is not None:
            raise UsageError(
                "--until cannot be combined with --script, -x, --source or --bisect",
                hint="use run_to in a script, or until with -x",
            )
        if self.bisect:
            self._check_bisect()
        if self.lines is not None and self.source is not None:
            raise UsageError(
                "-x cannot be combined with --source: it does not judge whether the incident happens again",
                hint="use --script to check the edited program",
            )

    def _check_bisect(self) -> None:
        """What would give one and the same answer for every commit is no verdict."""
        if self.lines is not None:
            raise UsageError("--bisect cannot be combined with -x", hint="use --script to check the commit")
        if self.source is None and self.runtime != PLAIN:
            raise UsageError(
                "--bisect without --source replays the captured program, whichever commit is checked out",
                hint="add --source . to replace the captured files by the files that are checked out; a capsule of a "
                "hang, or one captured on request, needs --script, too",
            )
        if self.source is None and not self.allow_writes:
            raise UsageError(
                "--bisect with --runtime plain repeats the program's writes on this machine",
                hint="add --allow-writes to permit that, or use --source . without --runtime plain",
            )
        if not self.capsule.exists():
            raise UsageError(f"no such file or directory: {self.capsule}", hint="give the path of a capsule")

    def check_incident(self, manifest: Manifest) -> None:
        """`UsageError` where no commit could ever be bad; it also names what else is missing."""
        never = not TRAITS[manifest.incident.kind].can_recur
        if not (self.bisect and self.script is None and never):
            return
        why = (
            "this capsule has no incident that a replay can reproduce "
            f"({manifest.incident.kind}: {manifest.incident.text}), so no commit would be bad"
        )
        hint = "add --script with a check that fails for a bad commit"
        if not manifest.origin.starts_program:
            option = "--source" if self.source is not None else "--runtime plain"
            why += f"; and its first collective is {manifest.moment_a}, but {option} needs one from the program's start"
            hint += f", and {START_HINT}"
        raise UsageError(why, hint=hint)

    def request(self, capsule: Capsule) -> ReplayRequest:
        return ReplayRequest(
            capsule=capsule,
            runtime=self.runtime,
            allow_writes=self.allow_writes,
            strict=self.strict,
            with_files=with_files(capsule, self.with_files),
            limits=self.limits,
            deadline=Deadline.after(self.bound_s),
            overlay=self._overlay(capsule),
            edited=edited_here(capsule) if self.bisect and self.runtime == PLAIN else None,
        )

    def _overlay(self, capsule: Capsule) -> Overlay | None:
        """`UsageError` for a folder that --bisect cannot use with any commit."""
        if self.source is None:
            return None
        overlay = make_overlay(capsule, self.source)
        if self.bisect and self.runtime == PLAIN and overlay.folder != Path(os.path.realpath(overlay.seen_as)):
            raise UsageError(
                f"--runtime plain runs the files in {overlay.seen_as}, not those in {overlay.folder}",
                hint="use --runtime docker or local, or bisect in the program's own folder",
            )
        return overlay


def cannot_tell(error: PrismError) -> bool:
    """Whether it says nothing of the code: it cannot run, the capsule is bad, the machine lacks something, time is
    over. Wrong usage is no such thing: it is the same for every commit."""
    return isinstance(error, NothingMatches) or not isinstance(error, UsageError | Divergence)


def judged(run: Callable[[], int]) -> int:
    """The exit code of `run` as `git bisect run` is to take it: whatever is no verdict becomes 125. `UsageError` is
    left to the command line, which makes 128 of it: there git stops."""
    try:
        return run()
    except BrokenPipeError:
        raise
    except Exception as error:
        why = error if isinstance(error, PrismError) else Defect.of(error)
        if not cannot_tell(why):
            raise
        console.announce(f"inconclusive: {why}")
        return ExitCode.CANNOT_TELL
