"""A small training whose backend allocates (gathers), and which keeps one tensor of every step."""

import subprocess
import sys

import torch
import torch.distributed as dist
import uncompiled  # noqa: F401
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    dist.init_process_group("gloo")
    rank, world, steps = dist.get_rank(), dist.get_world_size(), int(sys.argv[1])
    # a process that starts as a rank does, and is none
    subprocess.run([sys.executable, "-c", "import torch; torch.ones(8)"], check=True)
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.Linear(512, 256)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    torch.manual_seed(1 + rank)
    kept = []
    for _ in range(steps):
        loss = model(torch.randn(16, 256)).square().mean()
        loss.backward()
        everyone = torch.empty(1000 * world)
        dist.all_gather_into_tensor(everyone, loss.detach().repeat(1000))
        kept.append(everyone[:1].clone())
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
    dist.barrier()
    dist.destroy_process_group()


main()
