"""What criu's log says went wrong: the decisive line, and what to do about the failures that are known."""

from __future__ import annotations

import re

from prismdbg.errors import CapsuleError, CheckpointError, PrismError

_ERROR = re.compile(
    r"^(?:\([\d.]++\)[ \t]*+)?(?:pie: )?(?:\d++:[ \t]*+)?[ \t]*+Error \([^)\n]*+\): (.+)$", re.MULTILINE
)

# Printed in runs that succeed too, or only repeat that it failed.
_NOISE = (
    "rlimit: Can't setup RLIMIT_NOFILE",
    "Dumping FAILED",
    "Restoring FAILED",
    "tun: Unable to create tun",
    "Can't umount",
    "Couldn't save /run/criu.kdat",  # the starter keeps that file from it
)

_HINTS: tuple[tuple[str, str], ...] = (
    (r"fork for \d+: File exists", "its PID is taken: restore in a PID namespace of its own"),
    (
        r"has bad size",
        "a file that was open at the dump has another size now: it must be as long as it was at the dump",
    ),
    (r"has bad mode", "a file that was open at the dump has other permissions now"),
    (
        r"bind (inet|inet6) socket|Can't bind",
        "an address the rank was bound to is missing in its network namespace",
    ),
    (
        r"restore capabilities",
        "the checkpoint needs Linux capabilities that this container lacks: use another --runtime, or capture with "
        "--origin start",
    ),
    (r"march mismatch", "the checkpoint is of another kind of processor: replay it on a machine of that kind"),
    (
        r"build-?id|mismatch",
        "a library differs from the one at the dump: restore on the same installed files",
    ),
    (r"Can't open file|No such file", "a file that was open or mapped at the dump does not exist"),
    (
        r"shell.?job|leader of its session|not a session leader",
        "the rank shares its caller's session: dump with shell_job=True",
    ),
    (
        r"Can't get 1:16 opt|vdso",
        "this CRIU is too old for this kernel: run `images/criu/build` to build a newer one",
    ),
    (
        r"Unix socket \d+ not found|half of stream unix",
        "a process outside the rank is connected to it: close that connection and try again",
    ),
    (
        r"io_uring",
        "the rank uses io_uring, which CRIU cannot save: disable it in its libraries, or capture with --origin start",
    ),
    (
        r"can't be dumped|Can't dump|external|Unsupported|Unknown shit|anon_inode",
        "the rank has an open resource that CRIU cannot save: capture with --origin start",
    ),
    (r"nvidia|/dev/(?!null)", "the rank has an open device that CRIU cannot save: capture with --origin start"),
    (
        r"Operation not permitted|Permission denied|ptrace",
        "dumping needs root, or CAP_CHECKPOINT_RESTORE and CAP_SYS_PTRACE",
    ),
    (r"No space left|ENOSPC", "the disk is full"),
)

# What CRIU says of nothing but the images that it reads.
_OF_IMAGES = re.compile(
    r"\b[\w-]+\.img\b(?!.*(Permission denied|Too many open files|Input/output error))"
    r"|in the image|(from|ghost) image|old image|images version|[Cc]orrupt|[Mm]agic doesn't match|Unexpected EOF"
    r"|data missed|trimmed|Page entry|Bad number of sigactions|Bogus mapping|pmap err|for non-private VMA"
    r"|Failed unpacking object|No (entry|file|IDS|socket|epoll FD) for|Empty list on|I[Dd] mismatch|[Pp]id mismatch"
    r"|Can't find (regfile|target file|a parent|a session leader|my shmem|task)|Unknown \w+ (socket|type)"
    r"|epoll: Can't add event|Can't figure out which sid|Requested sid|Can't restore pgid"
    r"|Too big FD number|Parent missed"
)
_ALTERED = "fetch the capsule again, or capture the rank again: its checkpoint is damaged or was altered"


def decisive_line(log: str) -> str:
    """The first error that is not noise: later ones follow from it. Empty when the log holds none."""
    errors = _ERROR.findall(log)
    telling = [line for line in errors if not any(noise in line for noise in _NOISE)]
    return str((telling or errors or [""])[0]).strip()


def hint_for(line: str) -> str:
    for pattern, hint in _HINTS:
        if re.search(pattern, line):
            return hint
    return "run `prismdbg doctor` to check CRIU on this machine, or capture with --origin start"


def explain(what: str, log: str, *, fallback: str = "") -> CheckpointError:
    """The error for a criu that refused: `what` was tried, its own words, what to do."""
    line = decisive_line(log)
    words = line or fallback.strip() or "it gave no reason"
    return CheckpointError(f"criu could not {what}: {words}", hint=hint_for(words))


def explain_foreign(what: str, log: str) -> PrismError:
    """As `explain`, of images that somebody else made: a `CapsuleError` where criu names them as the cause."""
    line = decisive_line(log)
    if _OF_IMAGES.search(line):
        return CapsuleError(f"the checkpoint is not one that criu can restore: {line}", hint=_ALTERED)
    return explain(what, log)
