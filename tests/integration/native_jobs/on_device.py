"""One rank of two (the other one is not there), under a backend that gives a Work where NCCL does (`tests/fake_nccl`),
with tensors of a device that Python made. Reports which calls are open when."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import rank
import torch
import torch.distributed as dist
from rank import ARGUMENTS, FOLDER, RANK, WORLD
from torch._C._distributed_c10d import _get_work_registry_size
from torch.distributed._functional_collectives import allow_inflight_collective_as_graph_input_ctx
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


def empty(size: Sequence[int], **_: Any) -> torch.Tensor:
    return torch._C._acc.create_empty_tensor(tuple(size), torch.uint8)


reads: list[torch.Tensor] = []


def on_host(tensor: torch.Tensor, **_: Any) -> torch.Tensor:
    reads.append(tensor)
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


def synchronized() -> list[Any]:
    """A barrier has no tensor that tells its device."""
    work = dist.barrier(async_op=True)
    work.synchronize()
    before = recorder.in_flight()
    fake_nccl.complete()
    work.synchronize()
    return [before, recorder.in_flight()]


def barrier_waits() -> str:
    """The host waits in the barrier's own Work."""
    fake_nccl.fail_the_wait()
    try:
        dist.barrier(async_op=True).wait()
    except RuntimeError as error:
        return str(error).splitlines()[0]
    raise AssertionError("nothing was raised")


def barriers() -> list[int]:
    """Of the device's backend, and of one for the CPU."""
    dist.barrier()
    dist.barrier(dist.new_group([RANK], backend="gloo"))
    return recorder.in_flight()


def asynchronous() -> list[Any]:
    """What they receive is not there before they were waited for."""
    works = [dist.irecv(tensor(), PEER), dist.all_reduce(tensor(), async_op=True)]
    before = recorder.in_flight(), len(reads) - 1  # one is of what the rank sends
    for work in works:
        work.wait()
    return [*before, recorder.in_flight()]


def functional() -> list[Any]:
    """C++ alone holds the Work, and waits for it."""
    there = tensor()
    torch.ops._c10d_functional.all_reduce_(there, "sum", dist.group.WORLD.group_name)
    gc.collect()
    before = recorder.in_flight()
    torch.ops._c10d_functional.wait_tensor(there)
    return [before, recorder.in_flight()]


def by_future() -> list[Any]:
    """DDP takes a Work's future and never waits for the Work."""
    work = dist.all_reduce(tensor(), async_op=True)
    before = recorder.in_flight()
    work.get_future().wait()
    return [before, recorder.in_flight()]


def many_functional() -> list[Any]:
    """All are complete before the first of them is waited for."""
    fake_nccl.complete()
    there = [tensor() for _ in range(100)]
    for each in there:
        torch.ops._c10d_functional.all_reduce_(each, "sum", dist.group.WORLD.group_name)
    for each in there:
        torch.ops._c10d_functional.wait_tensor(each)
    return recorder.in_flight()


def many_in_the_registry() -> list[Any]:
    """Of torch, which waits for what the program dropped, polled or not."""
    fake_nccl.complete()
    there = [tensor() for _ in range(100)]
    with allow_inflight_collective_as_graph_input_ctx():
        for place, each in enumerate(there):
            work = dist.all_reduce(each, async_op=True)
            assert place % 2 or work.is_completed()
            del work
        for each in there:
            torch.ops._c10d_functional.wait_tensor(each)
    return recorder.in_flight()


def in_the_registry(end: Callable[[Any], object]) -> list[Any]:
    """How many works torch still holds when the program has ended and dropped each, and what is left when torch has
    waited for all of them, too."""
    fake_nccl.complete()
    there = [tensor() for _ in range(100)]
    with allow_inflight_collective_as_graph_input_ctx():
        for each in there:
            end(dist.all_reduce(each, async_op=True))
        gc.collect()
        held = _get_work_registry_size()
        for each in there:
            torch.ops._c10d_functional.wait_tensor(each)
    return [held, _get_work_registry_size(), recorder.in_flight()]


def waited_in_the_registry() -> list[Any]:
    return in_the_registry(lambda work: work.wait())


def synchronized_in_the_registry() -> list[Any]:
    return in_the_registry(lambda work: work.synchronize())


def by_future_in_the_registry() -> list[Any]:
    return in_the_registry(lambda work: work.get_future().wait())


def waited_out_of_the_registry() -> list[Any]:
    """Where torch registers no works any more, it takes none out, either."""
    there = tensor()
    with allow_inflight_collective_as_graph_input_ctx():
        work = dist.all_reduce(there, async_op=True)
    work.wait()
    del work
    gc.collect()
    torch.ops._c10d_functional.wait_tensor(there)
    return [_get_work_registry_size(), recorder.in_flight()]


def functional_of_two() -> list[Any]:
    """C++ waits for one Work by each of its tensors."""
    there = [tensor(), tensor()]
    torch.ops._c10d_functional.all_reduce_coalesced_(there, "sum", dist.group.WORLD.group_name)
    gc.collect()
    for each in there:
        torch.ops._c10d_functional.wait_tensor(each)
    return [_get_work_registry_size(), recorder.in_flight()]


def in_another_thread(do: Callable[[], object]) -> None:
    thread = threading.Thread(target=do)
    thread.start()
    thread.join()


def functional_of_two_threads() -> list[Any]:
    """Of one Work, another thread waits for the first tensor. Its own registry is empty."""
    there = [tensor(), tensor()]
    torch.ops._c10d_functional.all_reduce_coalesced_(there, "sum", dist.group.WORLD.group_name)
    in_another_thread(lambda: torch.ops._c10d_functional.wait_tensor(there[0]))
    gc.collect()
    torch.ops._c10d_functional.wait_tensor(there[1])
    return [_get_work_registry_size(), recorder.in_flight()]


def waited_in_another_thread() -> list[Any]:
    """What torch registered in this thread it still holds."""
    there = tensor()
    with allow_inflight_collective_as_graph_input_ctx():
        works = [dist.all_reduce(there, async_op=True)]
        in_another_thread(lambda: works.pop().wait())
        gc.collect()
        torch.ops._c10d_functional.wait_tensor(there)
    return [_get_work_registry_size(), recorder.in_flight()]


def many_waited_out_of_the_registry() -> int:
    """How many tensors live when the program has waited for all works, then torch, and the next call is issued."""
    there = [tensor() for _ in range(100)]
    alive = [weakref.ref(each) for each in there]
    with allow_inflight_collective_as_graph_input_ctx():
        works = [dist.all_reduce(each, async_op=True) for each in there]
    while works:
        works.pop().wait()
    while there:
        torch.ops._c10d_functional.wait_tensor(there.pop())
    dist.all_reduce(tensor())
    reads.clear()
    gc.collect()
    return sum(each() is not None for each in alive)


def dropped() -> list[int]:
    """The program never waits: what it has dropped is kept no longer than needed."""
    sent = [tensor() for _ in range(500)]
    alive = [weakref.ref(each) for each in sent]
    while sent:
        dist.all_reduce(sent.pop(), async_op=True)
    fake_nccl.complete()
    dist.all_reduce(tensor(), async_op=True)
    reads.clear()
    return [len(recorder.in_flight()), sum(each() is not None for each in alive)]


def kept_after_a_poll(issue: Callable[[torch.Tensor], Any]) -> bool:
    """Whoever saw that a work is complete need not wait for it."""
    fake_nccl.complete()
    given = tensor()
    alive = weakref.ref(given)
    assert issue(given).is_completed()
    del given
    reads.clear()
    return alive() is not None


def polled_and_dropped() -> bool:
    return kept_after_a_poll(lambda given: dist.all_reduce(given, async_op=True))


def polled_and_dropped_of_the_group() -> bool:
    """The program asks the group itself, as C++ does."""
    return kept_after_a_poll(lambda given: dist.group.WORLD.allreduce([given]))


def captured() -> list[Any]:
    """A CUDA graph captures the calls: who reads a tensor now breaks the capture."""
    torch.cuda.is_initialized = torch.cuda.is_current_stream_capturing = lambda: True
    dist.all_reduce(tensor())
    dist.all_reduce(tensor(), async_op=True).wait()
    return [len(reads), recorder.in_flight()]


def all_reduce_at_once(group: Any = None) -> None:
    """As `dist.all_reduce`, but not taken out of a block of calls that are issued together."""
    options = dist.AllreduceOptions()
    options.asyncOp = False
    (group or dist.group.WORLD).allreduce([tensor()], options)


def sync_together() -> list[Any]:
    with dist._coalescing_manager(device=DEVICE):
        for _ in range(2):
            all_reduce_at_once()
        before = recorder.in_flight()
    return [before, recorder.in_flight()]


def alone_in_a_block() -> list[Any]:
    """Without a device, the block issues only those together that it takes out."""
    with dist._coalescing_manager():
        all_reduce_at_once()
        return recorder.in_flight()


def fast(*, is_async: bool = False, device: torch.device | None = DEVICE) -> list[Any]:
    """The block takes the calls out, and issues one for all of them."""
    at_the_end = []
    ours = dist.ProcessGroup._end_coalescing

    def end(*args: Any) -> Any:
        at_the_end.append(recorder.in_flight())
        return ours(*args)

    dist.ProcessGroup._end_coalescing = end
    with dist._coalescing_manager(device=device, async_ops=is_async) as block:
        for _ in range(2):
            dist.all_reduce(tensor())
    after = recorder.in_flight()
    if is_async:
        block.wait()
    return [*at_the_end, after, recorder.in_flight()]


def fast_async() -> list[Any]:
    return fast(is_async=True)


def fast_alone() -> list[Any]:
    return fast(device=None)


def nested() -> list[Any]:
    """What the inner group issues is not there before the outer one has ended."""
    other = dist.new_group()
    with dist._coalescing_manager(device=DEVICE):
        all_reduce_at_once()
        with dist._coalescing_manager(other, DEVICE):
            all_reduce_at_once(other)
        between = recorder.in_flight()
        all_reduce_at_once()
        before = recorder.in_flight()
    return [between, before, recorder.in_flight()]


def nested_messages() -> list[Any]:
    """The outer group has no call of its own, and so no Work: nothing says when the inner one's are complete."""
    other = dist.new_group()
    with dist._coalescing_manager(device=DEVICE):
        with dist._coalescing_manager(other, DEVICE, async_ops=True) as inner:
            dist.irecv(tensor(), PEER, group=other)
        inner.wait()
        before = recorder.in_flight()
    return [before, recorder.in_flight()]


def body_raises() -> list[Any]:
    """The block is left without an end. The next one of its group has its own calls alone."""
    try:
        with dist._coalescing_manager(device=DEVICE):
            all_reduce_at_once()
            raise KeyError
    except KeyError:
        left = recorder.in_flight()
    with dist._coalescing_manager(device=DEVICE):
        all_reduce_at_once()
        before = recorder.in_flight()
    return [left, before, recorder.in_flight()]


def inner_body_raises() -> list[Any]:
    """The inner block is left without an end, and the outer one goes on."""
    other = dist.new_group()
    with dist._coalescing_manager(device=DEVICE):
        all_reduce_at_once()
        try:
            with dist._coalescing_manager(other, DEVICE):
                all_reduce_at_once(other)
                raise KeyError
        except KeyError:
            before = recorder.in_flight()
    after = recorder.in_flight()
    all_reduce_at_once(other)
    return [before, after, recorder.in_flight()]


def any_source_together() -> list[Any]:
    with dist._coalescing_manager(device=DEVICE, async_ops=True) as block:
        dist.irecv(tensor(), PEER)
        dist.irecv(tensor())
    block.wait()
    return recorder.in_flight()


def rescued() -> list[Any]:
    """The backend's peers are gone: a replay fills what all calls of the Work receive."""
    ops = [dist.P2POp(dist.irecv, tensor(), PEER) for _ in range(3)]
    works = [dist.batch_isend_irecv(ops)[0] for _ in range(2)]
    filled: list[int] = []

    def fill(record_id: int, op: str, outputs: list[torch.Tensor]) -> bool:
        filled.append(record_id)
        return record_id != 4  # of the second Work

    fake_nccl.fail_the_wait()
    recorder.handover(fill)
    works[0].wait()
    try:
        works[1].wait()
    except RuntimeError as error:
        return [filled, str(error).splitlines()[0]]
    raise AssertionError("nothing was raised")


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


of_device = torch.library.Library("aten", "IMPL")
of_device.impl("empty.memory_format", empty, "PrivateUse1")
of_device.impl("_to_copy", on_host, "PrivateUse1")
dist.Backend.register_backend("fake", lambda store, rank, size, timeout: fake_nccl.make(rank, size), devices=["npu"])

recorder.open(str(FOLDER), RANK, 1 << 20, 1 << 20, True, True, True, False, True)
recorder.mode(1)
dist.init_process_group("fake", store=dist.HashStore(), rank=RANK, world_size=WORLD + 1)
recorder.window(True, 0, 0)
found = globals()[ARGUMENTS[0]]()
rank.report({"found": found, "lost": recorder.stats()["lost"]})
dist.destroy_process_group()
