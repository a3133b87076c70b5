"""Leave to use the processor's tile registers (AMX): the kernel gives it to a process, and no checkpoint keeps it.

oneDNN asks for it before its first bfloat16 product. A restored rank that goes on without it is ended by SIGILL.
Source: Linux, Documentation/arch/x86/xstate.rst.
"""

from __future__ import annotations

import ctypes
import platform

SYS_ARCH_PRCTL = 158
ARCH_GET_XCOMP_PERM, ARCH_REQ_XCOMP_PERM = 0x1022, 0x1023
TILE_DATA = 18  # the number of the processor's state component


class AmxPermission:
    """`keep` notes that this process has it, and asks for it again where it had it and has it no more."""

    def __init__(self) -> None:
        self._had = False
        self._syscall = ctypes.CDLL(None).syscall if platform.machine() == "x86_64" else None

    def keep(self) -> None:
        """Cheap: a system call. In a process that was never restored it changes nothing."""
        if self._syscall is None:
            return
        given = ctypes.c_uint64()
        if self._syscall(SYS_ARCH_PRCTL, ARCH_GET_XCOMP_PERM, ctypes.byref(given)):
            return  # a kernel without it gives it to nobody
        has = bool(given.value >> TILE_DATA & 1)
        if self._had and not has:
            has = self._syscall(SYS_ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, ctypes.c_ulong(TILE_DATA)) == 0
        self._had |= has
