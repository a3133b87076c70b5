"""COUNT tiny all_reduces of one rank, 200 a step, from number NAN on of NaN; prints when that was sent and when all
were done. `many_collectives.py COUNT [NAN]`"""

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
    count, *first_nan = map(int, sys.argv[1:])
    for number in range(count):
        if number in first_nan:
            value.fill_(float("nan"))
            print(f"nan {time.time():.3f}", flush=True)
        dist.all_reduce(value)
        if number % PER_STEP == PER_STEP - 1:
            weight.sum().backward()
            optimizer.step()
    dist.destroy_process_group()
    print(f"ended {time.time():.3f}", flush=True)


main()
