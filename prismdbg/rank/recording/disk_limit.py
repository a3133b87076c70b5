"""A replay's limit of disk, as the rank meets it."""

from __future__ import annotations

import ctypes
import signal


def end_there() -> None:
    """Python ignores the signal, so that a file which may not grow is an error like others of the program's, and nobody
    knows that a limit of the replay was met. By libc, for this may be another thread than the main one."""
    libc = ctypes.CDLL(None)
    libc.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
    libc.signal.restype = ctypes.c_void_p
    libc.signal(int(signal.SIGXFSZ), None)  # SIG_DFL
