"""Memory of our own into which tensors are copied at a step boundary, to be written while the program goes on."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from prismdbg.capsule.safetensors import Part, header_of, lay
from prismdbg.rank.recording.plain_state import DTYPE_NAMES, DTYPES

PAGE = os.sysconf("SC_PAGE_SIZE")
_PORTABLE = 1  # cudaHostRegisterPortable: for all GPUs of the process
_DONTFORK, _DOFORK = 10, 11  # of Linux
_pinned: dict[int, torch.Tensor] = {}  # never freed as long as it is pinned, nor in a forked process, which lacks it
_libc = ctypes.CDLL(None)
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class Staging:
    """Kept from one snapshot to the next: memory that was touched before is copied to at full speed. Pinned where the
    tensors are on a GPU, so that the program's stream copies and no thread waits. Not allocated by torch, whose pinned
    memory is as large as the next power of two, and is never given back."""

    def __init__(self) -> None:
        self._data = torch.frombuffer(bytearray(1), dtype=torch.uint8)
        self._is_pinned = False
        self._parts: list[Part] = []
        self._copied: list[Any] = []  # an event on each GPU

    @property
    def size_bytes(self) -> int:
        return self._parts[-1].end if self._parts else 0

    def copy(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """As the tensors are when the calling thread's stream on each GPU comes here."""
        self._parts = lay((name, DTYPE_NAMES[t.dtype], tuple(t.shape)) for name, t in tensors.items())
        gpus = {t.device for t in tensors.values() if t.device.type == "cuda"}
        self._make_room(self.size_bytes, bool(gpus))
        for part in self._parts:
            if part.size_bytes:
                place = self._data[part.begin : part.end].view(DTYPES[part.dtype]).view(part.shape)
                place.copy_(tensors[part.name], non_blocking=True)
        self._copied = [torch.cuda.current_stream(gpu).record_event() for gpu in gpus]

    def write(self, path: Path) -> None:
        """As a safetensors file. Waits for copies that are under way; to be called in a thread of ours."""
        for event in self._copied:
            event.synchronize()
        with path.open("wb") as file:
            file.write(header_of(self._parts))
            if self.size_bytes:
                file.write(memoryview((ctypes.c_char * self.size_bytes).from_address(self._data.data_ptr())))

    def _make_room(self, size_bytes: int, pinned: bool) -> None:
        if self._data.numel() >= size_bytes and self._is_pinned == pinned:
            return
        self._let_go()
        size_bytes = max(size_bytes, 1)
        if not pinned:
            self._data = torch.frombuffer(bytearray(size_bytes), dtype=torch.uint8)
            return
        memory = torch.frombuffer(bytearray(size_bytes + 2 * PAGE), dtype=torch.uint8)
        begin = -memory.data_ptr() % PAGE
        self._data = memory[begin : begin + size_bytes + -size_bytes % PAGE]
        place, size_bytes = self._data.data_ptr(), self._data.numel()
        torch.cuda.check_error(torch.cuda.cudart().cudaHostRegister(place, size_bytes, _PORTABLE))
        self._is_pinned = True
        _pinned[place] = self._data
        # else, on older kernels, a write after a fork moves the pages away from those that are pinned
        _libc.madvise(place, size_bytes, _DONTFORK)

    def _let_go(self) -> None:
        """Before more is taken: both together may be more than there is."""
        if self._is_pinned:
            for event in self._copied:
                event.synchronize()
            place = self._data.data_ptr()
            torch.cuda.check_error(torch.cuda.cudart().cudaHostUnregister(place))
            _libc.madvise(place, self._data.numel(), _DOFORK)
            del _pinned[place]
            self._is_pinned = False
        self._data = torch.frombuffer(bytearray(1), dtype=torch.uint8)
