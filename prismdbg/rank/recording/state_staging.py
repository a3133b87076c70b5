"""Memory of our own into which tensors are copied at a step boundary, to be written while the program goes on."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from prismdbg.capsule.safetensors import Part, header_of, lay
from prismdbg.rank.recording.plain_state import DTYPE_NAMES, DTYPES


class Staging:
    """Kept from one snapshot to the next: memory that was touched before is copied to at full speed. Pinned where the
    tensors are on a GPU, so that the program's stream copies and no thread waits; else not allocated by torch."""

    def __init__(self) -> None:
        self._data = torch.empty(0, dtype=torch.uint8, device="cpu")
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
        if self._data.numel() >= size_bytes and self._data.is_pinned() == pinned:
            return
        if pinned:
            self._data = torch.empty(size_bytes, dtype=torch.uint8, device="cpu", pin_memory=True)
        else:
            self._data = torch.frombuffer(bytearray(max(size_bytes, 1)), dtype=torch.uint8)
