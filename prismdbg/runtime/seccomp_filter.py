"""The seccomp filter that every replayed rank runs under: which system calls the kernel refuses it.

The starter lays it on a rank that is started; a copy in its images lays it on one that is restored. The list follows
Docker's default profile for a process without capabilities, and refuses some more: ptrace and process_vm_* (nothing
in a rank needs them, and they are the way to other processes), modify_ldt, memfd_secret, and the injection of input
into a terminal. NUMA placement of the rank's own memory is allowed, for numerical libraries do that.
"""

from __future__ import annotations

import errno
import platform
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from prismdbg.errors import FacilityError

# name: its number on x86_64 and aarch64; None where the architecture has none.
Numbers = tuple[int | None, int | None]
REFUSED: Mapping[str, Numbers] = {
    "acct": (163, 89),
    "add_key": (248, 217),
    "adjtimex": (159, 171),
    "afs_syscall": (183, None),
    "bpf": (321, 280),
    "chroot": (161, 51),
    "clock_adjtime": (305, 266),
    "clock_settime": (227, 112),
    "create_module": (174, None),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "fanotify_mark": (301, 263),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "get_kernel_syms": (177, None),
    "getpmsg": (181, None),
    "init_module": (175, 105),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioperm": (173, None),
    "iopl": (172, None),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "lookup_dcookie": (212, 18),
    "memfd_secret": (447, 447),
    "migrate_pages": (256, 238),
    "modify_ldt": (154, None),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "move_pages": (279, 239),
    "nfsservctl": (180, 42),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "putpmsg": (182, None),
    "query_module": (178, None),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "security": (185, None),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "settimeofday": (164, 170),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "sysfs": (139, None),
    "_sysctl": (156, None),
    "syslog": (103, 116),
    "tuxcall": (184, None),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "uselib": (134, None),
    "userfaultfd": (323, 282),
    "ustat": (136, None),
    "vhangup": (153, 58),
    "vserver": (236, None),
}
_CLONE, _CLONE3, _SOCKET, _PERSONALITY, _IOCTL = (56, 220), (435, 435), (41, 198), (135, 92), (16, 29)
_FCNTL = (72, 25)
LAST_KNOWN = 453  # map_shadow_stack; whatever a newer kernel has beyond does not exist for a rank

_NEW_NAMESPACES = 0x7E020000  # CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
_FAMILIES_REFUSED = (38, 40)  # AF_ALG, AF_VSOCK
_PERSONALITIES = (0x0, 0x8, 0x20000, 0x20008, 0x40000, 0xFFFFFFFF)  # the last one asks which it is
_TERMINAL_INPUT = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX
_LEASE = (1024,)  # F_SETLEASE: it delays whoever writes that file, also on the host, where it is the rank's user's

_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_EPERM, _ENOSYS = _ERRNO | errno.EPERM, _ERRNO | errno.ENOSYS
_LOAD, _EQUAL, _ABOVE, _ANY_BIT, _RETURN = 0x20, 0x15, 0x25, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST, _SECOND = 0, 4, 16, 24  # offsets in seccomp_data; the low halves of arguments
_INSTRUCTION = struct.Struct("<HBBI")
Instruction = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """`column`: in the table of numbers."""

    audit: int
    column: int


MACHINES = {
    "x86_64": Machine(audit=0xC000003E, column=0),
    "aarch64": Machine(audit=0xC00000B7, column=1),
}


def rank_filter(machine: str = "") -> bytes:
    """The filter as the kernel takes it. `FacilityError` for an architecture that is not in the table."""
    name = machine or platform.machine()
    if name not in MACHINES:
        raise FacilityError(
            f"prismdbg has no seccomp filter for {name}", hint="replay on " + " or ".join(sorted(MACHINES))
        )
    return b"".join(_INSTRUCTION.pack(*one) for one in _program(MACHINES[name]))


def _program(machine: Machine) -> list[Instruction]:
    """Numbers above the last known one cover x32, too: its numbers have bit 30 set."""
    code = [_load(_ARCHITECTURE), (_EQUAL, 1, 0, machine.audit), _return(_ENOSYS)]
    code += [_load(_NUMBER), (_ABOVE, 0, 1, LAST_KNOWN), _return(_ENOSYS)]
    code += _if_number(_CLONE3[machine.column], [_return(_ENOSYS)])  # its flags lie in memory; libc falls back to clone
    code += _if_number(_CLONE[machine.column], _refuse_bits(_FIRST, _NEW_NAMESPACES))
    code += _if_number(_SOCKET[machine.column], _refuse_values(_FIRST, _FAMILIES_REFUSED))
    code += _if_number(_PERSONALITY[machine.column], _allow_values(_FIRST, _PERSONALITIES))
    code += _if_number(_IOCTL[machine.column], _refuse_values(_SECOND, _TERMINAL_INPUT))
    code += _if_number(_FCNTL[machine.column], _refuse_values(_SECOND, _LEASE))
    for numbers in REFUSED.values():
        if (number := numbers[machine.column]) is not None:
            code += _if_number(number, [_return(_EPERM)])
    return [*code, _return(_ALLOW)]


def _load(offset: int) -> Instruction:
    return _LOAD, 0, 0, offset


def _return(action: int) -> Instruction:
    return _RETURN, 0, 0, action


def _if_number(number: int, body: list[Instruction]) -> list[Instruction]:
    """`body` returns on every way through it."""
    return [(_EQUAL, 0, len(body), number), *body]


def _refuse_bits(offset: int, bits: int) -> list[Instruction]:
    return [_load(offset), (_ANY_BIT, 0, 1, bits), _return(_EPERM), _return(_ALLOW)]


def _refuse_values(offset: int, values: Iterable[int]) -> list[Instruction]:
    return [_load(offset), *_each(values, _EPERM), _return(_ALLOW)]


def _allow_values(offset: int, values: Iterable[int]) -> list[Instruction]:
    return [_load(offset), *_each(values, _ALLOW), _return(_EPERM)]


def _each(values: Iterable[int], action: int) -> list[Instruction]:
    return [one for value in values for one in ((_EQUAL, 0, 1, value), _return(action))]
