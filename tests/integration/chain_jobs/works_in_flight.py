"""A small training with works that are waited for late, point-to-point messages in a ring, and a second thread that
has a group of its own. Alone, without a launcher, it is a job of one rank."""

import os
import sys
import threading

import torch
import torch.distributed as dist
import uncompiled  # noqa: F401
from torch.nn.parallel import DistributedDataParallel


def gather_on_the_side(group: dist.ProcessGroup, steps: int, pace: threading.Semaphore) -> None:
    mine = torch.full((64,), float(dist.get_rank()))
    everyone = torch.empty(64 * dist.get_world_size())
    for _ in range(steps):
        pace.acquire()
        dist.all_gather_into_tensor(everyone, mine, group=group)


def main() -> None:
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "1"), ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "0")):
        os.environ.setdefault(name, value)
    dist.init_process_group("gloo")
    rank, world, steps = dist.get_rank(), dist.get_world_size(), int(sys.argv[1])
    side = dist.new_group()
    pace = threading.Semaphore(0)
    thread = threading.Thread(target=gather_on_the_side, args=(side, steps, pace))
    thread.start()

    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(256, 256))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    torch.manual_seed(1 + rank)
    late = []
    for _ in range(steps):
        optimizer.zero_grad(set_to_none=False)
        loss = model(torch.randn(64, 256)).square().mean()
        loss.backward()
        statistic = loss.detach().clone().repeat(1000)
        late.append((statistic, dist.all_reduce(statistic, async_op=True)))
        if world > 1:
            message, answer = torch.full((100,), loss.item()), torch.empty(100)
            sent = dist.isend(message, (rank + 1) % world)
            dist.recv(answer, (rank - 1) % world)
            sent.wait()
        pace.release()
        optimizer.step()
        if len(late) > 2:
            late.pop(0)[1].wait()
    for _, work in late:
        work.wait()
    thread.join()
    dist.barrier()
    dist.destroy_process_group()


main()
