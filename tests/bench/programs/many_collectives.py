"""COUNT tiny all_reduces of one rank, 200 a step; prints when the last one was done. `many_collectives.py COUNT`"""

import sys
import time

import torch
import torch.distributed as dist

PER_STEP = 200


def main() -> None:
    dist.init_process_group("gloo")
    value = torch.ones(4)
    weight = torch.ones(1, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.0)
    for number in range(int(sys.argv[1])):
        dist.all_reduce(value)
        if number % PER_STEP == PER_STEP - 1:
            weight.sum().backward()
            optimizer.step()
    dist.destroy_process_group()
    print(f"ended {time.time():.3f}", flush=True)


main()
