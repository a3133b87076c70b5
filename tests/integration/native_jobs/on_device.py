"""One rank of two (the other one is not there), under a backend that gives a Work where NCCL does (`tests/fake_nccl`),
with tensors of a device that Python made. Reports which calls are open when."""

from __future__ import annotations

import sys
from typing import Any

import rank
import torch
import torch.distributed as dist
from rank import ARGUMENTS, FOLDER, RANK, WORLD
from torch.utils import backend_registration

from prismdbg.jobs.injection import cache_dir
from prismdbg.rank.boot import make_recorder
from prismdbg.settings.rank_config import Mode, RankConfig

sys.path.insert(0, ARGUMENTS[1])
import fake_nccl

IS_NATIVE = ARGUMENTS[2] == "native"
recorder, _ = make_recorder(RankConfig(mode=Mode.RECORD, socket_dir="", native=IS_NATIVE, cache_dir=str(cache_dir())))
PEER = 1 - RANK
backend_registration._setup_privateuseone_for_python_backend("npu")
DEVICE = torch.device("npu")


def tensor() -> torch.Tensor:
    return torch._C._acc.create_empty_tensor((4,), torch.uint8)


def on_host(tensor: torch.Tensor, **_: Any) -> torch.Tensor:
    return torch.full(tensor.shape, 7, dtype=tensor.dtype)


def sync() -> list[Any]:
    """Not asynchronous: complete when it returns."""
    dist.all_reduce(tensor())
    return recorder.in_flight()


def polled() -> list[Any]:
    """The works are kept: what ends one is that the program saw that it is complete."""
    works = [dist.all_reduce(tensor(), async_op=True) for _ in range(2)]
    before = recorder.in_flight()
    fake_nccl.complete()
    return [before, works[0].is_completed(), recorder.in_flight()]


def sync_together() -> list[Any]:
    options = dist.AllreduceOptions()
    options.asyncOp = False
    with dist._coalescing_manager(device=DEVICE):
        for _ in range(2):
            dist.group.WORLD.allreduce([tensor()], options)
        before = recorder.in_flight()
    return [before, recorder.in_flight()]


def messages_together() -> list[Any]:
    ops = [dist.P2POp(dist.isend, tensor(), PEER), dist.P2POp(dist.irecv, tensor(), PEER)]
    (work,) = dist.batch_isend_irecv(ops)
    before = recorder.in_flight()
    work.wait()
    dist.all_reduce(tensor())
    return [before, recorder.in_flight()]


def end_raises() -> list[Any]:
    fake_nccl.fail_the_end()
    try:
        messages_together()
    except RuntimeError as error:
        return [str(error).splitlines()[0], recorder.in_flight()]
    raise AssertionError("nothing was raised")


copies = torch.library.Library("aten", "IMPL")
copies.impl("_to_copy", on_host, "PrivateUse1")
dist.Backend.register_backend("fake", lambda store, rank, size, timeout: fake_nccl.make(rank, size), devices=["npu"])

recorder.open(str(FOLDER), RANK, 1 << 20, 1 << 20, True, True, True, False, True)
recorder.mode(1)
dist.init_process_group("fake", store=dist.HashStore(), rank=RANK, world_size=WORLD + 1)
recorder.window(True, 0, 0)
found = {each.__name__: each for each in (sync, polled, sync_together, messages_together, end_raises)}[ARGUMENTS[0]]()
rank.report({"found": found, "lost": recorder.stats()["lost"]})
dist.destroy_process_group()
