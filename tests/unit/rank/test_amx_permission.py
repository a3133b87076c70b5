"""A checkpoint does not keep the leave to use tile registers: who had it asks again."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from prismdbg.rank.amx_permission import ARCH_GET_XCOMP_PERM, TILE_DATA, AmxPermission


class Kernel:
    """Gives the leave to whoever asks. `asked`: how often."""

    def __init__(self, *, knows_it: bool = True) -> None:
        self.granted = False
        self.asked = 0
        self._knows_it = knows_it

    def __call__(self, _: int, what: int, argument: Any) -> int:
        if not self._knows_it:
            return -1
        if what == ARCH_GET_XCOMP_PERM:
            argument._obj.value = 0x2E7 | (self.granted << TILE_DATA)
            return 0
        assert argument.value == TILE_DATA
        self.granted, self.asked = True, self.asked + 1
        return 0


def kept(monkeypatch: pytest.MonkeyPatch, kernel: Kernel) -> AmxPermission:
    permission = AmxPermission()
    monkeypatch.setattr(permission, "_syscall", kernel)
    return permission


def test_it_is_asked_for_again_after_a_restore(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel()
    permission = kept(monkeypatch, kernel)
    kernel.granted = True  # by oneDNN
    permission.keep()
    kernel.granted = False  # restored
    permission.keep()
    permission.keep()
    assert kernel.granted
    assert kernel.asked == 1


def test_a_process_that_never_had_it_does_not_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel()
    permission = kept(monkeypatch, kernel)
    permission.keep()
    permission.keep()
    assert kernel.asked == 0


def test_a_kernel_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel(knows_it=False)
    kept(monkeypatch, kernel).keep()
    assert kernel.asked == 0


def test_on_this_machine_it_changes_nothing() -> None:
    def permissions() -> int:
        found = ctypes.c_uint64()
        ctypes.CDLL(None).syscall(158, ARCH_GET_XCOMP_PERM, ctypes.byref(found))
        return found.value

    before = permissions()
    AmxPermission().keep()
    assert permissions() == before
