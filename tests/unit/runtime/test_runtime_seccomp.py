"""The filter, run as the kernel runs it: which call of which architecture is let through."""

from __future__ import annotations

import errno
import struct

import pytest

from prismdbg.errors import FacilityError
from prismdbg.runtime.seccomp_filter import MACHINES, REFUSED, rank_filter

ALLOW, ERRNO = 0x7FFF0000, 0x00050000
COLUMNS = {"x86_64": 0, "aarch64": 1}
CLONE, SOCKET, PERSONALITY, IOCTL, FCNTL = (56, 220), (41, 198), (135, 92), (16, 29), (72, 25)


def run(machine: str, number: int, *arguments: int, audit: int = 0) -> int:
    """A classic BPF machine with the instructions that the filter uses. A jump out of the program is an IndexError."""
    padded = [*arguments, *[0] * (6 - len(arguments))]
    data = struct.pack("<IIQ6Q", number & 0xFFFFFFFF, audit or MACHINES[machine].audit, 0, *padded)
    code = list(struct.iter_unpack("<HBBI", rank_filter(machine)))
    at, held = 0, 0
    while True:
        kind, if_true, if_false, value = code[at]
        at += 1
        if kind == 0x06:
            return int(value)
        if kind == 0x20:
            held = struct.unpack_from("<I", data, value)[0]
        else:
            holds = {0x15: held == value, 0x25: held > value, 0x45: bool(held & value)}[kind]
            at += if_true if holds else if_false


@pytest.mark.parametrize("machine", MACHINES)
def test_every_call_of_the_list_is_refused(machine: str) -> None:
    for name, numbers in REFUSED.items():
        if (number := numbers[COLUMNS[machine]]) is not None:
            assert run(machine, number) == ERRNO | errno.EPERM, name


@pytest.mark.parametrize("machine", MACHINES)
def test_what_programs_need_is_let_through(machine: str) -> None:
    denied = {numbers[COLUMNS[machine]] for numbers in REFUSED.values()} | {435}
    for number in set(range(335)) - denied - {PERSONALITY[COLUMNS[machine]]}:
        assert run(machine, number) == ALLOW, number


@pytest.mark.parametrize("machine", MACHINES)
def test_arguments_decide(machine: str) -> None:
    column, refused = COLUMNS[machine], ERRNO | errno.EPERM
    threads = 0x3D0F00  # as libc makes one
    assert run(machine, CLONE[column], threads) == ALLOW
    for flag in (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000):
        assert run(machine, CLONE[column], flag | 17) == refused
    assert [run(machine, SOCKET[column], family) for family in (1, 2, 10, 38, 40)] == [ALLOW] * 3 + [refused] * 2
    assert run(machine, PERSONALITY[column], 0xFFFFFFFF) == ALLOW
    assert run(machine, PERSONALITY[column], 0x0400000) == refused
    assert run(machine, IOCTL[column], 1, 0x5401) == ALLOW
    assert run(machine, IOCTL[column], 0, 0x5412) == refused
    assert [run(machine, FCNTL[column], 3, command) for command in (0, 1, 6, 38, 1024)] == [ALLOW] * 4 + [refused]


@pytest.mark.parametrize("machine", MACHINES)
def test_what_it_does_not_know_is_not_there(machine: str) -> None:
    absent = ERRNO | errno.ENOSYS
    assert run(machine, 435) == absent
    assert run(machine, 1000) == absent
    assert run(machine, 0x40000000 | 39) == absent  # x32
    assert run(machine, 39, audit=0x40000003) == absent  # i386


def test_an_architecture_without_a_table_is_refused() -> None:
    with pytest.raises(FacilityError, match="riscv64"):
        rank_filter("riscv64")
