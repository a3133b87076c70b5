"""Every exit code of the command line. `record` alone gives the job's own."""

from __future__ import annotations

from enum import IntEnum

from prismdbg.errors import INTERRUPTED


class ExitCode(IntEnum):
    OK = 0
    FAILED = 1  # an expectation did not hold, or a failure that is none of the others
    USAGE = 2
    BAD_CAPSULE = 3
    LACKING = 4  # this machine lacks something
    DIVERGED = 5
    RANK_LOST = 6
    INCONCLUSIVE = 7  # a replay that can be said neither to be identical nor to differ
    TIMEOUT = 124
    CANNOT_TELL = 125  # --bisect: `git bisect run` skips this commit
    NO_VERDICT = 128  # --bisect: wrong usage; `git bisect run` takes 1 to 127 for bad and stops here
    INTERRUPTED = INTERRUPTED
    UNREAD = 141  # the reader of the output ended before there was a verdict; as shells say it of SIGPIPE
    TERMINATED = 143
