"""A rank that issues tiny all_reduces, 200 a step: the first COUNT as fast as it can, then slowly until it is ended.
`long_job.py COUNT`"""

import sys
import time

import torch
import torch.distributed as dist

PER_STEP = 200
PAUSE_S = 0.2  # a step


def main() -> None:
    dist.init_process_group("gloo")
    count = int(sys.argv[1])
    value = torch.ones(4)
    weight = torch.ones(1, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.0)
    issued = 0
    while True:
        for _ in range(PER_STEP):
            dist.all_reduce(value)
        weight.sum().backward()
        optimizer.step()
        issued += PER_STEP
        if issued == count:
            print(f"at {issued}", flush=True)
        if issued >= count:
            time.sleep(PAUSE_S)


main()
