"""Every exit code of the command line. `record` alone gives the job's own."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    OK = 0
    FAILED = 1  # an expectation did not hold, or a failure that is none of the others
    USAGE = 2
    BAD_CAPSULE = 3
    LACKING = 4  # this machine lacks something
    DIVERGED = 5
    RANK_LOST = 6
    TIMEOUT = 124
    INTERRUPTED = 130
    TERMINATED = 143
