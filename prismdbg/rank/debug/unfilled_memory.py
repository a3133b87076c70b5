"""Memory that was allocated and is not yet written as a whole: what a view of it shows is what lay there by chance."""

from __future__ import annotations

from typing import Any

import torch

# their outputs hold what lay in memory
_LEAVE_IT = ("empty", "new_empty", "resize", "set_")
_ALLOCATE = ("empty", "new_empty")


def leaves_it_unfilled(name: str) -> bool:
    """Whether the operator, as in `aten::empty.memory_format`, gives memory that it does not write."""
    return name.removeprefix("aten::").startswith(_LEAVE_IT)


class UnfilledMemory:
    """By the address of a storage: how many of its bytes are not written yet. Bytes that are written twice count twice,
    so that memory may be taken for filled too early, and never for unfilled too long."""

    def __init__(self) -> None:
        self._left: dict[int, int] = {}

    def resized(self, storage: torch.UntypedStorage) -> None:
        """Without an operator, as FSDP makes its buffers anew, whose content comes with a collective."""
        if storage.nbytes() and storage.device.type != "meta":
            self._left[storage.data_ptr()] = storage.nbytes()

    def after(self, func: Any, given: list[torch.Tensor], made: list[torch.Tensor]) -> bool:
        """What an operator has done to it; whether what it gives is only a view of such memory."""
        if func.name().removeprefix("aten::").startswith(_ALLOCATE):
            self._left |= {address: size for address, size in map(_place, made) if size}
            return True
        is_written = func._schema.is_mutable
        places = {_place(tensor)[0] for tensor in given}
        if not is_written and made and all(_place(tensor)[0] in places for tensor in made):
            return all(_place(tensor)[0] in self._left for tensor in made)
        for tensor in made:
            self._write(*_place(tensor), tensor.numel() * tensor.element_size(), fresh=_place(tensor)[0] not in places)
        return False

    def _write(self, address: int, size: int, written: int, *, fresh: bool) -> None:
        left = self._left.pop(address, 0) - written
        if left > 0 and not fresh:
            self._left[address] = left


def _place(tensor: torch.Tensor) -> tuple[int, int]:
    """Address and bytes of its storage; zeros where it has none."""
    if tensor.layout != torch.strided or tensor.device.type == "meta":
        return 0, 0
    storage = tensor.untyped_storage()
    return storage.data_ptr(), storage.nbytes()
