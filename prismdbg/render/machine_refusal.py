"""What this machine refuses a program: no permission, no space, a disk that fails. The command line and the screen say
the same of it."""

from __future__ import annotations

import errno

from prismdbg.errors import FacilityError

_NOT_YOURS = "run this as the owner, or ask the owner for permission"
_FULL = (errno.ENOSPC, errno.EDQUOT)
_REFUSED = {
    errno.EACCES: _NOT_YOURS,
    errno.EPERM: _NOT_YOURS,
    errno.ENOSPC: "free some space there",
    errno.EDQUOT: "free some space there, or ask for a larger quota",
    errno.EROFS: "choose a folder that you can write to",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENAMETOOLONG: "give a shorter path",
    errno.EIO: "check the disk",
    errno.ESTALE: "check the file server",
}


def machine_refusal(error: OSError) -> FacilityError | None:
    """The same as an error with a hint; None for one that nobody has foreseen. Without a file it is an output that is
    full."""
    number = error.errno or 0
    if number not in (_FULL if error.filename is None else _REFUSED):
        return None
    return FacilityError(f"{error.filename or 'the output'}: {error.strerror}", hint=_REFUSED[number])
