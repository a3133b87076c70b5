"""Which DDP modules of the process have the registered parameters."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.testing._internal.distributed.fake_pg import FakeStore

from prismdbg.rank.recording import ddp_buckets


@pytest.fixture(autouse=True)
def group() -> Iterator[None]:
    dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("is_frozen", [False, True])
def test_what_the_program_has_frozen_is_found(is_frozen: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order of the registered parameters, by DDP itself or by what it wraps."""
    monkeypatch.setattr(DistributedDataParallel, "__init__", DistributedDataParallel.__init__)
    monkeypatch.setattr(ddp_buckets, "_MADE", type(ddp_buckets._MADE)())
    ddp_buckets.watch()
    first, second, other = (DistributedDataParallel(torch.nn.Linear(2, 2)) for _ in range(3))
    if is_frozen:
        gc.collect()
        gc.freeze()
    try:
        assert ddp_buckets.modules_of([second.module, first]) == [second, first]
        assert ddp_buckets.modules_of([other]) == [other]
    finally:
        gc.unfreeze()


def test_classes_that_refuse_to_be_compared_are_no_harm() -> None:
    class Incomparable(type):
        __hash__ = type.__hash__

        def __eq__(cls, other: object) -> bool:
            raise AssertionError("compared")

    class Own(metaclass=Incomparable):
        pass

    held, ddp = Own(), DistributedDataParallel(torch.nn.Linear(2, 2))
    assert ddp_buckets.modules_of([ddp]) == ddp_buckets.modules_of([ddp]) == [ddp], held
